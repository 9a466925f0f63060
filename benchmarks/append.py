"""Append of TPC-H lineitem against a plain pyarrow sort and write of the same blocks on two processes.

The baseline is two processes, started beforehand, each with half of the blocks. For each block a process slices (or
reads) the rows, sorts them by the key, and writes a Parquet file with the same codec and row groups, and integers for
decimals. Everything else is pyarrow's default, so it tries a dictionary for every column. The baseline keeps no
statistics, flushes nothing to disk and commits nothing. It sorts each block alone, as `sort_scope=block` does. Our
default also sorts across blocks, so its limit is lower.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import tblctl
from benchmarks.common import Pairs, Report, Timed, in_turn, lineitem, main, scratch

KEY = ("l_shipdate", "l_orderkey")
PROCESSES = 2
BATCH_ROWS = 65_536  # of the readers on both sides


def measure(report: Report, tiny: bool) -> None:
    path = lineitem("0.01" if tiny else "1")
    block_rows = 5_000 if tiny else 100_000
    runs = 1 if tiny else 5
    total = pq.read_metadata(path).num_rows
    report.line(
        f"{total:,} rows of lineitem into blocks of {block_rows:,}; key {', '.join(KEY)}; {runs} runs in turn"
    )
    for source in ("memory", "file"):
        table = in_memory(path) if source == "memory" else None
        with scratch() as folder, baseline(path, source, block_rows) as plain:
            data = path if table is None else table
            schema = tblctl.read_schema(path) if table is None else table.schema
            cases = [ours(folder, data, schema, block_rows, scope) for scope in ("block", "append")]
            block, default, other = in_turn([*cases, plain(folder)], runs=runs)
        report.begin("from an Arrow table in memory" if source == "memory" else "from one Parquet file")
        report.seconds("pyarrow, two processes", other)
        report.seconds("append, sort_scope=block", block)
        report.seconds("append, as by default", default)
        report.figure("speed, sort_scope=block", Pairs(ours=block, baseline=other).speed, "x", least=0.8)
        report.figure("speed, as by default", Pairs(ours=default, baseline=other).speed, "x", least=0.65)


def ours(folder: Path, data: pa.Table | Path, schema: pa.Schema, block_rows: int, scope: str) -> Timed:
    """Append to an empty table."""

    def run() -> float:
        place = folder / "table"
        table = tblctl.create(
            place, schema, cluster_by=KEY, options={"block_rows": block_rows, "sort_scope": scope}
        )
        started = time.perf_counter()
        table.append(data)
        seconds = time.perf_counter() - started
        tblctl.drop(place)
        return seconds

    return run


def in_memory(path: Path) -> pa.Table:
    """Return the file's rows as one chunk a column, with the string type that most programs use."""
    return pq.read_table(path, schema=_with_strings(pq.read_schema(path), pa.string())).combine_chunks()


def _with_strings(schema: pa.Schema, kind: pa.DataType) -> pa.Schema:
    """Return `schema` with `kind` for string views, which pyarrow can neither take nor sort."""
    return pa.schema(
        [item.with_type(kind) if pa.types.is_string_view(item.type) else item for item in schema]
    )


@contextmanager
def baseline(path: Path, source: str, block_rows: int) -> Iterator[object]:
    """Start the processes, yield a function that makes a case of them, and end them."""
    context = multiprocessing.get_context("spawn")
    total = pq.read_metadata(path).num_rows
    blocks = -(-total // block_rows)
    cuts = [min(total, block_rows * (blocks * part // PROCESSES)) for part in range(PROCESSES + 1)]
    ends, processes = [], []
    for start, stop in itertools.pairwise(cuts):
        mine, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, str(path), source, (start, stop), block_rows))
        process.start()
        theirs.close()
        ends.append(mine)
        processes.append(process)
    try:
        for end in ends:
            end.recv()  # it has its rows

        def case(folder: Path) -> Timed:
            return lambda: _round(ends, folder)

        yield case
    finally:
        for end in ends:
            end.close()
        for process in processes:
            process.join()


def _round(ends: list[Connection], folder: Path) -> float:
    place = folder / "plain"
    place.mkdir()
    started = time.perf_counter()
    for end in ends:
        end.send(str(place))
    for end in ends:
        end.recv()
    seconds = time.perf_counter() - started
    for file in place.iterdir():
        file.unlink()
    place.rmdir()
    return seconds


def _serve(end: Connection, path: str, source: str, part: tuple[int, int], block_rows: int) -> None:
    """Write the rows in the range `part` as blocks, into each folder that is requested."""
    start, stop = part
    rows = in_memory(Path(path)).slice(start, stop - start) if source == "memory" else None
    end.send("ready")
    while True:
        try:
            folder = end.recv()
        except EOFError:
            return
        blocks = _slices(rows, block_rows) if rows is not None else _read(path, start, stop, block_rows)
        for number, block in enumerate(blocks, start):
            _write(block, f"{folder}/{number}.parquet")
        end.send("done")


def _slices(rows: pa.Table, block_rows: int) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, block_rows):
        yield rows.slice(start, block_rows)


def _read(path: str, start: int, stop: int, block_rows: int) -> Iterator[pa.Table]:
    """Read the rows from `start` to `stop` in order, as blocks."""
    file = pq.ParquetFile(path)
    schema = _with_strings(file.schema_arrow, pa.large_string())
    groups, position, first = [], 0, 0
    for group in range(file.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        if position < stop and position + size > start:
            first = first if groups else position
            groups.append(group)
        position += size
    waiting: list[pa.Table] = []
    count, position = 0, first
    for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups):
        low = min(max(start - position, 0), batch.num_rows)
        high = max(min(stop - position, batch.num_rows), low)
        position += batch.num_rows
        rows = pa.Table.from_batches([batch.slice(low, high - low)]).cast(schema)
        while count + rows.num_rows >= block_rows:
            need = block_rows - count
            yield pa.concat_tables([*waiting, rows.slice(0, need)])
            waiting, count, rows = [], 0, rows.slice(need)
        waiting.append(rows)
        count += rows.num_rows
    if count:
        yield pa.concat_tables(waiting)


def _write(rows: pa.Table, path: str) -> None:
    ordered = rows.combine_chunks().sort_by([(name, "ascending") for name in KEY])
    options = tblctl.TableOptions()
    pq.write_table(
        ordered,
        path,
        row_group_size=options.row_group_rows,
        compression=options.compression,
        compression_level=options.compression_level,
        store_decimal_as_integer=True,
    )


if __name__ == "__main__":
    main("append", measure)
