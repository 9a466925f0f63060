"""A table as plain lists of keys: append, plan, merge, measure. What policies are tried on, without a file."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from tblctl.metrics.intervals import overlaps_and_depths, rounded_mean, selection_depths
from tblctl.selector.candidates import Candidates, Context
from tblctl.selector.draft import MOST_LEVEL
from tblctl.selector.options import SelectOptions
from tblctl.selector.registry import policy_named
from tblctl.tableformat.model.cut import cut_rows, most_rows, rows_back, slack_rows
from tblctl.tableformat.model.options import TableOptions

ROW_BYTES = 8


def even(_key: int) -> int:
    """Rows of one width."""
    return ROW_BYTES


def cut_cleanly(keys, sizes, most):
    """Return sorted keys in pieces of about these sizes, each cut moved back to where a key ends within its slack."""
    ends = np.cumsum(sizes).tolist()
    for place, slack in enumerate(slack_rows(sizes, most)):
        around = keys[ends[place] - slack - 1 : ends[place] + 1]
        ends[place] -= rows_back(np.array([a != b for a, b in itertools.pairwise(around)]))
    return [keys[start:end] for start, end in itertools.pairwise([0, *ends])]


@dataclass(frozen=True)
class SimBlock:
    path: str
    keys: tuple[int, ...]  # in order, unless it is unclustered
    level: int = 0
    unclustered: bool = False
    unknown: bool = False  # no bounds


@dataclass
class SimTable:
    """`width` is the bytes of the row of a key; `keys_are_counted`: blocks know how many rows one has."""

    block_rows: int
    block_bytes: int = TableOptions().block_bytes
    width: Callable[[int], int] = even
    keys_are_counted: bool = True
    blocks: list[SimBlock] = field(default_factory=list)
    written: int = 0

    def append(self, *blocks, level=0, **marks):
        for keys in blocks:
            self.blocks.append(self.made(sorted(keys), level, **marks))
        return self

    @property
    def options(self):
        return TableOptions(block_rows=self.block_rows, block_bytes=self.block_bytes)

    def decoded_bytes(self, keys):
        return sum(self.width(key) for key in keys)

    def made(self, keys, level, **marks):
        self.written += 1
        full = len(keys) >= math.floor(0.8 * self.block_rows)
        full |= self.decoded_bytes(keys) >= 0.8 * self.block_bytes
        if keys[0] == keys[-1] and full and not marks.get("unclustered"):
            level = -1
        return SimBlock(path=f"data/{self.written:06d}", keys=tuple(keys), level=level, **marks)

    def same_key_rows(self, block):
        if block.unclustered or block.unknown or not self.keys_are_counted:
            return -1
        return max(Counter(block.keys).values())

    def candidates(self):
        keys = sorted({key for block in self.blocks for key in block.keys})
        rank = {key: number for number, key in enumerate(keys)}
        rows = np.array([len(block.keys) for block in self.blocks], np.int64)

        def mask(values):
            return np.array(list(values), np.bool_)

        return Candidates(
            paths=pa.array([block.path for block in self.blocks], pa.string()),
            low=np.array([rank[min(block.keys)] for block in self.blocks], np.int64),
            high=np.array([rank[max(block.keys)] for block in self.blocks], np.int64),
            level=np.array([block.level for block in self.blocks], np.int64),
            row_count=rows,
            size_bytes=rows,
            decoded_bytes=np.array([self.decoded_bytes(block.keys) for block in self.blocks], np.int64),
            same_key_rows=np.array([self.same_key_rows(block) for block in self.blocks], np.int64),
            constant=mask(len(set(block.keys)) == 1 for block in self.blocks),
            unclustered=mask(block.unclustered for block in self.blocks),
            unknown=mask(block.unknown for block in self.blocks),
        )

    def context(self, restricted=None, **options):
        return Context(
            table_id="t",
            snapshot=1,
            sort_id=1,
            blocks=self.candidates(),
            options=SelectOptions(**options),
            table_options=self.options,
            restricted=restricted,
        )

    def plan(self, policy="levels", restricted=None, **options):
        return policy_named(policy)(self.context(restricted, **options))

    def merge(self, plan):
        by_path = {block.path: block for block in self.blocks}
        for group in plan.groups:
            keys = sorted(key for path in group.blocks for key in by_path.pop(path).keys)
            most = most_rows(self.options, group.decoded_bytes / group.rows)
            for piece in cut_cleanly(keys, cut_rows(len(keys), most, group.same_key_rows), most):
                for part in self.filled(piece):
                    block = self.made(part, group.output_level)
                    by_path[block.path] = block
        self.blocks = list(by_path.values())

    def filled(self, keys):
        """Yield keys by block: a block ends where one row more would be too much for `block_bytes`."""
        part, size = [], 0
        for key in keys:
            if part and size + self.width(key) > self.block_bytes:
                yield part
                part, size = [], 0
            part.append(key)
            size += self.width(key)
        yield part

    def final(self, policy="levels", most_rounds=None, **options):
        """Plan and merge until there is nothing to do; return the plans. Each must lower what `draft.py` promises."""
        plans = []
        while True:
            plan = self.plan(policy, **options)
            if not plan.groups:
                return plans
            before = self.work_left()
            self.merge(plan)
            assert self.work_left() <= before - sum(group.rows for group in plan.groups)
            plans.append(plan)
            assert most_rounds is None or len(plans) <= most_rounds

    def work_left(self):
        def weight(block):
            if block.unclustered:
                return MOST_LEVEL + 1
            return 0 if block.level == -1 else max(MOST_LEVEL - block.level, 0)

        return sum(weight(block) * len(block.keys) for block in self.blocks)

    def listed(self):
        """Return [min, max, level, rows] of every block, in order."""
        return sorted([block.keys[0], block.keys[-1], block.level, len(block.keys)] for block in self.blocks)

    def keys_of(self, group):
        """Return the keys of a group's blocks, in order of block."""
        by_path = {block.path: list(block.keys) for block in self.blocks}
        return sorted(by_path[path] for path in group.blocks)

    def ranges_of(self, plan):
        return [[(keys[0], keys[-1]) for keys in self.keys_of(group)] for group in plan.groups]

    def figures(self):
        """Return average overlaps and depth, as `info` measures them."""
        measured = [block for block in self.blocks if not (block.unclustered or block.unknown)]
        low = np.array([block.keys[0] for block in measured], np.int64)
        high = np.array([block.keys[-1] for block in measured], np.int64)
        overlap, depth = overlaps_and_depths(low, high)
        return rounded_mean(int(overlap.sum()), low.size), rounded_mean(int(depth.sum()), low.size)

    def selection_depths(self):
        """Return the average selection depth of every level but -1."""
        found = {}
        for level in {block.level for block in self.blocks} - {-1}:
            ends = np.array([(b.keys[0], b.keys[-1]) for b in self.blocks if b.level == level], np.int64)
            found[level] = float(selection_depths(ends[:, 0].copy(), ends[:, 1].copy()).mean())
        return found

    def copy(self):
        return replace(self, blocks=list(self.blocks))
