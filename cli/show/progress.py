"""A progress bar on stderr: only on a terminal, and only for work that takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tblctl.cli.show import render

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from tblctl import Progress as Report

QUIET_SECONDS = 0.5  # starting rich costs about 0.1 s, too much for short work


class Bar:
    """Takes `(done, total, unit)` and draws a line for each unit once `QUIET_SECONDS` have passed."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.started_seconds = time.monotonic()
        self.drawing: Progress | None = None
        self.lines: dict[str, TaskID] = {}

    def __call__(self, done: int, total: int | None, unit: str) -> None:
        if self.drawing is None:
            if time.monotonic() - self.started_seconds < QUIET_SECONDS:
                return
            self.drawing = new_drawing()
            self.drawing.start()
        if unit not in self.lines:
            self.lines[unit] = self.drawing.add_task(self.title, total=None, unit=unit)
        self.drawing.update(self.lines[unit], completed=done, total=total)

    def close(self) -> None:
        """Remove the bar. The command's last line repeats its figures."""
        if self.drawing is not None:
            self.drawing.stop()


def new_drawing() -> Progress:
    """Return rich's bar with counts, speed and time left, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class Counts(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(count_text(int(task.completed), task.total, task.fields["unit"]))

    columns = (TextColumn("{task.description}"), BarColumn(), Counts(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def count_text(done: int, total: float | None, unit: str) -> str:
    """Return `3,000 of 4,000 rows`, `1.5 MiB of 2.0 GiB`."""
    if unit == "bytes":
        return render.size(done) + (f" of {render.size(int(total))}" if total is not None else "")
    return f"{done:,}" + (f" of {int(total):,}" if total is not None else "") + f" {unit}"


@contextmanager
def progress(title: str) -> Iterator[Report | None]:
    """Yield a callable to report to, or None if stderr is not a terminal. The library then counts nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    bar = Bar(title)
    try:
        yield bar
    finally:
        bar.close()
