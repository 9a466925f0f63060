"""Whether a merge along a curve lets ranges of columns read fewer blocks: by the boxes of its blocks, not by depth.

Blocks may overlap on the curve and yet separate the columns about as well as a curve can: slabs of equal time, areas
of their own, rows whose columns go together. A merge of these lowers the depth on the curve, and ranges read as much as
before. So a group of `k` blocks that would become `n` is worth it only if

    the blocks that a range of one column meets, on average over the columns  >  LEAST_RATIO x the same of a grid of n

The left side is k x `range_shares` of the boxes; the right side `best_share`, of the bound in docs/box-depth.md. Blocks
along a Hilbert curve reach 1.07 to 1.25 times that bound. `benchmarks/worth.py` compares this with the depth on the
curve alone, and with the depth of boxes, which takes slabs for good: they share no place, and a range of another column
reads all of them.

The policies that bring down depth ask this (`Policy.lowers_depth`). It takes groups away and adds none, so rounds end
as before (`draft.py`). Other keys than curves have no boxes, and cost nothing here.

A policy may ask before it adds a group (`TableView.spares`), and go on to the next range; one that does not is asked
again where none of its groups is worth it. The work of one plan is bounded. Where it was spent before any group was
found, the plan says so, and its state remembers what was refused (`Unfinished`): the next plan goes on behind that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.metrics.boxes import SELECTIVITY, Boxes, best_share, shares_of_groups
from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.draft import Draft, most_rows
from tblctl.selector.plan import Rejection
from tblctl.selector.policy import Decision, State
from tblctl.selector.rejections import rejection
from tblctl.selector.table_view import TableView, joined

LEAST_RATIO = 1.3
"""Of what ranges read now and at best: along a Hilbert curve blocks are about as far from the best. With 1.6 less than
half is rewritten, but what ranges read stays up to 1.6 times as much (`benchmarks/results/worth.txt`)."""

_FEWER = 0.75
"""A group that becomes less than this share of as many blocks is worth it for that."""

MOST_ROUNDS = 16
"""How often a policy is asked for other groups in one plan, if none of those that it chose is worth it."""

MOST_WORK = 4_000_000
"""Work of the tests of one plan: 4 s. A group counts its blocks, and `_WORK_OF_A_GROUP` for what it takes anyhow."""

_WORK_OF_A_GROUP = 400

NOT_LOOKED_AT = "not_looked_at"
"""The rule of blocks that a plan left for the next one, since its work was spent."""


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """The state after a plan that looked at a part of the table, and found nothing to merge there.

    Attributes:
        policy: what the policy remembers.
        refused: paths of the blocks in groups that are not worth it.
    """

    policy: State
    refused: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Reads:
    """How many blocks a range that holds 1 % of the rows meets, on average over the columns: now, and at best."""

    now: float
    best: float

    @property
    def are_good(self) -> bool:
        """Whether a merge is not worth it."""
        return self.now <= LEAST_RATIO * self.best


def reads_of(view: TableView, draft: Draft) -> Reads | None:
    """Return what ranges read of a group's blocks, and at best of those that they become. O(k log k) for k blocks.

    None if that is not known: not all blocks are in the order of the curve, a bound is missing, or the group gets
    another sort. None, too, if there is another reason to merge: fewer blocks (`_FEWER`), or a block alone.
    """
    is_other = draft.sort is not None and draft.sort.id != view.sort_id
    return None if is_other else _reads(view, draft.blocks)


def _reads(view: TableView, chosen: Integers) -> Reads | None:
    return reads_of_groups(view, [chosen])[0]


def reads_of_groups(view: TableView, groups: Sequence[Integers]) -> list[Reads | None]:
    """Return `reads_of` each of some groups of the current sort, at least one block each: bit for bit the same.

    Groups of one size are measured together: for 10,000 of 6 blocks that takes a tenth of the time.
    """
    found: list[Reads | None] = [None] * len(groups)
    outputs = _outputs(view, groups)
    by_size: dict[int, list[int]] = {}
    for number in outputs:
        by_size.setdefault(groups[number].size, []).append(number)
    for size, numbers in by_size.items():
        boxes = _boxes(view, [groups[number] for number in numbers])
        if boxes is None and len(numbers) > 1:  # a bound of one group is not known
            for number in numbers:
                found[number] = _reads(view, groups[number])
        elif boxes is not None:
            columns = len(boxes.low)
            shares = shares_of_groups(boxes, size, SELECTIVITY)[:, :columns].mean(axis=1).tolist()
            for number, share in zip(numbers, shares, strict=True):
                best = outputs[number] * best_share(outputs[number], columns, 1, SELECTIVITY)
                found[number] = Reads(now=size * share, best=best)
    return found


def _boxes(view: TableView, groups: Sequence[Integers]) -> Boxes | None:
    return None if view.boxes_of is None else view.boxes_of(joined(groups))


def _outputs(view: TableView, groups: Sequence[Integers]) -> dict[int, int]:
    """Return how many blocks groups become, by the numbers of those for which boxes decide."""
    if view.boxes_of is None or not groups:
        return {}
    sizes = np.array([chosen.size for chosen in groups])
    blocks, starts = joined(groups), np.cumsum(sizes) - sizes
    rows, decoded = (np.add.reduceat(each[blocks], starts) for each in (view.row_count, view.decoded_bytes))
    outputs = -(-rows // most_rows(rows, decoded, view.table_options))
    is_other = np.logical_or.reduceat(view.sort_ids[blocks] != view.sort_id, starts)
    asked = np.flatnonzero((sizes > 1) & ~is_other & (outputs >= _FEWER * sizes))
    return dict(zip(asked.tolist(), outputs[asked].tolist(), strict=True))


def worth_reading(view: TableView, decide: Callable[[TableView], Decision], state: State = None) -> Decision:
    """Return what is decided, without groups that are not worth it. If none is left, others are asked for.

    The state of the decision is `Unfinished` where the work was spent before a group was found.

    Args:
        view: the table.
        decide: returns the decision for a view, checked.
        state: from the plan before.
    """
    tests = _Tests(view, state.refused if isinstance(state, Unfinished) else frozenset())
    rounds = 0
    while True:
        rounds += 1
        before = tests.refused
        seen = replace(view, settled=tests.settled(), spares=tests.spares, may_ask=tests.may_ask)
        decision = decide(seen)
        tests.may_ask([draft.blocks for draft in decision.drafts if not tests.knows(draft)])
        kept = tuple(draft for draft in decision.drafts if not tests.refuses(draft))
        if kept or tests.are_spent or tests.refused == before or rounds >= MOST_ROUNDS:
            break
    if not (kept or tests.unseen) and tests.refused > before:  # maybe the policy would choose others now
        tests.leave(np.flatnonzero(view.selectable & ~_marked(view, tests.settled())))
    decision = replace(decision, drafts=kept, rejections=(*decision.rejections, *tests.rejections()))
    if kept or not tests.unseen:
        return decision
    names = view.names(np.flatnonzero(_marked(view, tests.settled())))
    return replace(
        decision, alternatives=(), state=Unfinished(policy=decision.state, refused=frozenset(names))
    )


def _marked(view: TableView, blocks: Mask | None) -> Mask:
    return np.zeros(len(view), np.bool_) if blocks is None else blocks


class _Tests:
    """The tests of one plan: what was refused, and what nobody looked at since the work was spent."""

    def __init__(self, view: TableView, refused: frozenset[str]) -> None:
        self._view = view
        self._before: Mask | None = None
        if refused:
            names = pa.array(sorted(refused), view.paths.type)
            self._before = pc.is_in(view.paths, names).to_numpy(zero_copy_only=False)
        self._left: list[tuple[Integers, Reads]] = []
        self._kept: dict[int, Integers] = {}
        self._ahead: dict[int, tuple[Integers, Reads | None]] = {}
        self._work = 0
        self.unseen: list[Integers] = []

    @property
    def are_spent(self) -> bool:
        """Whether no more groups are tested."""
        return self._work >= MOST_WORK

    @property
    def refused(self) -> int:
        """How many groups were refused in this plan."""
        return len(self._left)

    def settled(self) -> Mask | None:
        """Return the blocks that are refused; None for none."""
        if self._before is None and not self._left:
            return None
        found = _marked(self._view, self._before).copy()
        found[joined(blocks for blocks, _ in self._left)] = True
        return found

    def knows(self, draft: Draft) -> bool:
        """Return whether a group needs no test: the policy asked about it, or it gets another sort."""
        known = self._kept.get(int(draft.blocks[0]))
        is_kept = known is not None and np.array_equal(known, draft.blocks)
        return is_kept or (draft.sort is not None and draft.sort.id != self._view.sort_id)

    def refuses(self, draft: Draft) -> bool:
        """Return whether a group is not worth it."""
        return not self.knows(draft) and self.spares(draft.blocks)

    def may_ask(self, groups: Sequence[Integers]) -> None:
        """Measure groups together about which `spares` may be asked next; see `TableView.may_ask`."""
        if self.are_spent or len(groups) < 2:  # noqa: PLR2004
            return
        found = reads_of_groups(self._view, groups)
        self._ahead = {int(blocks[0]): (blocks, reads) for blocks, reads in zip(groups, found, strict=True)}

    def spares(self, blocks: Integers) -> bool:
        """Return whether blocks are left alone; see `TableView.spares`."""
        if self.are_spent:
            self.unseen.append(blocks)
            return True
        self._work += blocks.size + _WORK_OF_A_GROUP
        reads = self._reads(blocks)
        if reads is not None and reads.are_good:
            self._left.append((blocks, reads))
            return True
        self._kept[int(blocks[0])] = blocks
        return False

    def _reads(self, blocks: Integers) -> Reads | None:
        measured, reads = self._ahead.get(int(blocks[0]), (None, None))
        is_known = measured is not None and np.array_equal(measured, blocks)
        return reads if is_known else _reads(self._view, blocks)

    def leave(self, blocks: Integers) -> None:
        """Take note of blocks that nobody looked at."""
        if blocks.size:
            self.unseen.append(blocks)

    def rejections(self) -> list[Rejection]:
        """Return why blocks are left alone."""
        view, found = self._view, []
        if self._before is not None and self._before.any():
            why = "they overlap on the curve, but the plans before found that they separate its columns well"
            found.append(rejection(view, "good_boxes", self._before, why))
        if self._left:
            now, best = (sum(getattr(reads, name) for _, reads in self._left) for name in ("now", "best"))
            why = (
                "they overlap on the curve, but separate its columns about as well as blocks can: a "
                f"{100 * SELECTIVITY:g} % range of one column reads {now:.1f} of them on average, at best {best:.1f}; "
                f"merged above {LEAST_RATIO:g} times that"
            )
            found.append(rejection(view, "good_boxes", joined(blocks for blocks, _ in self._left), why))
        if self.unseen:
            why = "not looked at yet: one plan tests so many groups, and those before were not worth it"
            found.append(rejection(view, NOT_LOOKED_AT, np.unique(joined(self.unseen)), why))
        return found
