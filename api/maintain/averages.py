"""Average figures of a table over several recluster rounds, computed from the changes of each round.

Blocks that a commit removes and adds are edits of an interval index. The index needs a number for every key, in key
order, and a merge brings new keys between the old ones. So numbers lie as far apart as 62 bits allow. A new key gets a
number between its neighbours'. Once a gap is used up, everything is measured and numbered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.maintain.view import Averages, View, listed
from tblctl.metrics.index import BULK_SHARE, IntervalIndex
from tblctl.metrics.intervals import Integers, known_mean
from tblctl.tableformat.keys.order import key_places, key_ranks
from tblctl.tableformat.model.record import BlockRecord


@dataclass(frozen=True, kw_only=True)
class Indexing:
    """When an index of blocks is kept, and how. The defaults were measured.

    Attributes:
        least_blocks: smaller tables are measured again in the time that an index takes for an edit, about 20 ms.
        least_unchanged: where a commit changes more than one in `least_unchanged` blocks, all are measured again.
        bulk_share: see `IntervalIndex`.
        last_number: keys are numbered from 1 to this.
    """

    least_blocks: int = 50_000
    least_unchanged: int = 50
    bulk_share: int = BULK_SHARE
    last_number: int = 2**62


class RollingAverages:
    """The average figures of a table from one round to the next.

    Args:
        several: many commits may come. Making the index costs as much as measuring three times, an edit a twentieth.
        indexing: when an index is kept.
    """

    def __init__(self, *, several: bool, indexing: Indexing | None = None) -> None:
        self._several = several
        self._indexing = indexing or Indexing()
        self._version: str | None = None  # the id of the version that the rest is about
        self._view: View | None = None  # the table, but for what was kept since
        self._kept: list[_Change] = []  # commits that are not in the view yet; an index has them
        self._figures = Averages(depth=0.0, overlaps=0.0)
        self._blocks: NumberedBlocks | None = None
        self._asked: _Change | None = None  # the commit that may come
        self._next: View | None = None  # the table after it, if that was measured
        self._alone = True  # nobody else committed since the round began

    def known(self, version: str) -> Averages | None:
        """Return the figures of a version if the round before committed it, and nobody else committed meanwhile.

        Then a round may begin without a view of it.
        """
        return self._figures if self._view is not None and self._is_own(version) else None

    def _is_own(self, version: str) -> bool:
        return version == self._version and self._alone and self._asked is None

    def begin(self, version: str, view: View) -> Averages:
        """Return the figures of a round's first version, given by its id. A `known` one is not measured again."""
        if not self._is_own(version):
            self._blocks, self._figures = None, view.averages
        self._version, self._view, self._next = version, view, None
        self._kept, self._asked, self._alone = [], None, True
        return self._figures

    def replaced(self, removed: frozenset[str], added: Sequence[BlockRecord]) -> Averages:
        """Return the figures if `added` replaces `removed`, on top of all changes kept with `keep`.

        A second call without `keep` in between discards the change of the first.
        """
        assert self._view is not None, "a round has begun"
        # Without statistics of columns: of 300 columns, 0.2 MB a block.
        change = _Change(removed=removed, added=tuple(replace(record, columns={}) for record in added))
        blocks = len(self._view.listing.level)
        if self._asked is not None or len(change) * self._indexing.least_unchanged > blocks:
            self._blocks = None
        elif self._blocks is None and self._several and blocks >= self._indexing.least_blocks:
            self._blocks = NumberedBlocks(self._as_kept(), self._indexing)
        if self._blocks is not None and not self._blocks.replace(change.removed, change.added):
            self._blocks = None
        self._asked, self._next = change, None
        if self._blocks is not None:
            self._figures = self._blocks.averages()
        else:
            self._next = self._as_kept().replaced(change.removed, change.added)
            self._figures = self._next.averages
        return self._figures

    def keep(self, version: str, parent: str | None) -> None:
        """Keep the change of the last `replaced`: it was committed as a version on top of `parent`."""
        assert self._asked is not None, "something was asked"
        if self._next is None:
            self._kept.append(self._asked)
        else:
            self._view = self._next
        self._asked = self._next = None
        self._alone = self._alone and parent == self._version
        self._version = version

    def _as_kept(self) -> View:
        """Return the table with all that was kept. Each commit is put into the view once, and only if it is asked for.

        All of them are put in at once; a block that a later one removes again was never there.
        """
        assert self._view is not None, "a round has begun"
        if self._kept:
            removed = frozenset().union(*(change.removed for change in self._kept))
            added = [item for change in self._kept for item in change.added if item.path not in removed]
            self._view = self._view.replaced(removed, added)
            self._kept = []
        return self._view


