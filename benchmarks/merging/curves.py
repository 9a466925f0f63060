"""Ours along a curve: from rows in arrival order on warm Spark, or in this process from blocks in curve order."""

from __future__ import annotations

from pathlib import Path

import tblctl
from benchmarks.merging.contender import Job
from benchmarks.merging.ours import Local, append_all
from benchmarks.merging.session import spark_session


class _Curve(Local):
    """The key is given in every run, so boundaries are made from the rows in it, too.

    Files are appended as they are, a block each, though what they become may be smaller blocks.
    """

    kind = ""

    def __init__(self, job: Job, folder: Path) -> None:
        super().__init__(job, folder, key=None, block_rows=10**9)
        self.base.set_options({"block_rows": job.block_rows})
        self._key = f"{self.kind}({', '.join(job.columns)})"

    def _recluster(self) -> tblctl.Outcome:
        self.table.set_cluster_key(self._key)
        return self.table.recluster(policy="full", engine="local")


class Hilbert(_Curve):
    """By a Hilbert curve, in this process."""

    kind = "hilbert"


class ZOrder(_Curve):
    """By a z-order, in this process."""

    kind = "zorder"


class _OnSpark(_Curve):
    def __init__(self, job: Job, folder: Path) -> None:
        self._spark = spark_session(folder.parent)
        super().__init__(job, folder)

    def _recluster(self) -> tblctl.Outcome:
        self.table.set_cluster_key(self._key)
        return self.table.recluster(policy="full", spark=self._spark)


class HilbertOnSpark(_OnSpark):
    """By a Hilbert curve, the tasks in Spark's workers."""

    kind = "hilbert"


class ZOrderOnSpark(_OnSpark):
    """By a z-order, the tasks in Spark's workers."""

    kind = "zorder"


def in_curve_order(job: Job, place: Path, key: str) -> tblctl.Table:
    """Make a table along a curve of the job's files, one append each, which sorts its rows along the curve."""
    return append_all(job, place, key=key)
