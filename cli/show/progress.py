"""A progress bar on stderr: only on a terminal, and only for work that takes a while."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tblctl.cli.arguments.common import is_quiet
from tblctl.cli.show import page, render

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from tblctl import Progress as Report

QUIET_SECONDS = 0.5  # starting rich costs about 0.1 s, too much for short work
ANNOUNCED_AFTER_SECONDS = 0.2  # a word without rich: somebody waits, and nothing has been counted yet
CLEAR_LINE = "\r\x1b[K"


class Bar:
    """Takes `(done, total, unit)` and draws a line for each unit once `QUIET_SECONDS` have passed.

    Until then a line says what is done, once `ANNOUNCED_AFTER_SECONDS` have passed; `first` is what is done before
    anything can be counted.
    """

    def __init__(self, title: str, first: str) -> None:
        self.title = title
        self.started_seconds = time.monotonic()
        self.drawing: Progress | None = None
        self.lines: dict[str, TaskID] = {}
        self.announced = False
        self.lock = threading.Lock()
        self.timer = threading.Timer(ANNOUNCED_AFTER_SECONDS, self._announce, (f"{first} ...",))
        self.timer.daemon = True
        self.timer.start()

    def __call__(self, done: int, total: int | None, unit: str) -> None:
        if self.drawing is None:
            if time.monotonic() - self.started_seconds < QUIET_SECONDS:
                return
            self._end_announcement()
            self.drawing = new_drawing()
            self.drawing.start()
        if unit not in self.lines:
            self.lines[unit] = self.drawing.add_task(self.title, total=None, unit=unit)
        self.drawing.update(self.lines[unit], completed=done, total=total)

    def close(self) -> None:
        """Remove the bar. The command's last line repeats its figures."""
        self._end_announcement()
        if self.drawing is not None:
            self.drawing.stop()

    def _announce(self, text: str) -> None:
        with self.lock, contextlib.suppress(OSError, ValueError):
            if not self.timer.finished.is_set():
                self.announced = True
                sys.stderr.write(text)
                sys.stderr.flush()

    def _end_announcement(self) -> None:
        self.timer.cancel()
        with self.lock, contextlib.suppress(OSError, ValueError):
            if self.announced:
                self.announced = False
                sys.stderr.write(CLEAR_LINE)
                sys.stderr.flush()


def new_drawing() -> Progress:
    """Return rich's bar with counts, speed and time left, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class Counts(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(count_text(int(task.completed), task.total, task.fields["unit"]))

    columns = (TextColumn("{task.description}"), BarColumn(), Counts(), TimeElapsedColumn())
    console = Console(stderr=True, no_color=True if page.color_asked() is False else None)
    return Progress(*columns, console=console, transient=True)


def count_text(done: int, total: float | None, unit: str) -> str:
    """Return `3,000 of 4,000 rows`, `1.5 MiB of 2.0 GiB`."""
    if unit == "bytes":
        return render.size(done) + (f" of {render.size(int(total))}" if total is not None else "")
    return f"{done:,}" + (f" of {int(total):,}" if total is not None else "") + f" {unit}"


@contextmanager
def progress(title: str, *, first: str = "") -> Iterator[Report | None]:
    """Yield a callable to report to, or None if nobody watches: the library then counts nothing.

    Somebody watches if standard error is a terminal, unless --quiet is given.

    Args:
        title: what is done, such as `appending`.
        first: what is done before anything is counted; the title if empty.
    """
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    bar = Bar(title, first or title)
    try:
        yield bar
    finally:
        bar.close()
