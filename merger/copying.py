"""Decide which row groups a task copies undecoded.

Pure. A row group can be copied if its rows follow each other in the output, within one block. Copying is about ten
times faster than decoding and encoding, but leaves row groups as they are; so that repeated merges do not leave ever
smaller ones, a row group is copied only if it has at least half of `row_group_rows` rows, and if so many, or none, are
encoded before it and after it. Then no merged block has a smaller row group, unless it is smaller itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tblctl.merger.inputs import Part, Piece


@dataclass(frozen=True, kw_only=True)
class Copy:
    """Row groups of one part that follow each other in the part and in the output.

    Attributes:
        part: its number.
        groups: the row groups.
        start, stop: where their rows are in the task's output.
    """

    part: int
    groups: tuple[int, ...]
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many it copies."""
        return self.stop - self.start


def plan_copies(
    order: np.ndarray, parts: Sequence[Part], cuts: Sequence[int], *, group_rows: int, most_bytes: int
) -> tuple[Copy, ...]:
    """Return what is copied, in the order of the output. O(rows), 2 bytes a row for a moment.

    Args:
        order: the places of all rows, counted through the parts, in key order.
        parts: what is merged.
        cuts: rows of each block to write.
        group_rows: the most rows of a row group to write.
        most_bytes: the most bytes of a row group that is copied: it is in memory as a whole.
    """
    least = (group_rows + 1) // 2
    found = [
        (first, piece, number)
        for first, piece, number in _pieces(parts)
        if piece.is_copyable and least <= piece.rows <= group_rows and piece.stored_bytes <= most_bytes
    ]
    if not found:
        return ()
    firsts = np.array([first for first, _, _ in found])
    rows = np.array([piece.rows for _, piece, _ in found])
    starts = _positions(order, firsts)
    # The rows of a part are in order: where the last one is as far from the first as in the part, nothing is between.
    lasts = np.minimum(starts + rows, len(order)) - 1
    ends = np.cumsum(cuts)
    fits = order[lasts] == firsts + rows - 1
    fits &= np.searchsorted(ends, starts, side="right") == np.searchsorted(ends, lasts, side="right")
    copies = [
        Copy(part=found[place][2], groups=(found[place][1].group,), start=start, stop=start + found[place][1].rows)
        for place in np.flatnonzero(fits).tolist()
        for start in (int(starts[place]),)
    ]
    copies.sort(key=lambda copy: copy.start)
    return tuple(_joined(_without_slivers(copies, cuts, least)))


def _pieces(parts: Sequence[Part]) -> Iterator[tuple[int, Piece, int]]:
    """Yield the pieces of all parts, each with the place of its first row, and its part's number."""
    first = 0
    for number, part in enumerate(parts):
        for piece in part.pieces:
            yield first, piece, number
            first += piece.rows


def _positions(order: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return where in `order` some places are, given ascending."""
    wanted = np.zeros(len(order), dtype=bool)
    wanted[places] = True
    found = np.flatnonzero(wanted[order])
    return found[np.argsort(order[found])]


def _without_slivers(copies: Sequence[Copy], cuts: Sequence[int], least: int) -> Iterator[Copy]:
    """Yield the copies between which, in each block, no rows or at least `least` are left."""
    stop = 0
    waiting = list(reversed(copies))
    for count in cuts:
        start, stop = stop, stop + count
        kept: list[Copy] = []
        while waiting and waiting[-1].stop <= stop:
            copy = waiting.pop()
            if 0 < copy.start - (kept[-1].stop if kept else start) < least:
                if not kept or kept[-1].rows > copy.rows:
                    continue
                kept.pop()
            kept.append(copy)
        if kept and 0 < stop - kept[-1].stop < least:
            kept.pop()
        yield from kept


def _joined(copies: Iterator[Copy]) -> Iterator[Copy]:
    """Yield copies that follow each other in their part and in the output as one."""
    last: Copy | None = None
    for copy in copies:
        if last is None:
            last = copy
        elif (copy.part, copy.groups[0], copy.start) == (last.part, last.groups[-1] + 1, last.stop):
            last = Copy(part=last.part, groups=last.groups + copy.groups, start=last.start, stop=copy.stop)
        else:
            yield last
            last = copy
    if last is not None:
        yield last


def between(copies: Sequence[Copy], start: int, stop: int) -> Iterator[Copy | range]:
    """Yield what of the output from `start` to `stop` is copied, and the stretches that are not, in order."""
    for copy in copies:
        if start <= copy.start < stop:
            if start < copy.start:
                yield range(start, copy.start)
            yield copy
            start = copy.stop
    if start < stop:
        yield range(start, stop)
