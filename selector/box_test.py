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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tblctl.metrics.boxes import SELECTIVITY, best_share, range_shares
from tblctl.metrics.intervals import Mask
from tblctl.selector.draft import Draft, most_rows
from tblctl.selector.plan import Rejection
from tblctl.selector.policy import Decision
from tblctl.selector.rejections import rejection
from tblctl.selector.table_view import TableView, joined

LEAST_RATIO = 1.3
"""Of what ranges read now and at best: along a Hilbert curve blocks are about as far from the best. With 1.6 less than
half is rewritten, but what ranges read stays up to 1.6 times as much (`benchmarks/results/worth.txt`)."""

_FEWER = 0.75
"""A group that becomes less than this share of as many blocks is worth it for that."""

MOST_ROUNDS = 16
"""How often a policy is asked for other groups, if none of those that it chose is worth it."""


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
    chosen = draft.blocks
    is_other = draft.sort is not None and draft.sort.id != view.sort_id
    if view.boxes_of is None or is_other or chosen.size == 1 or (view.sort_ids[chosen] != view.sort_id).any():
        return None
    rows, decoded = view.row_count[chosen].sum(keepdims=True), view.decoded_bytes[chosen].sum(keepdims=True)
    outputs = -(-int(rows[0]) // int(most_rows(rows, decoded, view.table_options)[0]))
    boxes = None if outputs < _FEWER * chosen.size else view.boxes_of(chosen)
    if boxes is None:
        return None
    columns = len(boxes.low)
    return Reads(
        now=chosen.size * float(np.mean(range_shares(boxes, SELECTIVITY)[:columns])),
        best=outputs * best_share(outputs, columns, 1, SELECTIVITY),
    )


def worth_reading(view: TableView, decide: Callable[[TableView], Decision]) -> Decision:
    """Return what is decided, without groups that are not worth it. If none is left, others are asked for.

    Args:
        view: the table.
        decide: returns the decision for a view, checked.
    """
    left: list[tuple[Draft, Reads]] = []
    decision = decide(view)
    for rounds in range(1, MOST_ROUNDS + 1):
        reads = [(draft, reads_of(view, draft)) for draft in decision.drafts]
        good = [(draft, found) for draft, found in reads if found is not None and found.are_good]
        if not good:
            break
        left += good
        kept = tuple(draft for draft, found in reads if found is None or not found.are_good)
        if kept or rounds == MOST_ROUNDS:
            decision = replace(decision, drafts=kept)
            break
        decision = decide(replace(view, settled=_blocks_of(view, left)))
    return replace(decision, rejections=(*decision.rejections, _rejection(view, left))) if left else decision


def _blocks_of(view: TableView, left: Sequence[tuple[Draft, Reads]]) -> Mask:
    found = np.zeros(len(view), np.bool_)
    found[joined(draft.blocks for draft, _ in left)] = True
    return found


def _rejection(view: TableView, left: Sequence[tuple[Draft, Reads]]) -> Rejection:
    now, best = sum(reads.now for _, reads in left), sum(reads.best for _, reads in left)
    why = (
        "they overlap on the curve, but separate its columns about as well as blocks can: a "
        f"{100 * SELECTIVITY:g} % range of one column reads {now:.1f} of them on average, at best {best:.1f}; "
        f"merged above {LEAST_RATIO:g} times that"
    )
    return rejection(view, "good_boxes", _blocks_of(view, left), why)
