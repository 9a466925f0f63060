"""Why blocks were not selected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.plan import Rejection
from tblctl.selector.table_view import MOST_LEVEL, TableView
from tblctl.tableformat.model.block import CONSTANT_LEVEL


def rejection(
    view: TableView,
    rule: str,
    chosen: Integers | Mask,
    why: str,
    *,
    level: int | None = None,
    average_selection_depth: float | None = None,
    threshold: float | None = None,
) -> Rejection:
    """Return why some blocks were not selected.

    Args:
        view: the table.
        rule: one word; the name of an option where that option is the limit, so that plans tell to raise it.
        chosen: numbers of the blocks, or a mask.
        why: for people.
        level: of the blocks; None if they are of several.
        average_selection_depth: theirs.
        threshold: what it was compared with.
    """
    sizes = view.size_bytes[chosen]
    return Rejection(
        rule=rule,
        level=level,
        blocks=sizes.size,
        size_bytes=int(sizes.sum()),
        why=why,
        average_selection_depth=average_selection_depth,
        threshold=threshold,
    )


def left_out(
    view: TableView,
    *,
    include_unclustered: bool,
    admitted: Mask | None = None,
    sort_id: int | None = None,
) -> list[Rejection]:
    """Return the blocks that a policy does not look at, by reason; each block under its first reason.

    What is left is `view.selectable`, less the blocks in another live sort, and less the other unclustered ones where
    these are not included. A policy that takes `view.separable` or `view.renewable` ones too hands these in as
    `admitted`. One that gives its groups another sort names that: then it is `view.selectable_for` that sort, less the
    blocks in a third one.
    """
    here = view.sort_id if sort_id is None else sort_id
    constant = (
        view.finished if here == view.sort_id else (view.sort_ids == here) & (view.level == CONSTANT_LEVEL)
    )
    everywhere = np.ones(len(view), np.bool_)
    other = everywhere if admitted is None else ~admitted
    allowed = everywhere if view.restricted is None else view.restricted
    failed = ~everywhere if view.failed is None else view.failed
    pending = ~everywhere if view.pending is None else view.pending
    twice = ~everywhere if view.listed_twice is None else view.listed_twice
    ignored = everywhere & (view.unclustered & (not include_unclustered))
    reasons = (
        ("where", ~allowed, "cannot hold rows that the condition asks for"),
        ("failed", failed, "could not be merged in an earlier round"),
        ("pending", pending, "in groups of pending plans, which `tblctl plan --list` shows"),
        ("listed_twice", twice, "listed twice by the table: they cannot be replaced one by one"),
        (
            "other_sort",
            view.in_other_sort & (view.sort_ids != here),
            (
                "in the order of another live sort, and left in it: `tblctl alter LOC --cluster-by KEY`, even with the "
                "same key, ends that sort"
            ),
        ),
        (
            "unclustered",
            ignored,
            "not sorted by the current key: `tblctl recluster LOC --final` sorts them",
        ),
        ("constant", constant & other, "one key only, and full: clustering again cannot help"),
        ("max_level", view.too_high & other, f"already merged {MOST_LEVEL} times: left alone"),
    )
    found, rest = [], everywhere.copy()
    for rule, mask, why in reasons:
        if (mask & rest).any():
            found.append(rejection(view, rule, mask & rest, why))
            rest &= ~mask
    return found


def summed_up(rejections: Iterable[Rejection]) -> list[Rejection]:
    """Return one rejection for each rule and level of several partitions: that of the deepest partition."""
    groups: dict[tuple[str, int | None], list[Rejection]] = {}
    for item in rejections:
        groups.setdefault((item.rule, item.level), []).append(item)
    return [_sum(items) for items in groups.values()]


def _sum(items: list[Rejection]) -> Rejection:
    deepest = max(items, key=lambda item: item.average_selection_depth or 0.0)
    others = len(items) - 1
    more = f" (and in {others} other partition{'s' if others > 1 else ''})" if others else ""
    return replace(
        deepest,
        blocks=sum(item.blocks for item in items),
        size_bytes=sum(item.size_bytes for item in items),
        why=deepest.why + more,
    )
