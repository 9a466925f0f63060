"""What reclusters saved: the queries that followed each are replayed on the bounds before it and after.

Seconds of reading are those of policy `workload`: what decoding the columns that a query reads takes in the blocks
whose bounds its condition meets. Only the blocks that a commit replaced are looked at, since all others are read alike.
Reclusters of the same rows one after the other share what is saved: each counts from what the one before left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.maintain.newest import GONE
from tblctl.maintain.request import table_view
from tblctl.maintain.view import View
from tblctl.selector.pricing.rates import Rates
from tblctl.selector.table_view import TableView
from tblctl.selector.workload.compiled import Compiled
from tblctl.selector.workload.replay import read_cost
from tblctl.tableformat.errors import SnapshotNotFoundError
from tblctl.tableformat.model.cluster_key import AS_LISTED
from tblctl.tableformat.model.snapshot import RECLUSTER, iso_timestamp
from tblctl.tableformat.port import Version, VersionEntry
from tblctl.tableformat.workload.queries import Query

VersionOf = Callable[[str], Version]
"""Returns the version of an id, or raises `SnapshotNotFoundError`."""


@dataclass(frozen=True, kw_only=True)
class RealisedSaving:
    """What one commit of a recluster cost, and what it saved the queries that followed.

    Attributes:
        snapshot: that it committed.
        timestamp: when, ISO 8601 in UTC.
        policy: that planned it; empty if its writer did not say.
        queries: of the log that ran since.
        unused: conditions of these that do not fit the table: they count for nothing.
        spent_seconds: that merging took; None if its writer did not say.
        before_seconds, after_seconds: that these queries take to read the blocks it replaced, and those it wrote; None
            if not known.
        saved_seconds: the difference; below 0 if they read more.
        paid_back: whether that is at least what was spent; None if either is not known.
        note: why something is not known; empty if all is.
    """

    snapshot: int | str
    timestamp: str
    policy: str
    queries: int
    unused: int
    spent_seconds: float | None
    before_seconds: float | None
    after_seconds: float | None
    saved_seconds: float | None
    paid_back: bool | None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return asdict(self)


def realised(
    entries: Iterable[VersionEntry], version_of: VersionOf, queries: Sequence[Query], rates: Rates
) -> tuple[RealisedSaving, ...]:
    """Return what each recluster among versions of a history saved, in their order.

    Args:
        entries: the versions.
        version_of: returns the version of an id; that of each recluster is read, and the one before.
        queries: that the table was asked; those after a commit count for it.
        rates: what decoding takes.
    """
    return tuple(
        _saving(entry, version_of, queries, rates)
        for entry in entries
        if entry.summary.operation == RECLUSTER
    )


def _saving(
    entry: VersionEntry, version_of: VersionOf, queries: Sequence[Query], rates: Rates
) -> RealisedSaving:
    since = [query for query in queries if query.time * 1000 >= entry.timestamp_ms]
    policy, spent = _recorded(entry)
    notes = [] if spent is not None else ["what it took is not recorded"]
    before = after = saved = None
    unused = 0
    pair = _pair(entry, version_of)
    if pair is None:
        notes.append("it or the version before has expired")
    else:
        before, unused = _cost(pair[0], pair[1].paths, since, rates)
        after, _ = _cost(pair[1], pair[0].paths, since, rates)
        saved = before - after
    return RealisedSaving(
        snapshot=entry.public_id,
        timestamp=iso_timestamp(entry.timestamp_ms),
        policy=policy,
        queries=len(since),
        unused=unused,
        spent_seconds=spent,
        before_seconds=before,
        after_seconds=after,
        saved_seconds=saved,
        paid_back=None if saved is None or spent is None else saved >= spent,
        note="; ".join(notes),
    )


def _recorded(entry: VersionEntry) -> tuple[str, float | None]:
    """Return the policy of a recluster and the seconds that it took, as far as its commit says so."""
    found = entry.summary.detail.get("recluster")
    stated = found if isinstance(found, Mapping) else {}
    policy, spent = stated.get("policy"), stated.get("merge_seconds")
    name = policy if isinstance(policy, str) else ""
    if isinstance(spent, bool) or not isinstance(spent, int | float) or not math.isfinite(spent):
        return name, None
    return name, float(spent)


def _pair(entry: VersionEntry, version_of: VersionOf) -> tuple[TableView, TableView] | None:
    """Return the blocks before a commit and after; None if either can no longer be read."""
    if entry.parent is None:
        return None
    try:
        before, after = version_of(entry.parent), version_of(entry.id)
        return _view(before), _view(after)
    except (SnapshotNotFoundError, *GONE):  # it expired, maybe while it was read
        return None


def _view(version: Version) -> TableView:
    return table_view(version, View.of(version, AS_LISTED))


def _cost(view: TableView, others: pa.Array, queries: Sequence[Query], rates: Rates) -> tuple[float, int]:
    """Return the seconds that queries take to read blocks that are not among others, and how many were not usable."""
    wanted = others.combine_chunks() if isinstance(others, pa.ChunkedArray) else others
    known = pc.is_in(view.paths, value_set=wanted.cast(view.paths.type))
    chosen = np.flatnonzero(~np.asarray(known))
    compiled = Compiled(view=view)
    asked = compiled.asked(queries)
    return float(read_cost(compiled.blocks(asked, rates).pick(chosen), asked).sum()), compiled.unused
