"""The cluster key that the queries of late call for, and why: `recluster --cluster-by auto`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tblctl.maintain.experience import rates_of
from tblctl.maintain.request import table_view
from tblctl.maintain.view import View
from tblctl.selector.policies.workload import NO_WORKLOAD, WorkloadOptions, full_rows
from tblctl.selector.workload.asked import HALF_LIFE, Asked, Key
from tblctl.selector.workload.compiled import Compiled
from tblctl.selector.workload.key import KeyCost, better_key, cost_of_key
from tblctl.tableformat.errors import InvalidKeyError, InvalidOptionError
from tblctl.tableformat.keys.kinds import key_leaves
from tblctl.tableformat.model.cluster_key import AS_LISTED, Sort
from tblctl.tableformat.model.schema.text_scanner import quote_name
from tblctl.tableformat.port import TablePort, Version
from tblctl.tableformat.workload.queries import Workload


@dataclass(frozen=True, kw_only=True)
class KeyChoice:
    """A cluster key for the queries of late.

    Attributes:
        cluster_by: its terms as text; those of the present key, if no other one would save enough.
        present: the terms of the present key; empty without one.
        queries: of the window.
        before_seconds: what these take to read the table by the present key, once all of it is in its order.
        after_seconds: the same by the key chosen.
        rewrite_seconds: what it takes to sort what is not in its order.
        why: these figures, in words.
    """

    cluster_by: tuple[str, ...]
    present: tuple[str, ...]
    queries: int
    before_seconds: float
    after_seconds: float
    rewrite_seconds: float
    why: str

    @property
    def changes(self) -> bool:
        """Whether it is another key than the present one."""
        return self.cluster_by != self.present

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "changes": self.changes}


def key_for_queries(port: TablePort[Any], version: Version, workload: Workload | None) -> KeyChoice:
    """Return the key that queries call for. Statistics are read, no rows.

    Raises:
        InvalidOptionError: no queries are known.
    """
    if workload is None or not workload.queries:
        raise InvalidOptionError(NO_WORKLOAD)
    view = table_view(version, View.of(version, version.sort or AS_LISTED, None))
    window = workload.queries[-WorkloadOptions().window :]
    compiled = Compiled(view=view)
    asked = compiled.asked(window, half_life=HALF_LIFE)
    blocks = compiled.blocks(asked, rates_of(port, version))

    def cost(key: Key, sort: Sort | None) -> KeyCost:
        in_order = np.zeros(len(view), np.bool_) if sort is None else view.sort_ids == sort.id
        partition = view.partition if view.is_partitioned else None
        return cost_of_key(blocks, asked, key, in_order, block_rows=full_rows(view), partition=partition)

    present = port.entry(version, newest=version).cluster_by or ()
    now = cost(_asked_columns(version, compiled, asked), version.sort)
    others = [item for item in _candidates(version, compiled, asked) if item[1] != version.sort]
    costs = [cost(key, sort) for key, sort, _ in others]
    chosen = better_key(now, costs)
    if chosen is None:
        return _choice(present, None, now=now, then=now, queries=len(window))
    return _choice(present, others[chosen][2], now=now, then=costs[chosen], queries=len(window))


def _candidates(version: Version, compiled: Compiled, asked: Asked) -> Iterator[tuple[Key, Sort, str]]:
    """Yield the keys worth a try, with their sorts and texts."""
    for key in asked.candidate_keys():
        names = ", ".join(quote_name(compiled.names[column]) for column in key)
        text = names if len(key) == 1 else f"hilbert({names})"
        try:
            yield key, version.sort_by(text, reads_rows=False), text
        except InvalidKeyError:  # rows cannot be sorted by it
            continue


def _asked_columns(version: Version, compiled: Compiled, asked: Asked) -> Key:
    """Return the columns of the present key that queries ask by: the first of a linear key, two at most of a curve."""
    sort = version.sort
    if sort is None:
        return ()
    names = [leaf.name for leaf in key_leaves(sort, version.schema)]
    wanted = {compiled.names[column] for key in asked.candidate_keys() for column in key}
    first = names[:1] if sort.kind == "linear" else names
    return tuple(compiled.names.index(name) for name in first if name in wanted)[:2]


def _choice(
    present: tuple[str, ...], text: str | None, *, now: KeyCost, then: KeyCost, queries: int
) -> KeyChoice:
    by = f"by {', '.join(present)}" if present else "as it is"
    if text is None:
        why = f"no other key would save the {queries} queries of the window enough: {now.reading:.3g} s {by}"
    else:
        why = (
            f"the {queries} queries of the window would read the table in {then.reading:.3g} s by {text} instead of "
            f"{now.reading:.3g} s {by}; sorting what is not in that order takes {then.rewriting:.3g} s"
        )
    return KeyChoice(
        cluster_by=present if text is None else (text,),
        present=present,
        queries=queries,
        before_seconds=now.reading,
        after_seconds=then.reading,
        rewrite_seconds=then.rewriting,
        why=why,
    )