@dataclass(frozen=True, kw_only=True)
class _Change:
    """Blocks that leave a table, and those that join it."""

    removed: frozenset[str]
    added: tuple[BlockRecord, ...]

    def __len__(self) -> int:
        return len(self.removed) + len(self.added)


class NumberedBlocks:
    """The measured blocks of a view in an index. Each key has a number, with gaps between numbers for later keys.

    All partitions number keys alike; each has its own section of the index.
    """

    def __init__(self, view: View, indexing: Indexing) -> None:
        self._sort, self._like, self._figures_of = view.sort, view.listing, view.figures_of
        self._count = len(view.listing.level)  # with those that are not measured
        self._section = indexing.last_number // len(view.listing.partitions)
        measured = np.flatnonzero(view.is_measured)
        self._paths = view.listing.paths.take(pa.array(measured))
        self._added: dict[str, int] = {}  # numbers of blocks that came later, by path
        low, high = (ranks[measured] for ranks in view.key_ranks)
        distinct, first, places = np.unique(
            np.concatenate((low, high)), return_index=True, return_inverse=True
        )
        ends = [bounds.take(measured) for bounds in (view.listing.low, view.listing.high)]
        self._keys = pa.concat_tables(ends).combine_chunks().take(first)
        self._numbers = np.arange(1, distinct.size + 1) * (self._section // (distinct.size + 1))
        ranks = self._numbers[places] + self._begins(view.listing.partition[measured])
        self._index = IntervalIndex(ranks[: low.size], ranks[low.size :], bulk_share=indexing.bulk_share)

    def averages(self) -> Averages:
        """Return the average figures of the blocks."""
        index = self._index
        return Averages(
            depth=known_mean(index.depth_sum, len(index), self._count),
            overlaps=known_mean(index.overlap_sum, len(index), self._count),
            figures_of=self._figures_of,
        )

    def replace(self, removed: frozenset[str], added: Sequence[BlockRecord]) -> bool:
        """Put `added` in the place of `removed`; those that are not in the order of the key are not measured.

        Returns false, and changes nothing, if no number is left between two neighbouring keys.
        """
        measured = [record for record in added if record.cluster_key_id == self._sort.id]
        fresh = listed(measured, self._like, self._sort)
        ranks = np.concatenate(key_ranks(fresh.low, fresh.high, self._sort))
        _, first, places = np.unique(ranks, return_index=True, return_inverse=True)
        keys = pa.concat_tables([fresh.low, fresh.high]).take(first)
        numbers = self._number(keys)
        if numbers is None:
            return False
        later = [self._added.pop(path) for path in removed & self._added.keys()]
        is_removed = pc.is_in(self._paths, pa.array(list(removed), self._paths.type))
        gone = np.flatnonzero(is_removed.to_numpy(zero_copy_only=False))
        ends = numbers[places] + self._begins(fresh.partition)
        blocks = self._index.replace(
            np.concatenate((gone, np.array(later, np.int64))), ends[: len(measured)], ends[len(measured) :]
        )
        self._count += len(added) - len(removed)
        self._added.update(zip(fresh.paths.to_pylist(), blocks.tolist(), strict=True))
        return True

    def _begins(self, partition: Integers) -> Integers:
        """Return where each partition's section begins, once for the low bounds and once for the high ones."""
        begins: Integers = np.tile(partition * self._section, 2)
        return begins

    def _number(self, keys: pa.Table) -> Integers | None:
        """Return the numbers of distinct keys in key order; new keys get new numbers. None if no number is left."""
        places, known = key_places(keys, self._keys, self._sort)
        number: Integers = np.append(self._numbers, self._section)[places]
        before = np.append(0, self._numbers)[places[~known]]
        _, begins, gap, count = np.unique(
            places[~known], return_index=True, return_inverse=True, return_counts=True
        )
        step = (number[~known] - before) // (count[gap] + 1)
        if (step == 0).any():
            return None
        number[~known] = before + step * (np.arange(gap.size) - begins[gap] + 1)
        every = np.concatenate((self._numbers, number[~known]))
        order = np.argsort(every, kind="stable")
        self._numbers = every[order]
        fresh = keys.filter(pa.array(~known))
        self._keys = pa.concat_tables([self._keys, fresh]).combine_chunks().take(order)
        return number
