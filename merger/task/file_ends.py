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

    Args:
        keys: of all rows, in any order.
        places: the rows in key order.
        copies: the row groups that are copied, in the order of the output.
    """

    def __init__(self, keys: pa.Table, places: npt.NDArray[np.integer], copies: Sequence[Copy]) -> None:
        self._rows = len(places)
        self._bits = np.packbits(_changes(keys, places))
        self._starts = np.array([copy.start for copy in copies], np.int64)
        self._stops = np.array([copy.stop for copy in copies], np.int64)

    def outside_copies(self, wanted: int, after: int) -> int:
        """Return the nearest place to one that is not inside a copy, and after another."""
        found = int(np.searchsorted(self._starts, wanted)) - 1
        if found < 0 or wanted >= self._stops[found]:
            return wanted
        start, stop = int(self._starts[found]), int(self._stops[found])
        return start if start > after and wanted - start <= stop - wanted else stop

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
            return min(wanted, self._rows)
        first = low // 8
        bits = np.unpackbits(self._bits[first : high // 8 + 1])[low - first * 8 : high - first * 8 + 1]
        ends = np.flatnonzero(bits) + low
        copies = np.searchsorted(self._starts, ends) - 1
        inside = (copies >= 0) & (ends < np.append(self._stops, 0)[copies])
        ends = ends[~inside]
        if not ends.size:
            return self.outside_copies(wanted, after)
        return int(ends[np.argmin(np.abs(ends - wanted))])


def _changes(keys: pa.Table, places: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return for each place whether the row before it has another key; false for the first."""
    found = np.zeros(len(places) + 1, dtype=bool)
    for start in range(1, len(places), _AT_ONCE):
        stop = min(start + _AT_ONCE, len(places))
        found[start:stop] = key_changes(keys.take(pa.array(places[start - 1 : stop])))
    found[len(places)] = True
    return found
