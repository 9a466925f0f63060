"""DuckDB, Polars, delta-rs and Databend, with settings for an output as close to ours as possible."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.merging.contender import KEY, PROCESSES, Job, link_all


class DuckDB:
    """`ORDER BY` and `COPY`, into one file."""

    def __init__(self, job: Job, folder: Path) -> None:
        import duckdb

        self._output = folder / "out.parquet"
        settings = {"threads": PROCESSES, "temp_directory": str(folder / "spill")}
        self._connection = duckdb.connect(config=settings)
        files = ", ".join(f"'{file}'" for file in job.files)
        self._statement = (
            f"COPY (SELECT * FROM read_parquet([{files}]) ORDER BY {KEY}) TO '{self._output}' "
            f"(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE {job.row_group_rows})"
        )

    def reset(self) -> None:
        self._output.unlink(missing_ok=True)

    def run(self) -> None:
        self._connection.execute(self._statement)

    def output(self) -> list[str]:
        return [str(self._output)]


class Polars:
    """A lazy sort into a sink, one file."""

    def __init__(self, job: Job, folder: Path) -> None:
        import polars

        self._job = job
        self._output = folder / "out.parquet"
        self._scan = polars.scan_parquet

    def reset(self) -> None:
        self._output.unlink(missing_ok=True)

    def run(self) -> None:
        self._scan(list(self._job.files)).sort(KEY).sink_parquet(
            self._output, compression="zstd", compression_level=1, row_group_size=self._job.row_group_rows
        )

    def output(self) -> list[str]:
        return [str(self._output)]


class DeltaRs:
    """`optimize.z_order` by one column, of a Delta table of the same files."""

    def __init__(self, job: Job, folder: Path) -> None:
        import deltalake

        self._delta = deltalake
        self._job = job
        self._place = folder / "table"

    def reset(self) -> None:
        link_all(self._job.files, self._place)
        self._delta.convert_to_deltalake(self._place)
        self._table = self._delta.DeltaTable(self._place)

    def run(self) -> None:
        writer = self._delta.WriterProperties(
            compression="ZSTD", compression_level=1, max_row_group_size=self._job.row_group_rows
        )
        self._table.optimize.z_order([KEY], target_size=self._job.output_bytes, writer_properties=writer)

    def output(self) -> list[str]:
        return [uri.removeprefix("file://") for uri in self._table.file_uris()]


class Databend:
    """`RECLUSTER FINAL` in the embedded engine, of a table with one insert a file, in Parquet and zstd like ours.

    Every run begins at the snapshot before the first one. Compaction after inserts is off, since it would merge the
    blocks beforehand. One round made 9 blocks of average depth 2 of the 61 (`clustering_information`), whatever the
    format.
    """

    format = "COMPRESSION = 'zstd' STORAGE_FORMAT = 'parquet'"

    def __init__(self, job: Job, folder: Path) -> None:
        from databend import SessionContext

        self._folder = folder  # what it keeps is in the current one
        self._context = SessionContext()
        self._sql("SET enable_compact_after_write = 0")
        self._sql(
            f"CREATE TABLE lineitem ({', '.join(_databend_columns(job.files[0]))}) CLUSTER BY ({KEY}) "
            f"ROW_PER_BLOCK = {job.block_rows} {self.format}"
        )
        for file in job.files:
            self._sql(f"COPY INTO lineitem FROM 'fs://{file}' FILE_FORMAT = (TYPE = parquet)")
        facts = self._rows(
            "SELECT snapshot_id, block_count FROM fuse_snapshot('default', 'lineitem') LIMIT 1"
        )
        self._snapshot, blocks = facts[0]
        if blocks != len(job.files):
            msg = f"Databend made {blocks} blocks of {len(job.files)} files"
            raise AssertionError(msg)

    def reset(self) -> None:
        self._sql(f"ALTER TABLE lineitem FLASHBACK TO (SNAPSHOT => '{self._snapshot}')")

    def run(self) -> None:
        self._sql("ALTER TABLE lineitem RECLUSTER FINAL")

    def output(self) -> list[str]:
        blocks = self._rows("SELECT block_location FROM fuse_block('default', 'lineitem')")
        return [str(Path(".databend", "_data", location).resolve()) for (location,) in blocks]

    def _sql(self, text: str) -> None:
        self._context.sql(text).collect()

    def _rows(self, text: str) -> list[tuple]:
        batches = self._context.sql(text).to_py_arrow()
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


class DatabendNative(Databend):
    """The same with Databend's default format on a local disk, which is not Parquet.

    It takes about twice the processor time (34 to 56 s against 13 to 17 s on a busy machine).
    """

    format = ""

    def output(self) -> list[str]:
        """Return the rows as Parquet for the check. Their order is not kept, so the depth is reported instead."""
        ((depth,),) = self._rows("SELECT average_depth FROM clustering_information('default', 'lineitem')")
        if depth > _SORTED_DEPTH:
            msg = f"Databend left an average depth of {depth}"
            raise AssertionError(msg)
        exported = self._folder / "exported"
        shutil.rmtree(exported, ignore_errors=True)
        exported.mkdir()
        self._sql(f"COPY INTO 'fs://{exported}/' FROM lineitem FILE_FORMAT = (TYPE = parquet)")
        return [str(path) for path in exported.rglob("*.parquet")]


_SORTED_DEPTH = 3  # on average; blocks share the key where they meet


def _databend_columns(file: str) -> Sequence[str]:
    import pyarrow.parquet as pq

    kinds = {"int64": "BIGINT", "int32": "INT", "date32[day]": "DATE", "string": "VARCHAR"}
    return [
        f"{item.name} {kinds.get(str(item.type), 'DECIMAL(15, 2)')} NOT NULL" for item in pq.read_schema(file)
    ]
