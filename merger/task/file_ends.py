"""Where a task's files may end, if this is decided while it writes: best where a key ends, never inside a copy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tblctl.merger.task.copying import Copy
from tblctl.tableformat.keys.order import key_changes
from tblctl.tableformat.model.cut import SLACK_SHARE

_AT_ONCE = 1 << 20
"""Keys that are compared at a time."""


class FileEnds:
    """Places in the output of a task; place p is before row p. A bit a row.

    Beside copies, no row group may become small: encoded rows between a copy and an end are none, or at least `least`.

    Args:
        keys: of all rows, in any order.
        places: the rows in key order.
        copies: the row groups that are copied, in the order of the output.
        least: the fewest rows of a row group.
    """

    def __init__(
        self, keys: pa.Table, places: npt.NDArray[np.integer], copies: Sequence[Copy], *, least: int
    ) -> None:
        self._rows = len(places)
        self._bits = np.packbits(_changes(keys, places))
        self._starts = np.array([*(copy.start for copy in copies), self._rows], np.int64)
        self._stops = np.array([0, *(copy.stop for copy in copies)], np.int64)
        self._least = least if copies else 0

    def outside_copies(self, wanted: int, after: int) -> int:
        """Return a place near another one, and after a third one, where rows may be parted."""
        wanted = min(wanted, self._rows)
        low, high = (int(item[0]) for item in self._gaps(np.array([wanted])))
        if high < low:  # inside a copy
            return high if high > after and wanted - high <= low - wanted else low
        low = max(low, after)
        inner = min(max(wanted, low + self._least), high - self._least)
        found = [place for place in (low, high) if place > after]
        found += [inner] * (low + self._least <= inner)
        return min(found, key=lambda place: abs(place - wanted))

    def nearest(self, wanted: int, *, file_rows: int, after: int) -> int:
        """Return the place nearest to one where a key ends, if there is one near by.

        Args:
            wanted: the place.
            file_rows: rows of the file that would end there. It may have 5 % more or fewer.
            after: the file must not end before or at this place.
        """
        slack = int(SLACK_SHARE * file_rows)
        low, high = max(after + 1, wanted - slack), min(self._rows, wanted + slack)
        if wanted >= self._rows or high < low:
            return self.outside_copies(wanted, after)
        first = low // 8
        bits = np.unpackbits(self._bits[first : high // 8 + 1])[low - first * 8 : high - first * 8 + 1]
        ends = np.flatnonzero(bits) + low
        begins, stops = self._gaps(ends)
        before, behind = ends - np.maximum(begins, after), stops - ends
        fits = ((before == 0) | (before >= self._least)) & ((behind == 0) | (behind >= self._least))
        ends = ends[fits]
        if not ends.size:
            return self.outside_copies(wanted, after)
        return int(ends[np.argmin(np.abs(ends - wanted))])

    def _gaps(self, places: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return where the copy before each place stops, and where the next one starts.

        For a place inside a copy, these are of that copy.
        """
        begun = np.searchsorted(self._starts, places)  # copies that start before the place
        stops = self._stops[begun]
        is_inside = stops > places
        return stops, np.where(
            is_inside, self._starts[begun - 1], self._starts[np.minimum(begun, len(self._starts) - 1)]
        )


def _changes(keys: pa.Table, places: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return for each place whether the row before it has another key; false for the first."""
    found = np.zeros(len(places) + 1, dtype=bool)
    for start in range(1, len(places), _AT_ONCE):
        stop = min(start + _AT_ONCE, len(places))
        found[start:stop] = key_changes(keys.take(pa.array(places[start - 1 : stop])))
    found[len(places)] = True
    return found
