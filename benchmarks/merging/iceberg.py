"""Apache Iceberg's `rewrite_data_files`, of a table with the same files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from benchmarks.merging.contender import KEY, Job, link_all
from benchmarks.merging.session import spark_session

_PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


@cache
def _session(folder: Path):
    return spark_session(
        folder,
        {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.peers": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.peers.type": "hadoop",
            "spark.sql.catalog.peers.warehouse": str(folder / "iceberg"),
        },
        package=_PACKAGE,
    )


class _Rewrite:
    """Every run begins at the snapshot before the first one."""

    name = ""
    strategy = ""

    def __init__(self, job: Job, folder: Path) -> None:
        self.session = _session(folder.parent)
        self._bytes = job.output_bytes
        self._columns = ", ".join(job.columns)
        self._table = f"peers.merge.{self.name}"
        link_all(job.files, folder / "input")
        source = f"parquet.`{folder / 'input'}`"
        columns = self.session.table(source).schema
        self.session.createDataFrame([], columns).writeTo(self._table).using("iceberg").tableProperty(
            "write.parquet.compression-codec", "zstd"
        ).tableProperty("write.parquet.compression-level", "1").create()
        self.session.sql(
            f"CALL peers.system.add_files(table => 'merge.{self.name}', source_table => '{source}')"
        ).collect()
        self._snapshot = self._current()

    def reset(self) -> None:
        if self._current() != self._snapshot:
            call = f"CALL peers.system.rollback_to_snapshot('merge.{self.name}', {self._snapshot})"
            self.session.sql(call).collect()

    def run(self) -> None:
        strategy = self.strategy.format(self._columns)
        self.session.sql(
            f"CALL peers.system.rewrite_data_files(table => 'merge.{self.name}', {strategy}, "
            f"options => map('rewrite-all', 'true', 'target-file-size-bytes', '{self._bytes}'))"
        ).collect()

    def output(self) -> Sequence[str]:
        rows = self.session.table(f"{self._table}.files").select("file_path").collect()
        return [row.file_path.removeprefix("file:") for row in rows]

    def _current(self) -> int:
        refs = self.session.table(f"{self._table}.refs").where("name = 'main'")
        return int(refs.select("snapshot_id").first()[0])


class Sort(_Rewrite):
    """By the key."""

    name = "sort"
    strategy = f"strategy => 'sort', sort_order => '{KEY} ASC NULLS LAST'"


class ZOrder(_Rewrite):
    """By the Z-value of the columns."""

    name = "zorder"
    strategy = "strategy => 'sort', sort_order => 'zorder({})'"


class BinPack(_Rewrite):
    """Larger files of the same rows; nothing is sorted."""

    name = "binpack"
    strategy = "strategy => 'binpack'"
