"""Write rows as data files of an Iceberg table, in runs of half the memory, each sorted by the cluster key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

import pyarrow as pa

from tblctl.tableformat.buffered_rows import BufferedRows
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import InternalError
from tblctl.tableformat.iceberg.record import DataFileRecord
from tblctl.tableformat.iceberg.writing.outputs import Outputs
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.cut import cut_rows
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader
from tblctl.tableformat.progress import Progress
from tblctl.tableformat.projection import Conformer


def write_rows(
    outputs: Outputs,
    tables: Iterable[pa.Table],
    *,
    memory_bytes: int,
    env: Environment,
    progress: Progress | None = None,
) -> list[DataFileRecord]:
    """Write all rows, of any schemas that fit the table's, and return the new files. After an error there are none.

    A file is closed once it has the table's target size. Rows of a table clustered along a curve or by a tree stay in
    their order: its boundaries are made by a recluster.

    Raises:
        InvalidDataError: a value does not fit its column; names the column.
    """
    layout = outputs.layout
    sort = None if layout.sort is None or layout.sort.is_layout else layout.sort
    waiting: list[pa.Table] = []
    written: list[DataFileRecord] = []
    held = count = 0

    def write_run() -> None:
        nonlocal held
        if waiting:
            rows = (
                BufferedRows.sorted(waiting, sort, layout.schema) if sort else BufferedRows.arrived(waiting)
            )
            _write_run(outputs, rows, sort, env, written)
        held = 0

    try:
        for rows in _conformed(tables, outputs):
            waiting.append(rows)
            held += BufferedRows.sorting_bytes(rows, sort, layout.schema) if sort else rows.nbytes
            count += rows.num_rows
            if held >= memory_bytes // 2:
                write_run()
            if progress:
                progress(count, None, "rows")
        write_run()
    except BaseException:
        outputs.discard([record.path for record in written])
        raise
    return written


def _conformed(tables: Iterable[pa.Table], outputs: Outputs) -> Iterator[pa.Table]:
    last: tuple[pa.Schema, Conformer] | None = None
    for table in tables:
        if last is None or not last[0].equals(table.schema):
            last = table.schema, Conformer.plan(table.schema, outputs.layout.schema)
        if table.num_rows:
            yield last[1].apply(table)


def _write_run(
    outputs: Outputs, rows: BufferedRows, sort: Sort | None, env: Environment, written: list[DataFileRecord]
) -> None:
    run_id = env.new_run_id()
    start = 0
    group_rows = outputs.layout.options.row_group_rows
    while start < rows.row_count:
        builder = outputs.build(sort=sort, level=0, run_id=run_id, partition="", open=_nothing_to_copy)
        try:
            while start < rows.row_count and builder.stored_bytes < outputs.target_bytes:
                left = rows.row_count - start
                step = next(iter(cut_rows(left, group_rows)))
                builder.adding(rows.rows(start, step), [step])()
                start += step
            written += [_data_file(record) for record in builder.finish()]
        except BaseException:
            builder.discard()
            raise


def _data_file(record: object) -> DataFileRecord:
    assert isinstance(record, DataFileRecord)
    return record


_Open = Callable[[Block], ParquetBlockReader]


def _nothing_to_copy(block: Block) -> NoReturn:
    raise InternalError(f"a new file copies nothing, not {block.path}")
