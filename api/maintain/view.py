"""A version of a table as input of metrics and policies: arrays of numbers, one entry for each block."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.merger.round.planned_blocks import refuse_other_figures
from tblctl.metrics.information import ClusteringInfo, RankedBlocks, clustering_info
from tblctl.metrics.intervals import Integers, Mask, known_mean, overlaps_and_depths
from tblctl.metrics.partitions import MATCHING, TABLE, ranks_by_partition
from tblctl.metrics.worst import DeepRange, deepest_hills
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.keys.order import key_ranks
from tblctl.tableformat.model.block import CONSTANT_LEVEL
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.runs import NO_RUN, run_number
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.values import python_value, value_for_people
from tblctl.tableformat.port import Listing, Version

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from tblctl.selector.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Averages:
    """Average depth and overlaps of all blocks, as in `ClusteringInfo`; None if unknown.

    `figures_of` says which blocks these are: `TABLE` or `MATCHING`.
    """

    depth: float | None
    overlaps: float | None
    figures_of: str = TABLE


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """Blocks with their bounds by `sort`.

    Attributes:
        schema: the schema that `sort` refers to.
        sort: one of the table's, or one defined for measuring only.
        listing: the blocks.
        clustered: whether blocks that are not in the order of `sort` count as unclustered; if false, none does.
        figures_of: which blocks these are: `TABLE` or `MATCHING`.
    """

    schema: Schema
    sort: Sort
    listing: Listing
    clustered: bool = True
    figures_of: str = TABLE

    @classmethod
    def of(
        cls,
        version: Version,
        sort: Sort,
        condition: BooleanExpression | None = None,
        *,
        clustered: bool = True,
        runs: bool = False,
        beside: Sort | None = None,
    ) -> View:
        """Return all blocks of a version, pruned or not. Those that may satisfy `condition` are `listing.matched`.

        Policies need their `runs`, and the blocks in the order `beside` that of the key; figures do not.
        """
        return cls(
            schema=version.schema,
            sort=sort,
            listing=version.listing(sort, condition, clustered=clustered, runs=runs, beside=beside),
            clustered=clustered,
            figures_of=MATCHING if version.is_pruned else TABLE,
        )

    @cached_property
    def key_ranks(self) -> tuple[Integers, Integers]:
        """The places of the bounds in key order, over all partitions."""
        return key_ranks(self.listing.low, self.listing.high, self.sort)

    @cached_property
    def blocks(self) -> RankedBlocks:
        """The blocks as they are measured: by partition, then by key, so that partitions share no rank."""
        listing = self.listing
        low, high = ranks_by_partition(*self.key_ranks, listing.partition)
        measured = listing.own if listing.measured is None else listing.measured
        unclustered = ~measured if self.clustered else np.zeros(len(low), dtype=bool)
        # If bounds were truncated, the level still shows that a block is constant.
        marked = (listing.level == CONSTANT_LEVEL) & self.clustered
        return RankedBlocks(
            low=low,
            high=high,
            level=listing.level,
            row_count=listing.stored_rows,
            size_bytes=listing.size_bytes,
            constant=(((low == high) & listing.exact) | marked) & ~unclustered,
            unclustered=unclustered,
            unknown=~listing.known,
        )

    def info(self, worst: int = 0) -> ClusteringInfo:
        """Return the figures of the blocks that may match the condition, with at most `worst` deepest ranges."""
        terms = list(key_maker(self.sort).texts(self.schema))
        matched = self.listing.matched
        found = clustering_info(terms, self.blocks if matched is None else self.blocks.pick(matched))
        inexact = np.count_nonzero(self.is_inexact if matched is None else self.is_inexact & matched)
        return replace(found, inexact_block_count=int(inexact), worst=self._worst(worst) if worst else ())

    def info_of_clustered(self) -> ClusteringInfo:
        """Return the figures of the blocks in the order of the sort alone, as far as they may match the condition."""
        chosen, matched = ~self.blocks.unclustered, self.listing.matched
        terms = list(key_maker(self.sort).texts(self.schema))
        return clustering_info(terms, self.blocks.pick(chosen if matched is None else chosen & matched))

    def _worst(self, limit: int) -> tuple[DeepRange, ...]:
        """Return the deepest ranges of the blocks that may match the condition."""
        blocks, matched = self.blocks, self.listing.matched
        measured = ~(blocks.unclustered | blocks.unknown)
        numbers = np.flatnonzero(measured if matched is None else measured & matched)
        low, high = blocks.low[numbers], blocks.high[numbers]
        return tuple(
            DeepRange(
                min=self._key(numbers, low, high, hill.low),
                max=self._key(numbers, low, high, hill.high),
                depth=hill.depth,
                blocks=int(np.count_nonzero(hill.blocks)),
                rows=int(blocks.row_count[numbers][hill.blocks].sum()),
                bytes=int(blocks.size_bytes[numbers][hill.blocks].sum()),
                partition=self._partition(numbers[hill.blocks]),
            )
            for hill in deepest_hills(low, high, limit)
        )

    def _partition(self, numbers: Integers) -> str | None:
        """Return the partition of blocks that all share one; None in a table without partitions."""
        listing = self.listing
        return listing.partitions[int(listing.partition[numbers[0]])] if any(listing.partitions) else None

    def _key(self, numbers: Integers, low: Integers, high: Integers, rank: int) -> tuple[Any, ...]:
        """Return the key of a rank at which one of the blocks `numbers` begins or ends, as people read it."""
        begins = np.flatnonzero(low == rank)
        side, at = (self.listing.low, begins) if begins.size else (self.listing.high, high == rank)
        row = int(numbers[at][0])
        return tuple(value_for_people(python_value(column[row])) for column in side.columns)

    @cached_property
    def is_measured(self) -> np.ndarray:
        """Which blocks have known bounds and are in order: averages count these."""
        return ~(self.blocks.unclustered | self.blocks.unknown)

    @cached_property
    def is_inexact(self) -> np.ndarray:
        """Which measured blocks have bounds that may be wider than their keys."""
        listing = self.listing
        inexact = ~listing.exact if listing.inexact is None else listing.inexact
        found: np.ndarray = inexact & self.is_measured
        return found

    @cached_property
    def averages(self) -> Averages:
        """The average figures of all blocks, regardless of the condition."""
        low, high = self.blocks.low[self.is_measured], self.blocks.high[self.is_measured]
        overlap, depth = overlaps_and_depths(low, high)
        return Averages(
            depth=known_mean(int(depth.sum()), depth.size, self.is_measured.size),
            overlaps=known_mean(int(overlap.sum()), overlap.size, self.is_measured.size),
            figures_of=self.figures_of,
        )

    def named(self, paths: Collection[str]) -> Mask:
        """Return which of the blocks are among `paths`."""
        if not len(self.listing.paths):
            return np.zeros(0, dtype=bool)  # the column has no type
        found: Mask = pc.is_in(self.listing.paths, pa.array(list(paths), self.listing.paths.type)).to_numpy(
            zero_copy_only=False
        )
        return found

    def replaced(self, removed: frozenset[str], added: Sequence[BlockRecord]) -> View:
        """Return all blocks as they are once `added` take the place of `removed`."""
        listing = self.listing
        kept = np.flatnonzero(~self.named(removed))
        fresh = listed(added, listing, self.sort)
        columns = {
            name: np.concatenate((getattr(listing, name)[kept], getattr(fresh, name)))
            for name in (
                *("own", "sort_id", "known", "exact", "level"),
                *("stored_rows", "size_bytes", "decoded_bytes", "same_key_rows", "partition"),
            )
        }
        tables = {
            name: pa.concat_tables([getattr(listing, name).take(kept), getattr(fresh, name)])
            for name in ("low", "high")
        }
        paths = pa.concat_arrays([listing.paths.take(kept), fresh.paths])
        partitions = listing.partitions
        measured = None
        if listing.measured is not None and fresh.measured is not None:
            measured = np.concatenate((listing.measured[kept], fresh.measured))
        run = None
        if listing.run is not None and fresh.run is not None:
            run = np.concatenate((listing.run[kept], fresh.run))
        truncated = None
        if listing.truncated_run is not None or fresh.truncated_run is not None:
            truncated = np.concatenate((_truncated_runs(listing)[kept], _truncated_runs(fresh)))
        joined = Listing(
            paths=paths,
            matched=None,
            measured=measured,
            partitions=partitions,
            run=run,
            truncated_run=truncated,
            **columns,
            **tables,
        )
        return replace(self, listing=joined)


def require_listed(plan: Plan, view: View) -> None:
    """Refuse a plan that says other things of its groups than a view of the whole table does. O(n) for n blocks.

    Nothing is said of groups of which blocks have left the table.

    Raises:
        InvalidDataError: it does: it was edited.
    """
    listing = view.listing
    if not len(listing.paths):
        return  # the column has no type
    paths = pa.array([path for group in plan.groups for path in group.blocks], listing.paths.type)
    places = pc.index_in(paths, listing.paths).fill_null(-1).to_numpy(zero_copy_only=False)
    figures = {
        "rows": listing.stored_rows,
        "size_bytes": listing.size_bytes,
        "decoded_bytes": listing.decoded_bytes,
    }
    start = 0
    for group in plan.groups:
        chosen = places[start : start + len(group.blocks)]
        start += len(group.blocks)
        if (chosen >= 0).all():
            sums = {name: int(column[chosen].sum()) for name, column in figures.items()}
            partitions = {listing.partitions[place] for place in set(listing.partition[chosen].tolist())}
            refuse_other_figures(group, sums, partitions)


def _truncated_runs(listing: Listing) -> np.ndarray:
    return np.full(len(listing.own), NO_RUN) if listing.truncated_run is None else listing.truncated_run


def listed(records: Sequence[BlockRecord], like: Listing, sort: Sort) -> Listing:
    """Return blocks that were just written into partitions of `like`, a listing by `sort`, in its types.

    A block in the order of another sort is not clustered, and nothing is said of its keys by `sort`: they would have to
    be guessed from statistics of columns, and no average counts them.
    """
    mine = sort.id if sort.is_order else None
    own = np.array([record.cluster_key_id == mine for record in records], dtype=bool)
    keyed = own & sort.is_order
    codes = {name: code for code, name in enumerate(like.partitions)}

    def figures(name: str) -> np.ndarray:
        found = [getattr(record, name) for record in records]
        return np.array([-1 if figure is None else figure for figure in found], dtype=np.int64)

    def bounds(name: str, table: pa.Table) -> pa.Table:
        keys = [getattr(record, name) if has else None for record, has in zip(records, keyed, strict=True)]
        columns = [
            pa.array([key and key[place].cast(item.type) for key in keys], item.type)
            for place, item in enumerate(table.schema)
        ]
        return pa.table(columns, schema=table.schema)

    exact = np.array([record.key_exact for record in records], dtype=bool)
    runs = np.array([run_number(record.run_id) for record in records], np.int64)
    return Listing(
        paths=pa.array([record.path for record in records], like.paths.type),
        low=bounds("key_min", like.low),
        high=bounds("key_max", like.high),
        own=own,
        measured=None if like.measured is None else own,
        sort_id=figures("cluster_key_id"),
        known=keyed,
        exact=keyed & exact,
        level=figures("level"),
        stored_rows=figures("row_count"),
        size_bytes=figures("size_bytes"),
        decoded_bytes=figures("decoded_bytes"),
        same_key_rows=np.where(own, figures("same_key_rows"), -1),
        matched=None,
        partition=np.array([codes[record.partition] for record in records], np.int64),
        partitions=like.partitions,
        run=None if like.run is None else runs,
        truncated_run=np.where(own & ~exact, runs, NO_RUN) if (own & ~exact).any() else None,
    )
