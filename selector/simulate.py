"""A table as plain lists of keys, to try policies on: append, plan, merge, measure. No file is written.

    table = SimulatedTable(block_rows=100)
    table.append(range(0, 100), range(50, 150))
    plan = table.plan("levels", threshold=1)
    table.merge(plan)
    table.depth  # 1.0

It cuts rows into blocks, sets levels and counts depth as real tables do. Nothing in it is random.

A plan's groups may get another sort than the current one. The table knows keys by the current sort only, so it deals
the rows of such a group out to its blocks one by one: the order of a sort that has nothing to do with the current one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.metrics.intervals import Integers, Mask, overlaps_and_depths, rounded_mean
from tblctl.metrics.partitions import ranks_by_partition
from tblctl.selector.options import SelectOptions, parts
from tblctl.selector.plan import Group, Plan
from tblctl.selector.planner import Planned, plan
from tblctl.selector.policy import Policy, Rates, Rng, State, Workload
from tblctl.selector.registry import DEFAULT_POLICY, policy_named
from tblctl.selector.table_view import MOST_LEVEL, TableView
from tblctl.tableformat.model.block import CONSTANT_LEVEL, is_full
from tblctl.tableformat.model.cluster_key import NO_SORT, Sort, Term
from tblctl.tableformat.model.cut import cut_rows, most_rows, rows_back, slack_rows
from tblctl.tableformat.model.options import TableOptions

SORT = Sort(id=1, terms=(Term(column_id=1),))
"""The current sort of every simulated table."""

ROW_BYTES = 8
"""Decoded bytes of a row if all rows are of one width."""


def one_width(_key: int) -> int:
    """Return the decoded bytes of a row: the same for all keys."""
    return ROW_BYTES


@dataclass(frozen=True)
class SimulatedBlock:
    """A block.

    Attributes:
        path: its name.
        keys: one for each row, ascending.
        level: how often its rows were merged; -1 for constant and full.
        sort_id: the live sort in whose order it is; `NO_SORT` for none.
        unknown: a plan does not see its bounds.
        partition: the number of its partition.
    """

    path: str
    keys: tuple[int, ...]
    level: int = 0
    sort_id: int = SORT.id
    unknown: bool = False
    partition: int = 0

    @property
    def unclustered(self) -> bool:
        """Whether it is not in the order of the current sort."""
        return self.sort_id != SORT.id

    @property
    def is_measured(self) -> bool:
        """Whether averages count it."""
        return not (self.unclustered or self.unknown)


@dataclass
class SimulatedTable:
    """A table that changes as it is appended to and merged.

    Attributes:
        block_rows: most rows of a block.
        block_bytes: most decoded bytes of a block.
        width: returns the decoded bytes of a key's row.
        keys_are_counted: blocks know how many rows their most frequent key has.
        blocks: the blocks of the current version, in the order in which they were written.
        written: how many blocks were ever written.
        sorts: the live sorts by id, with those that plans brought.
    """

    block_rows: int
    block_bytes: int = TableOptions().block_bytes
    width: Callable[[int], int] = one_width
    keys_are_counted: bool = True
    blocks: list[SimulatedBlock] = field(default_factory=list)
    written: int = 0
    sorts: dict[int, Sort] = field(default_factory=lambda: {SORT.id: SORT})

    def append(
        self,
        *blocks: Iterable[int],
        level: int = 0,
        unclustered: bool = False,
        unknown: bool = False,
        partition: int = 0,
    ) -> SimulatedTable:
        """Add blocks of some keys each, and return the table."""
        sort_id = NO_SORT if unclustered else SORT.id
        for keys in blocks:
            self.blocks.append(replace(self._made(sorted(keys), level, partition, sort_id), unknown=unknown))
        return self

    def copy(self) -> SimulatedTable:
        """Return a table of the same blocks, which changes by itself."""
        return replace(self, blocks=list(self.blocks), sorts=dict(self.sorts))

    @property
    def options(self) -> TableOptions:
        """How blocks are written."""
        return TableOptions(block_rows=self.block_rows, block_bytes=self.block_bytes)

    def decoded_bytes(self, keys: Iterable[int]) -> int:
        """Return the decoded bytes of the rows of some keys."""
        return sum(self.width(key) for key in keys)

    def view(self, restricted: Mask | None = None) -> TableView:
        """Return the table as policies see it; `restricted` marks the blocks that may be selected."""
        low, high = self._ranks()
        rows = _integers(len(keys) for keys in self._keys())
        return TableView(
            table_id="simulated",
            snapshot=1,
            sort_id=SORT.id,
            sorts=dict(self.sorts),
            sort_ids=_integers(block.sort_id for block in self.blocks),
            next_sort_id=max(self.sorts) + 1,
            table_options=self.options,
            paths=pa.array([block.path for block in self.blocks], pa.string()),
            low=low,
            high=high,
            level=_integers(block.level for block in self.blocks),
            row_count=rows,
            size_bytes=rows,
            decoded_bytes=_integers(self.decoded_bytes(keys) for keys in self._keys()),
            same_key_rows=_integers(self._same_key_rows(block) for block in self.blocks),
            constant=_mask(keys[0] == keys[-1] for keys in self._keys()),
            unclustered=_mask(block.unclustered for block in self.blocks),
            unknown=_mask(block.unknown for block in self.blocks),
            partition=_integers(block.partition for block in self.blocks),
            restricted=restricted,
        )

    def plan(
        self, policy: Policy | str = DEFAULT_POLICY, restricted: Mask | None = None, **options: Any
    ) -> Plan:
        """Return the plan of a policy; `options` are those of `SelectOptions` and of the policy itself."""
        return self.planned(policy, restricted, options=options).plan

    def planned(
        self,
        policy: Policy | str = DEFAULT_POLICY,
        restricted: Mask | None = None,
        *,
        options: dict[str, Any] | SelectOptions | None = None,
        workload: Workload = None,
        state: State = None,
        rates: Rates = None,
        now: float = 0.0,
        rng: Rng = lambda: 0.5,
        with_advice: bool = True,
    ) -> Planned:
        """Return the plan of a policy, and the state for the next one.

        Args:
            policy: the policy, or its name.
            restricted: only these blocks may be selected; None for all.
            options: those of `SelectOptions` and of the policy itself.
            workload: see `Policy.decide`, also for `state` and `rates`.
            state: from the plan before.
            rates: what reading and rewriting take; None for the stated defaults.
            now: seconds since 1970-01-01 UTC.
            rng: the policy's source of chance.
            with_advice: whether alternatives are planned too.
        """
        chosen = policy_named(policy) if isinstance(policy, str) else policy
        asked = parts(chosen, options)
        return plan(
            self.view(restricted),
            chosen,
            asked.policy,
            asked.budget,
            memory_bytes=asked.memory_bytes,
            workload=workload,
            state=state,
            rates=rates,
            now=now,
            rng=rng,
            with_advice=with_advice,
        )

    def merge(self, plan: Plan) -> None:
        """Carry out a plan of the current version."""
        by_path = {block.path: block for block in self.blocks}
        self.sorts |= {sort.id: sort for sort in plan.sorts}
        for group in plan.groups:
            inputs = [by_path.pop(path) for path in group.blocks]
            keys = sorted(itertools.chain(*(block.keys for block in inputs)))
            sort = self.sorts[group.sort_id]
            for part in self._cut(keys, group) if sort == SORT else self._dealt(keys, group):
                block = self._made(part, group.output_level, inputs[0].partition, sort.id)
                by_path[block.path] = block
        self.blocks = list(by_path.values())

    def rounds(self, policy: Policy | str = DEFAULT_POLICY, **options: Any) -> Iterator[Plan]:
        """Plan and merge until there is nothing to do; yield each plan before it is merged."""
        while (plan := self.plan(policy, **options)).groups:
            yield plan
            self.merge(plan)

    @property
    def work_left(self) -> int:
        """The number of merges left to each row, added up over all rows. Every group lowers it by at least its rows."""
        return sum(_merges_left(block) * len(block.keys) for block in self.blocks)

    @property
    def overlaps(self) -> float:
        """The average overlaps of the blocks, within partitions, as `info` reports them."""
        overlap, _ = self._figures()
        return rounded_mean(int(overlap.sum()), overlap.size)

    @property
    def depth(self) -> float:
        """The average depth of the blocks, within partitions, as `info` reports it."""
        _, depth = self._figures()
        return rounded_mean(int(depth.sum()), depth.size)

    def _figures(self) -> tuple[np.ndarray, np.ndarray]:
        found = []
        for partition in {block.partition for block in self.blocks}:
            keys = [b.keys for b in self.blocks if b.is_measured and b.partition == partition]
            found.append(overlaps_and_depths(_integers(k[0] for k in keys), _integers(k[-1] for k in keys)))
        none = np.empty(0, np.int64)
        overlap, depth = zip(*found, strict=True) if found else ((none,), (none,))
        return np.concatenate(overlap), np.concatenate(depth)

    def _keys(self) -> Iterator[tuple[int, ...]]:
        return (block.keys for block in self.blocks)

    def _ranks(self) -> tuple[Integers, Integers]:
        """Return the ranks of the blocks' bounds, apart for each partition, as in a stored table."""
        ends = [keys[end] for end in (0, -1) for keys in self._keys()]
        ranks = _integers(np.unique(ends, return_inverse=True)[1])
        low, high = np.split(ranks, 2)
        return ranks_by_partition(low, high, _integers(block.partition for block in self.blocks))

    def _made(self, keys: Sequence[int], level: int, partition: int, sort_id: int) -> SimulatedBlock:
        """Return a new block of ascending keys; one of a single key that is full has no level."""
        self.written += 1
        full = is_full(
            len(keys),
            self.decoded_bytes(keys),
            block_rows=self.block_rows,
            block_bytes=self.block_bytes,
        )
        if keys[0] == keys[-1] and full and sort_id == SORT.id:
            level = CONSTANT_LEVEL
        return SimulatedBlock(
            path=f"data/{self.written:06d}",
            keys=tuple(keys),
            level=level,
            partition=partition,
            sort_id=sort_id,
        )

    def _same_key_rows(self, block: SimulatedBlock) -> int:
        if not (block.is_measured and self.keys_are_counted):
            return -1
        return max(Counter(block.keys).values())

    def _cut(self, keys: Sequence[int], group: Group) -> Iterator[Sequence[int]]:
        """Yield the ascending keys of a group, block by block."""
        most = most_rows(self.options, group.decoded_bytes / group.rows)
        for piece in _cut_where_keys_end(keys, cut_rows(len(keys), most, group.same_key_rows), most):
            yield from self._filled(piece)

    def _dealt(self, keys: Sequence[int], group: Group) -> Iterator[list[int]]:
        """Yield the keys of a group that gets another sort, block by block."""
        sizes = cut_rows(
            len(keys), most_rows(self.options, group.decoded_bytes / group.rows), group.same_key_rows
        )
        order = [key for number in range(len(sizes)) for key in keys[number :: len(sizes)]]
        for start, end in itertools.pairwise([0, *itertools.accumulate(sizes)]):
            for part in self._filled(order[start:end]):
                yield sorted(part)

    def _filled(self, keys: Iterable[int]) -> Iterator[list[int]]:
        """Yield the keys of each block: a block ends before the row that would exceed `block_bytes`."""
        part: list[int] = []
        size = 0
        for key in keys:
            if part and size + self.width(key) > self.block_bytes:
                yield part
                part, size = [], 0
            part.append(key)
            size += self.width(key)
        yield part


def _cut_where_keys_end(keys: Sequence[int], sizes: Sequence[int], most: int) -> list[Sequence[int]]:
    """Return ascending keys in pieces of about these sizes; a cut moves back within its slack to where a key ends."""
    ends = np.cumsum(sizes).tolist()
    for place, slack in enumerate(slack_rows(sizes, most)):
        around = keys[ends[place] - slack - 1 : ends[place] + 1]
        ends[place] -= rows_back(np.array([a != b for a, b in itertools.pairwise(around)]))
    return [keys[start:end] for start, end in itertools.pairwise([0, *ends])]


def _merges_left(block: SimulatedBlock) -> int:
    """Return how often the rows of a block may be merged yet."""
    if block.sort_id == NO_SORT:
        return MOST_LEVEL + 1
    return 0 if block.level == CONSTANT_LEVEL else max(MOST_LEVEL - block.level, 0)


def _integers(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), np.int64)


def _mask(values: Iterable[bool]) -> np.ndarray:
    return np.array(list(values), np.bool_)
