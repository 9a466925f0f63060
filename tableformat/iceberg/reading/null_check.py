"""Compare the nulls that are read of a file, deleted rows among them, with those that its footer or manifest counts.

A footer counts the nulls of each row group, so each read is compared with it. Where a footer counts none of a column,
the manifest's count, which is of the whole file, is compared with all rows of that column: they are read once more,
by each process once, since many tasks may read a file, and files never change.
Where neither counts, nothing is known, and the column is what was found by its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.errors import CorruptTableError
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.once import once
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.projection import Projection

_BATCH_ROWS = 65_536

_MOST_AGREED = 100_000
_AGREED: set[tuple[str | None, int, tuple[tuple[int, int], ...]]] = set()
"""Files whose nulls this process found to be as stated: path, size, and the place and nulls of each column."""

Counts = Mapping[str, tuple[int, int]]
"""Nulls of columns by name: those of the column itself, and with those of the structs around it."""


class NullCheck:
    """The nulls of one file's columns.

    Args:
        file: the open file.
        schema: the columns to read.
        stated: how many nulls the manifest counts, by id.
        constants: the columns that are not read, by name.
    """

    def __init__(
        self, file: BlockFile, schema: Schema, stated: Mapping[int, int], constants: frozenset[str]
    ) -> None:
        self._file = file
        self._schema = schema
        self._stated = stated
        self._leaves = tuple(
            leaf
            for leaf in schema.leaves
            if leaf.path[0] not in constants
            and leaf.id in file.leaf_ids
            and not pa.types.is_nested(leaf.type)
        )

    def of(self, rows: pa.Table) -> Counts:
        """Return the nulls in rows that were read."""
        names = set(rows.column_names)
        return {leaf.name: _nulls(rows, leaf) for leaf in self._leaves if leaf.path[0] in names}

    def compare_rows(self, rows: pa.Table, groups: Sequence[int], projection: Projection) -> None:
        """Compare the nulls in all rows of some row groups; one by one if the footer counts those of some alone.

        Raises:
            CorruptTableError: they differ.
        """
        if not self._is_counted_in_part(groups, projection):
            self.compare(self.of(rows), groups, projection)
            return
        start = 0
        for group in groups:
            stop = start + self._file.metadata.row_group(group).num_rows
            self.compare(self.of(rows.slice(start, stop - start)), [group], projection)
            start = stop

    def _is_counted_in_part(self, groups: Sequence[int], projection: Projection) -> bool:
        """Return whether the footer counts the nulls of a column in some of the row groups, and not in all."""
        names = set(projection.schema.names)
        return len(groups) > 1 and any(
            self._file.stored_nulls(groups, leaf) is None
            and any(self._file.stored_nulls([group], leaf) is not None for group in groups)
            for leaf in self._leaves
            if leaf.path[0] in names
        )

    def compare(self, found: Counts, groups: Sequence[int], projection: Projection) -> None:
        """Compare the nulls of whole row groups with those that the footer counts.

        How nulls inside structs are counted differs among writers: with those of the struct, or without.

        Raises:
            CorruptTableError: they differ.
        """
        names = set(projection.schema.names)
        for leaf in self._leaves:
            expected = self._file.stored_nulls(groups, leaf) if leaf.path[0] in names else None
            if expected is None:
                continue
            least, most = found.get(leaf.name, (0, 0))
            if not least <= expected <= most:
                raise self._differs(leaf, most, f"footer counts {expected}")

    def require_stated(self) -> None:
        """Read the columns whose nulls only the manifest counts, and compare them with it; in a process once.

        Raises:
            CorruptTableError: they differ.
        """
        leaves = self._uncounted
        stated = tuple((self._file.place(leaf), self._stated[leaf.id]) for leaf in leaves)
        address = self._file.address
        file = (address.uri, address.size_bytes, stated)
        if not leaves or file in _AGREED:
            return
        self._require_stated(leaves)
        if len(_AGREED) >= _MOST_AGREED:
            _AGREED.clear()
        _AGREED.add(file)

    def _require_stated(self, leaves: Sequence[Leaf]) -> None:
        projection = self._file.projection(self._schema, [leaf.name for leaf in leaves])
        found = dict.fromkeys((leaf.name for leaf in leaves), 0)
        for group in range(self._file.metadata.num_row_groups):
            for rows in self._file.batches(group, projection, _BATCH_ROWS):
                for name in found:
                    found[name] += rows.column(name).null_count
        for leaf in leaves:
            if found[leaf.name] != self._stated[leaf.id]:
                raise self._differs(leaf, found[leaf.name], f"manifest counts {self._stated[leaf.id]}")

    @once
    def _uncounted(self) -> tuple[Leaf, ...]:
        """The columns outside of structs whose nulls the manifest counts and the footer does not."""
        every = range(self._file.metadata.num_row_groups)
        return tuple(
            leaf
            for leaf in self._leaves
            if len(leaf.path) == 1
            and leaf.id in self._stated
            and self._file.stored_nulls(every, leaf) is None
        )

    def _differs(self, leaf: Leaf, found: int, stated: str) -> CorruptTableError:
        path = self._file.address.name
        msg = (
            f"{path}: {found} nulls were read of column {leaf.name!r}, and its {stated}; nothing was changed"
        )
        return CorruptTableError(msg, name=path)


def added(one: Counts, other: Counts) -> Counts:
    """Return the nulls of two pieces of the same rows' columns."""
    names = {**one, **other}
    return {
        name: (
            one.get(name, (0, 0))[0] + other.get(name, (0, 0))[0],
            one.get(name, (0, 0))[1] + other.get(name, (0, 0))[1],
        )
        for name in names
    }


def _nulls(rows: pa.Table, leaf: Leaf) -> tuple[int, int]:
    column = rows.column(leaf.path[0])
    around = 0
    for name in leaf.path[1:]:
        around = column.null_count
        column = pc.struct_field(column, [name])
    return column.null_count - around, column.null_count
