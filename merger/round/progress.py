"""Progress events of a round: how many groups are merged, and how many rows."""

from __future__ import annotations

from tblctl.tableformat.progress import Progress


class RoundProgress:
    """Counts what is done and reports it.

    Args:
        progress: called with (done, total, unit); the unit is rows or groups. None for no reports.
        groups, rows: the totals.
    """

    def __init__(self, progress: Progress | None, *, groups: int, rows: int) -> None:
        self._progress = progress
        self._total_groups, self._total_rows = groups, rows
        self._groups = 0
        self._task_rows = 0
        self._streamed_rows = 0

    def group_ended(self) -> None:
        """Count a group that is merged, or failed."""
        self._groups += 1
        if self._progress:
            self._progress(self._groups, self._total_groups, "groups")

    def leave_out(self, rows: int) -> None:
        """Take rows off the total: deleted ones, since deletes are read only now, or those that will not be merged."""
        self._total_rows -= rows

    def group_left_out(self, rows: int) -> None:
        """Count a group of so many rows that is not merged."""
        self.leave_out(rows)
        self.group_ended()
        if rows and self._total_rows:
            self._report_rows()

    def task_ended(self, rows: int) -> None:
        """Count the rows of a task that ended; 0 if it failed."""
        self._task_rows += rows
        self._report_rows()

    def rows_merged(self, rows: int) -> None:
        """Count rows that were merged within a task; engines that cannot see into a task never call this."""
        self._streamed_rows += rows
        self._report_rows()

    def _report_rows(self) -> None:
        done = max(self._task_rows, self._streamed_rows)
        if self._progress:  # rows that were merged in vain are off the total
            self._progress(min(done, self._total_rows), self._total_rows, "rows")
