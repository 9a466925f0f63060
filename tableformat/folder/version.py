"""The files of a folder, as they were when it was opened, behind the port."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from tblctl.tableformat.folder.layout import Layout, absent, unified
from tblctl.tableformat.folder.listing import Files
from tblctl.tableformat.folder.partitions import FolderColumn, Partitions
from tblctl.tableformat.folder.parts import Part
from tblctl.tableformat.folder.statistics import FileStatistics, FolderStatistics
from tblctl.tableformat.keys.columns import KeyColumns
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import NO_SORT, Sort, parse_terms
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.statistics import NONE, BlockStatistics
from tblctl.tableformat.once import once
from tblctl.tableformat.port import Listing

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

LOG = logging.getLogger("tblctl")


class FolderVersion:
    """`tblctl.tableformat.port.Version` of the files of a folder. Footers are read at their first use, and kept.

    Args:
        location: the folder or glob, for people.
        files: that count.
        read: returns what their footers say.
    """

    parent = None
    sort: Sort | None = None
    next_sort_id = 1
    cluster_hint = "let `tblctl suggest` rank the columns"
    is_pruned = False

    def __init__(self, location: str, files: Files, read: Callable[[], list[Part]]) -> None:
        self.location = location
        self.files = files
        self._read = read

    @property
    def table_id(self) -> str:
        """A hash of the place."""
        return sha256(self.location.encode()).hexdigest()[:32]

    @once
    def id(self) -> str:
        """A hash of the files' names, sizes and times."""
        return self.files.id

    @property
    def public_id(self) -> str:
        """The same."""
        return self.id

    @property
    def tags(self) -> Mapping[str, str]:
        """None."""
        return {}

    @property
    def sorts(self) -> Mapping[int, Sort]:
        """None: no order of rows is known."""
        return {}

    @once
    def options(self) -> TableOptions:
        """Those of a new table."""
        return TableOptions()

    @once
    def parts(self) -> list[Part]:
        """What the footers of the files say, by layout."""
        return self._read()

    @once
    def _given(self) -> tuple[FolderColumn, ...]:
        return Partitions.of(self.files, self.location).columns()

    @once
    def folder_columns(self) -> tuple[str, ...]:
        """The names of the columns that folders' names give, and files do not have."""
        own = {item.name for part in self.parts for item in part.layout.columns}
        return tuple(column.name for column in self._given if column.name not in own)

    @property
    def layouts(self) -> list[Layout]:
        """The columns of files, each layout once."""
        return [part.layout for part in self.parts]

    def own_columns(self) -> pa.Schema:
        """Return the columns that files have, each with the type that holds the values of all.

        Raises:
            SchemaMismatchError: files differ in the type of a column.
        """
        return unified(self.layouts, self.location)

    @once
    def schema(self) -> Schema:
        """The columns of all files, then those that folders' names give. A file's own column goes before the folder's.

        Raises:
            SchemaMismatchError: files differ in the type of a column, or in the keys of their folders.
        """
        layouts = self.layouts
        columns = self.own_columns()
        found = Schema.create(columns)
        for layout, names in absent(layouts, found):
            LOG.warning(
                "%s and perhaps other files of %s have no column %s: it counts as null there",
                *(layout.first, self.location, ", ".join(names)),
            )
        more = [
            pa.field(item.name, item.values.type) for item in self._given if item.name in self.folder_columns
        ]
        return Schema.create(pa.schema([*columns, *more])) if more else found

    @once
    def measured(self) -> FileStatistics:
        """The statistics of the files that have rows."""
        given = [column for column in self._given if column.name in self.folder_columns]
        return FolderStatistics(self.parts, given, self.files)

    def listing(
        self,
        sort: Sort,
        condition: BooleanExpression | None,
        *,
        clustered: bool = True,
        runs: bool = False,
        beside: Sort | None = None,
    ) -> Listing:
        """Return the files with their bounds by `sort`, from those of columns: none is in a known order."""
        del clustered, runs, beside
        files = self.measured
        found = KeyColumns.of(key_maker(sort).bounds(files, self.schema), sort)
        matched = None
        if condition is not None:
            from tblctl.tableformat.predicate.match import match

            matched = np.asarray(match(condition, files, self.schema).outcome != NONE)
        return Listing(
            paths=files.names,
            sort_id=np.full(len(files.names), NO_SORT, np.int64),
            stored_rows=files.row_count,
            size_bytes=files.size_bytes,
            decoded_bytes=files.decoded_bytes,
            matched=matched,
            **vars(found),
        )

    def sort_by(self, terms: str, *, reads_rows: bool = True) -> Sort:
        """Return a sort by some terms."""
        del reads_rows
        return Sort(id=self.next_sort_id, terms=parse_terms(terms, self.schema))

    def may_add(self, sort: Sort) -> bool:
        """Return false: a folder is only read."""
        del sort
        return False

    def deletions(self) -> None:
        """Return None: plain files have no deletes."""

    def pruned(self, condition: BooleanExpression | None) -> Self:
        """Return the same version: all footers are read at once."""
        del condition
        return self

    def statistics(self, leaves: Sequence[Leaf]) -> BlockStatistics:
        """Return the statistics of all columns."""
        del leaves
        return self.measured

    def blocks(self, paths: Sequence[str]) -> dict[str, Block]:
        """Return none: no merge takes these files."""
        del paths
        return {}

    def is_ordered(self, block: Block, sort: Sort) -> bool:
        """Return false: nothing is known of the order of rows."""
        del block, sort
        return False
