"""A policy that gives blocks a second live sort; the policies of the product come from its registry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tblctl.selector import registry
from tblctl.selector.draft import Draft, next_level
from tblctl.selector.policy import Decision
from tblctl.tableformat.model.cluster_key import Sort, Term

_BY_S = (Term(column_id=4),)  # the fourth column of model.SCHEMA
_BLOCKS = 5


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """No options."""


class SideSort:
    """Sorts some blocks by another column, in a live sort beside the cluster key."""

    name = "sidesort"
    options = NoOptions

    def decide(self, view, budget, options, *, workload=None, state=None, rates=None, now=0.0, rng=None):
        known = [sort for sort in view.sorts.values() if sort.terms == _BY_S]
        sort = known[0] if known else Sort(id=view.next_sort_id, terms=_BY_S)
        if sort.id == view.sort_id:
            return Decision()
        others = view.selectable_for(sort.id) & (view.sort_ids != sort.id)
        chosen = np.flatnonzero(others)[:_BLOCKS]
        if not chosen.size:
            return Decision()
        draft = Draft(
            blocks=chosen, output_level=next_level(view, chosen), why="by another column", sort=sort
        )
        return Decision(drafts=(draft,))


SIDE_SORT = SideSort()


def drawn_policies() -> list[str]:
    """Return the names of the policies that histories draw: all of the product."""
    return [item.name for item in registry.registered()]
