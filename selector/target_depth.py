"""How much of a plan is needed: no group more than a target for the average depth asks for."""

from __future__ import annotations

from collections.abc import Sequence

from tblctl.metrics.intervals import Integers
from tblctl.selector.draft import Draft
from tblctl.selector.plan import Prediction
from tblctl.selector.predict.forecast import Forecast, forecast
from tblctl.selector.table_view import TableView, joined


def enough(
    view: TableView, drafts: Sequence[Draft], target_depth: float | None
) -> tuple[Sequence[Draft], Forecast]:
    """Return the fewest of the first drafts that bring the table to a depth, and their forecast. O(log k) forecasts.

    They are all of them where none are enough, and none where the average depth of the table is at most the target
    already. A depth that is not known reaches no target.
    """
    predicted = forecast(view, drafts)
    if target_depth is None or not drafts:
        return drafts, predicted
    if _is_at_most(predicted.prediction.average_depth_before, target_depth):
        return [], predicted.of_nothing()
    if not _is_at_most(predicted.prediction.average_depth_after, target_depth):
        return drafts, predicted
    too_few, count = 0, len(drafts)
    while count - too_few > 1:
        middle = (too_few + count) // 2
        found = forecast(view, drafts[:middle])
        if _is_at_most(found.prediction.average_depth_after, target_depth):
            count, predicted = middle, found
        else:
            too_few = middle
    return drafts[:count], predicted


def spare(drafts: Sequence[Draft], needed: Sequence[Draft]) -> Integers:
    """Return the blocks of the drafts that `enough` left out."""
    return joined(draft.blocks for draft in drafts[len(needed) :])


def why_spared(prediction: Prediction, target_depth: float, *, some_needed: bool) -> str:
    """Return why they are left out, for people."""
    if some_needed:
        return f"not needed for the target depth {target_depth:g}"
    depth = prediction.average_depth_before
    return f"the average depth is {depth:.2f}, the target {target_depth:g}"


def _is_at_most(depth: float | None, target: float) -> bool:
    return depth is not None and depth <= target
