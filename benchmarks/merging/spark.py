"""Ours on Spark, and Spark's own way, in one warm session."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import tblctl
from benchmarks.merging.contender import KEY, Job
from benchmarks.merging.ours import Local
from benchmarks.merging.session import spark_session

session = cache(spark_session)


class OursOnSpark(Local):
    """Plan, merge, verify and commit, the tasks in Spark's workers."""

    def __init__(self, job: Job, folder: Path) -> None:
        self._spark = session(folder.parent)
        super().__init__(job, folder)

    def _recluster(self) -> tblctl.Outcome:
        return self.table.recluster(policy="full", spark=self._spark)


class SparkOwn:
    """Range partition, sort and write, by the JVM alone."""

    def __init__(self, job: Job, folder: Path) -> None:
        self._spark = session(folder.parent)
        self._job = job
        self._output = folder / "out"

    def reset(self) -> None:
        shutil.rmtree(self._output, ignore_errors=True)

    def run(self) -> None:
        rows = self._spark.read.parquet(*self._job.files)
        ordered = rows.repartitionByRange(self._job.output_files, KEY).sortWithinPartitions(KEY)
        ordered.write.parquet(str(self._output))

    def output(self) -> list[str]:
        return [str(file) for file in self._output.glob("*.parquet")]
