"""Profile a merge in this process: processor seconds by stage, over all threads."""

from __future__ import annotations

import functools
import importlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from benchmarks.common import Report

STAGES = (
    ("plan", "tblctl.maintain.recluster", "planned"),
    ("find the cuts between tasks", "tblctl.merger.engines.engine", "find_cuts"),
    ("read and check keys", "tblctl.merger.task.order", "look_at"),
    ("sort keys", "tblctl.merger.task.merge", "order_rows"),
    ("read rows", "tblctl.merger.task.inputs", "RowStream.take"),
    ("verify", "tblctl.merger.task.verify", "Fingerprint.of"),
    ("statistics", "tblctl.tableformat.parquet.block_builder", "ParquetBlockBuilder.adding"),
    ("encode", "tblctl.tableformat.parquet.block_writer", "BlockEncoder.add"),
    ("store blocks", "tblctl.tableformat.parquet.block_builder", "ParquetBlockBuilder.finish"),
    ("commit", "tblctl.tableformat.native.port", "NativePort.replace"),
)


class _Meter:
    """Processor seconds by stage. Time in a nested stage counts only for that stage."""

    def __init__(self) -> None:
        self.cpu_seconds: dict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self._local = threading.local()

    def wrap(self, stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does `work` and counts its processor time."""

        @functools.wraps(work)
        def measured(*args: Any, **options: Any) -> Any:
            outer, self._local.inner = getattr(self._local, "inner", 0.0), 0.0
            started = time.thread_time()
            try:
                return work(*args, **options)
            finally:
                seconds = time.thread_time() - started
                with self._lock:
                    self.cpu_seconds[stage] += seconds - self._local.inner
                self._local.inner = outer + seconds

        return measured


@contextmanager
def _metered() -> Iterator[_Meter]:
    meter = _Meter()
    with ExitStack() as stack:
        for stage, module, path in STAGES:
            owner: Any = importlib.import_module(module)
            *kinds, name = path.split(".")
            for kind in kinds:
                owner = getattr(owner, kind)
            stack.enter_context(mock.patch.object(owner, name, meter.wrap(stage, getattr(owner, name))))
        yield meter


def profile(report: Report, run: Callable[[], object]) -> None:
    """Run a recluster and write where its time went.

    Raises:
        AssertionError: a stage's function does not exist under the name given here.
    """
    with _metered() as meter:
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if unseen := [stage for stage, _, _ in STAGES if stage not in meter.cpu_seconds]:
        msg = f"nothing was seen of {', '.join(unseen)}: has the code moved?"
        raise AssertionError(msg)
    report.begin("processor seconds by stage, one run in this process")
    for stage, _, _ in STAGES:
        report.figure(stage, meter.cpu_seconds[stage], "s")
    report.figure("gather, and all else", cpu - sum(meter.cpu_seconds.values()), "s")
    report.figure("together", cpu, "s")
    report.figure("wall", wall, "s")
