"""Policies compared at equal depth: the curve that a policy's knob draws, and the floor below all curves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What a policy reaches with several values of its knob.

    Attributes:
        points: pairs of a mean depth and another figure, such as rows rewritten per row ingested; in order of the knob.
    """

    points: tuple[tuple[float, float], ...]

    def at(self, depth: float) -> float | None:
        """Return the figure where the curve first reaches a depth, between two values of the knob; None if nowhere."""
        for (one, figure), (other, next_figure) in itertools.pairwise(self.points):
            if min(one, other) <= depth <= max(one, other) and one != other:
                return figure + (next_figure - figure) * (depth - one) / (other - one)
        return None


def floor(appends: int, price: float) -> tuple[float, float]:
    """Return mean depth and rows rewritten, per append, of the cheapest merges of uniform keys, if the end is known.

    Each append is a run of one unit that covers all keys, and a merge takes whole runs. With a price of one run for one
    step, V(n) = min over t of V(t - 1) + t + price x (n - t + 1) + V(n - t): t is when the oldest run is last
    rewritten, all t units of it, and it stands for the n - t + 1 steps from then on. As rewriting is measured
    (`Replayed.rewritten`), both figures are averaged over the ends n in the second half: each has cheapest merges of
    its own, so no policy need reach the floor. O(n^2).

    Args:
        appends: n.
        price: what one more run costs for one step, in units rewritten.
    """
    cost = np.zeros(appends + 1)
    rewritten = np.zeros(appends + 1)
    run_steps = np.zeros(appends + 1)
    for count in range(1, appends + 1):
        last = np.arange(1, count + 1)
        units = np.where(last > 1, last, 0)
        stands = count - last + 1
        total = cost[last - 1] + units + price * stands + cost[count - last]
        best = int(total.argmin())
        cost[count] = total[best]
        time = int(last[best])
        rewritten[count] = rewritten[time - 1] + units[best] + rewritten[count - time]
        run_steps[count] = run_steps[time - 1] + stands[best] + run_steps[count - time]
    ends = np.arange(max(appends // 2, 1), appends + 1)
    return float((run_steps[ends] / ends).mean()), float((rewritten[ends] / ends).mean())


def floor_curve(appends: int, prices: Sequence[float]) -> Curve:
    """Return the floor at several prices."""
    return Curve(points=tuple(floor(appends, price) for price in prices))
