"""Simulated tables, with what tests ask of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from tblctl.metrics.intervals import selection_depths
from tblctl.selector.simulate import SimulatedTable
from tblctl.selector.table_view import MOST_LEVEL


@dataclass
class SimTable(SimulatedTable):
    def final(self, policy="levels", most_rounds=None, **options):
        """Plan and merge until there is nothing to do; return the plans. Each must lower what `draft.py` promises."""
        plans, works = [], []
        for plan in self.rounds(policy, **options):
            plans.append(
                (sum(group.rows for group in plan.groups if not self.parts_most_merged(group)), plan)
            )
            works.append((self.work_left, self.covered_gaps))
            assert most_rounds is None or len(plans) <= most_rounds
        ends = itertools.pairwise([*works, (self.work_left, self.covered_gaps)])
        for (lifted_rows, _), (before, after) in zip(plans, ends, strict=True):
            assert after < before
            assert after[0] <= before[0] - lifted_rows
        return [plan for _, plan in plans]

    def parts_most_merged(self, group):
        """Return whether a group has blocks that were merged `MOST_LEVEL` times: it only lowers what they cover."""
        paths = set(group.blocks)
        return any(b.path in paths and b.level >= MOST_LEVEL and not b.unclustered for b in self.blocks)

    @property
    def covered_gaps(self):
        """The blocks that cover each gap between two neighbouring keys of a partition, added up over all gaps."""
        ranks = {}
        for block in self.blocks:
            ranks.setdefault(block.partition, set()).update(block.keys)
        places = {
            name: {key: place for place, key in enumerate(sorted(keys))} for name, keys in ranks.items()
        }
        return sum(places[b.partition][b.keys[-1]] - places[b.partition][b.keys[0]] for b in self.blocks)

    def listed(self):
        """Return [min, max, level, rows] of every block, in order."""
        return sorted([block.keys[0], block.keys[-1], block.level, len(block.keys)] for block in self.blocks)

    def ranges_of(self, plan):
        """Return the first and last key of the blocks of each group, in order of their keys."""
        keys = {block.path: block.keys for block in self.blocks}
        return [
            [(found[0], found[-1]) for found in sorted(keys[path] for path in group.blocks)]
            for group in plan.groups
        ]

    def figures(self):
        """Return average overlaps and depth, as `info` measures them."""
        return self.overlaps, self.depth

    def selection_depths(self):
        """Return the average selection depth of every level but -1."""
        found = {}
        for level in {block.level for block in self.blocks} - {-1}:
            ends = np.array([(b.keys[0], b.keys[-1]) for b in self.blocks if b.level == level], np.int64)
            found[level] = float(selection_depths(ends[:, 0].copy(), ends[:, 1].copy()).mean())
        return found
