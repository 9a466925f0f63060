"""Where each record of a block begins. Avro does not say; one finds out by passing over the record before.

Passing over records one by one takes longer than all other decoding. But the first texts of records often begin alike:
they are paths in one folder. All places of these bytes are found at once. Before each come the numbers that a record
has before its first text, and before these is where it may begin. `columns.py` verifies that: each record must end
where the next one begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tblctl.tableformat.iceberg.avro.chunk import Chunk, Cursor, Integers
from tblctl.tableformat.iceberg.avro.container import AvroError, read_long
from tblctl.tableformat.iceberg.avro.skippers import skipper
from tblctl.tableformat.iceberg.avro.types import NUMBERS, TEXTS, type_name

_ANCHOR_BYTES = 16
_LEAST_ANCHOR = 4
"""Bytes. A shorter text recurs by chance."""

_LEARNED = 8
"""Records whose texts are compared. Folders may be spread by a hash: two alone may share more than all do."""

ReaderOf = Callable[[Any, dict[str, Any]], Callable[[Cursor], Any]]


class Boundaries:
    """Finds the records of one schema."""

    def __init__(self, schema: Any, reader_of: ReaderOf) -> None:
        names: dict[str, Any] = {}
        self._skip = skipper(schema, names)
        before, found = _before_text(schema, names)
        prefix = {
            "type": "record",
            "fields": [{"name": str(i), "type": kind} for i, kind in enumerate(before)],
        }
        self._has_text = found is True
        self._skip_prefix = skipper(prefix, names)
        self._pass_prefix = reader_of(prefix, names)
        self._numbers = sorted(_number_counts(prefix, names) or (), reverse=True)

    def likely(
        self, chunk: Chunk, begins: Integers, ends: Integers, counts: Integers
    ) -> tuple[Integers, Integers]:
        """Return the likely starts of records, ascending, and the block of each.

        Blocks in which not as many records were found as they have are left out.

        Args:
            chunk: the blocks.
            begins: where each begins.
            ends: where each ends.
            counts: how many records each has, at least one.
        """
        single = np.flatnonzero(counts == 1)
        several = np.flatnonzero(counts > 1)
        if not len(several) or not self._has_text:
            return begins[single], single
        first = several[0]
        at = self._search(chunk, begins, self._anchor(chunk.bytes, int(begins[first]), int(counts[first])))
        block = np.searchsorted(ends, at, side="right")
        held = np.bincount(block, minlength=len(ends))
        nearest = np.append(at, -1)[np.searchsorted(at, begins)]
        fits = (counts > 1) & (held == counts) & (nearest == begins)
        at, block = at[fits[block]], block[fits[block]]
        if len(single):
            at, block = np.append(at, begins[single]), np.append(block, single)
            order = np.argsort(at)
            return at[order], block[order]
        return at, block

    def certain(self, data: bytes, count: int) -> list[int]:
        """Return the starts of the records of a block, found by passing over each.

        Raises:
            AvroError: the records do not end where the block does.
        """
        found = []
        at = 0
        try:
            for _ in range(count):
                found.append(at)
                at = self._skip(data, at)
        except IndexError as error:
            raise AvroError("a record runs over the end of its block") from error
        if at != len(data):
            raise AvroError(f"the records of a block take {at} bytes, but it has {len(data)}")
        return found

    def _search(self, chunk: Chunk, begins: Integers, anchor: bytes) -> Integers:
        """Return places where a record may begin, ascending: those whose first text begins with `anchor`."""
        if len(anchor) < _LEAST_ANCHOR:
            return np.zeros(0, np.int64)
        anchors = np.array([found.start() for found in re.finditer(re.escape(anchor), chunk.bytes)], np.int64)
        found = []
        for count in self._numbers:
            rank = chunk.rank(anchors) - count - 1  # one more: the length of the text
            at = np.where(rank > 0, chunk.number_at(rank), 0)
            at = np.maximum(at, begins[np.searchsorted(begins, anchors, side="right") - 1])
            cursor = Cursor(chunk, at.copy(), anchors)
            self._pass_prefix(cursor)
            cursor.skip_numbers(1)
            fits = (cursor.at == anchors) & ~cursor.bad
            found.append(at[fits])
            anchors = anchors[~fits]
            if not len(anchors):
                break
        return np.unique(np.concatenate(found))

    def _anchor(self, data: bytes, at: int, count: int) -> bytes:
        """Return what the first texts of the first of `count` records begin with."""
        texts = []
        try:
            for _ in range(min(count, _LEARNED)):
                texts.append(self._text(data, at))
                at = self._skip(data, at)
        except (IndexError, AvroError):
            return b""
        least, most = min(texts), max(texts)
        same = 0
        while same < min(len(least), len(most)) and least[same] == most[same]:
            same += 1
        return least[:same]

    def _text(self, data: bytes, at: int) -> bytes:
        length, at = read_long(data, self._skip_prefix(data, at))
        return data[at : at + min(max(length, 0), _ANCHOR_BYTES)]


def _before_text(schema: Any, names: dict[str, Any]) -> tuple[list[Any], bool | None]:
    """Return the types before the first text, and whether there is one: False if another type is in the way."""
    kind, full = type_name(schema, names)
    if kind == "record":
        found: list[Any] = []
        for field in full["fields"]:
            inner, ended = _before_text(field["type"], names)
            found += inner
            if ended is not None:
                return found, ended
        return found, None
    if kind in TEXTS:
        return [], True
    return ([], False) if _number_counts(schema, names) is None else ([schema], None)


def _number_counts(schema: Any, names: dict[str, Any]) -> set[int] | None:
    """Return how many numbers a value may consist of; None if it is not made of numbers."""
    kind, full = type_name(schema, names)
    if kind in NUMBERS or kind == "boolean":
        return {1}
    if kind == "null":
        return {0}
    if kind == "union":
        branches = [_number_counts(branch, names) for branch in full]
        return None if None in branches else {1 + count for held in branches for count in held or ()}
    if kind != "record":
        return None
    counts = {0}
    for field in full["fields"]:
        inner = _number_counts(field["type"], names)
        if inner is None:
            return None
        counts = {count + more for count in counts for more in inner}
    return counts
