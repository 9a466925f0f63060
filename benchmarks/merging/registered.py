"""Contenders on an Iceberg table of the job's files: one such table each, made alike."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import tblctl
from benchmarks.merging import spark
from benchmarks.merging.contender import KEY, Job
from benchmarks.merging.lake import PACKAGES, Lake, rewrite, spark_conf
from benchmarks.merging.session import spark_session

TABLE = "lineitem"


@cache
def _session(folder: Path):
    return spark_session(folder, spark_conf(folder), package=PACKAGES)


class _Registered:
    """Every run begins at the table's first snapshot."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.lake = Lake(folder)
        self.lake.take(TABLE, job)
        self._job = job

    def reset(self) -> None:
        self.lake.reset(TABLE)

    def output(self) -> Sequence[str]:
        return self.lake.files(TABLE)


class Sort(_Registered):
    """Iceberg's `rewrite_data_files` of all files, on warm Spark."""

    def __init__(self, job: Job, folder: Path) -> None:
        super().__init__(job, folder)
        self._session = _session(folder)

    def run(self) -> None:
        call = rewrite(TABLE, KEY, rewrite_all="true", target_file_size_bytes=self._job.output_bytes)
        self._session.sql(call).collect()


class Ours(_Registered):
    """Plan, merge, verify and commit in one process."""

    def run(self) -> None:
        outcome = self._recluster(self.lake.open(TABLE))
        if (outcome.committed_groups, outcome.blocks_in) != (1, len(self._job.files)):
            msg = f"expected {len(self._job.files)} files to be merged as one group, got {outcome}"
            raise AssertionError(msg)

    def _recluster(self, table: tblctl.IcebergTable) -> tblctl.Outcome:
        return table.recluster(policy="full", cluster_by=[KEY], engine="local")


class OursOnSpark(Ours):
    """The tasks in Spark's workers."""

    def __init__(self, job: Job, folder: Path) -> None:
        self._spark = spark.session(folder.parent)
        super().__init__(job, folder)

    def _recluster(self, table: tblctl.IcebergTable) -> tblctl.Outcome:
        return table.recluster(policy="full", cluster_by=[KEY], spark=self._spark)
