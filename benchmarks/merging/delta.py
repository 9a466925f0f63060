"""Delta Lake's `OPTIMIZE`, of a table converted from the same files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from benchmarks.merging.contender import PROCESSES, Job, link_all
from benchmarks.merging.session import spark_session

_PACKAGE = "io.delta:delta-spark_4.1_2.13:4.4.0"


@cache
def _session(folder: Path):
    return spark_session(
        folder,
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": str(
                PROCESSES
            ),  # of its log, which is small; the default is 50
        },
        package=_PACKAGE,
    )


class _Optimize:
    """Every run has its own table."""

    order = ""

    def __init__(self, job: Job, folder: Path) -> None:
        self.session = _session(folder.parent)
        self._job = job
        self._folder = folder
        self._columns = ", ".join(job.columns)
        self._runs = 0
        for limit in ("minFileSize", "maxFileSize"):
            self.session.conf.set(f"spark.databricks.delta.optimize.{limit}", str(job.output_bytes))

    def reset(self) -> None:
        self._runs += 1
        place = self._folder / str(self._runs)
        link_all(self._job.files, place)
        self.table = f"delta.`{place}`"
        self.session.sql(f"CONVERT TO DELTA parquet.`{place}`")

    def run(self) -> None:
        self.session.sql(f"OPTIMIZE {self.table} {self.order.format(self._columns)}").collect()

    def output(self) -> Sequence[str]:
        found = self.session.table(self.table).inputFiles()  # `file:/path`, or `file:///path`
        return [unquote(uri.removeprefix("file:")).replace("///", "/", 1) for uri in found]


class ZOrder(_Optimize):
    """By the Z-value of the columns."""

    order = "ZORDER BY ({})"


class Liquid(_Optimize):
    """Liquid clustering by the columns, declared after the files were added."""

    def reset(self) -> None:
        super().reset()
        self.session.sql(f"ALTER TABLE {self.table} CLUSTER BY ({self._columns})")
