"""Print the rows of a scan as a table or JSON, or write them to a file in Parquet, Arrow IPC or CSV."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

import tblctl
from tblctl.cli.show import render
from tblctl.local_file import whole_file, why_unwritten

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN_ROWS = 50  # of a printed table without --limit
SUFFIXES = (".parquet", ".arrow", ".ipc", ".feather", ".csv")


class Writer(Protocol):
    """The interface that all file writers of pyarrow share."""

    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def column_list(schema: pa.Schema) -> list[dict[str, str]]:
    """Return the columns of `schema` as JSON values."""
    return [{"name": field.name, "type": tblctl.type_to_text(field.type)} for field in schema]


def print_rows(reader: pa.RecordBatchReader, *, most: int | None) -> None:
    """Print rows as a table. With `most`, print at most that many, and whether there are more."""
    from tblctl.cli.show import values

    rows: list[tuple[Any, ...]] = []
    for batch in reader:
        rows += values.rows_to_json(batch)
        if most is not None and len(rows) > most:
            break
    shown = rows if most is None else rows[:most]
    right = [i for i, field in enumerate(reader.schema) if values.is_number(field.type)]
    render.print_table(reader.schema.names, shown, right=right)
    if len(shown) < len(rows):
        click.echo(
            f"(the first {count_of(shown)}, there are more: --limit N shows N, --json or --output FILE takes all)"
        )
    else:
        click.echo(f"({count_of(shown)})")


def count_of(rows: list[tuple[Any, ...]]) -> str:
    """Return the number of rows in words."""
    return render.count(len(rows), "row")


def print_json_rows(reader: pa.RecordBatchReader, *, snapshot: int) -> None:
    """Stream the rows as one JSON object, a line per row, so that a scan of any size needs little memory.

    The first batch is read before anything is printed, so most failures leave standard output empty.
    """
    from tblctl.cli.show import values

    names = reader.schema.names
    batches = iter(reader)
    first = next(batches, None)
    head = render.json_text({"snapshot": snapshot, "columns": column_list(reader.schema)})
    click.echo(head[:-1] + ', "rows": [', nl=False)
    row_count = 0
    for batch in chain(first, batches):
        lines = [render.json_text(dict(zip(names, row, strict=True))) for row in values.rows_to_json(batch)]
        if lines:
            click.echo((",\n" if row_count else "\n") + ",\n".join(lines), nl=False)
        row_count += len(lines)
    click.echo(f'\n], "row_count": {row_count}}}')


def chain(first: pa.RecordBatch | None, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield `first`, if there is one, and then `rest`."""
    if first is not None:
        yield first
        yield from rest


def check_output(path: str) -> None:
    """Refuse an `--output` that cannot be written, before anything is read."""
    if path == "-":
        if sys.stdout.isatty():
            raise click.BadParameter("'-' writes an Arrow IPC stream, and standard output is a terminal")
    elif "://" in path:
        raise click.BadParameter(f"{path!r} is a URL: only local files are written; copy the file from there")
    elif not path.endswith(SUFFIXES):
        raise click.BadParameter(f"{path!r} must end in one of {', '.join(SUFFIXES)}, which names the format")


def write_rows(reader: pa.RecordBatchReader, path: str, *, report: Any) -> int:
    """Write the rows to `path` and return their number. The file appears whole or not at all."""
    row_count = 0
    with open_writer(path, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            row_count += batch.num_rows
            if report is not None:
                report(row_count, None, "rows")
    return row_count


@contextmanager
def open_writer(path: str, schema: pa.Schema) -> Iterator[Writer]:
    """Open a writer for `path`. The file gets this name only when it is complete."""
    if path == "-":
        import pyarrow as pa

        with pa.ipc.new_stream(sys.stdout.buffer, schema) as stream:
            yield stream
        return
    try:
        with whole_file(path) as part:
            writer = new_writer(part, schema, suffix=Path(path).suffix)
            try:
                yield writer
            finally:
                writer.close()
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: str, error: OSError) -> click.ClickException:
    """Return the error of the command for a file that could not be written."""
    return click.ClickException(f"cannot write {path}: {why_unwritten(error)}")


def new_writer(path: Path, schema: pa.Schema, *, suffix: str) -> Writer:
    """Return pyarrow's writer for the format that `suffix` names."""
    import pyarrow as pa

    if suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(path, schema, compression="zstd")  # type: ignore[no-any-return]
    if suffix == ".csv":
        return CsvWriter(path, schema)
    return pa.ipc.new_file(str(path), schema)  # type: ignore[no-any-return]


class CsvWriter:
    """pyarrow's CSV writer. Nested values and bytes, which CSV cannot hold, become the text that `--json` prints."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.csv

        self.as_text = [needs_text(field.type) for field in schema]
        fields = [
            pa.field(field.name, pa.large_string()) if text else field
            for field, text in zip(schema, self.as_text, strict=True)
        ]
        self.schema = pa.schema(fields)
        self.writer = pa.csv.CSVWriter(path, self.schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        columns = [
            pa.array(json_texts(column), pa.large_string()) if text else column
            for column, text in zip(batch.columns, self.as_text, strict=True)
        ]
        self.writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def close(self) -> None:
        self.writer.close()


def needs_text(kind: pa.DataType) -> bool:
    """Return whether pyarrow's CSV writer cannot write `kind` in a form that other tools read."""
    import pyarrow.types as pt

    from tblctl.cli.show import values

    return bool(pt.is_nested(kind) or pt.is_dictionary(kind) or values.is_binary(kind))


def json_texts(column: pa.Array) -> list[str | None]:
    """Return each value as text: strings as they are, everything else as JSON."""
    from tblctl.cli.show import values

    return [
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in values.to_json(column)
    ]
