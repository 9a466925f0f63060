"""An engine that plays what Spark does to tasks: some attempts are abandoned, and the task runs once more."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable
from typing import Any

from tblctl.merger.cutting.cuts import Cuts, CutTask
from tblctl.merger.engines.engine import Advance, Done, Wanted, always
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.presort.decide import THRESHOLDS
from tblctl.merger.task.spec import MergeTask, TaskFailure, TaskResult
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.port import BlockIO

_TINY = dataclasses.replace(THRESHOLDS, many_blocks=3)
"""Groups of more than three blocks are presorted: a history's tables are small."""


class PlayedEngine:
    """The local engine; `run_twice` says for each task whether an abandoned attempt comes first.

    The blocks of an abandoned attempt stay: nobody knows of them. Its outcome is counted by nobody.
    """

    name = "local"
    parallelism = 2
    thresholds = _TINY

    def __init__(self, run_twice: Callable[[], bool]) -> None:
        self._run_twice = run_twice
        self._local = LocalEngine(thresholds=_TINY, processors=lambda: 2)

    def cut(
        self, io: BlockIO, groups: Iterable[CutTask], *, title: str, groups_ahead: int
    ) -> Generator[Cuts | TblctlError, None, None]:
        """See `Engine.cut`."""
        return self._local.cut(io, groups, title=title, groups_ahead=groups_ahead)

    def run(
        self,
        io: BlockIO,
        tasks: Iterable[MergeTask],
        done: Done,
        *,
        title: str,
        advance: Advance | None = None,
        wanted: Wanted = always,
    ) -> None:
        """See `Engine.run`."""

        def with_attempts() -> Any:
            for task in tasks:
                if self._run_twice():
                    self._local.run(io, [task], lambda outcome: self.abandoned(outcome, done), title=title)
                yield task

        self._local.run(io, with_attempts(), done, title=title, advance=advance, wanted=wanted)

    def abandoned(self, outcome: TaskResult | TaskFailure, done: Done) -> None:
        """Take the outcome of an attempt that was abandoned: it is not reported."""
