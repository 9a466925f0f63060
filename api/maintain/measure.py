"""How well a table is clustered: figures from a version's metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tblctl.maintain.boxes import boxes_of
from tblctl.maintain.view import View
from tblctl.metrics.information import ClusteringInfo
from tblctl.tableformat.errors import InvalidKeyError, InvalidOptionError
from tblctl.tableformat.keys.curve_keys import CurveKeys
from tblctl.tableformat.keys.kinds import key_leaves, key_maker
from tblctl.tableformat.model.cluster_key import Sort, parse_key
from tblctl.tableformat.model.curve import LEAST_COLUMNS, MOST_COLUMNS
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.port import Version

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

ConditionFor: TypeAlias = "Callable[[Schema], BooleanExpression | None]"
"""Returns the condition for one version's columns; None for all blocks. It fits no other version."""

_ANY_ID = 1
"""The id of a sort that exists for measuring only. No block has its keys; column statistics bound them."""


@dataclass(frozen=True, kw_only=True)
class MeasuredVersion:
    """A version of a table and how well it is clustered."""

    snapshot: int | str
    info: ClusteringInfo

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values, with the snapshot's number."""
        return {"snapshot": self.snapshot, **self.info.to_dict()}


def table_info(
    version: Version,
    columns: str | Sequence[str] | None,
    condition: BooleanExpression | None,
    *,
    worst: int,
    boxes: bool = False,
) -> ClusteringInfo:
    """Return the figures of the blocks that may hold rows satisfying the condition.

    Args:
        version: what to measure.
        columns: terms to measure by, as if the table were clustered by them; None for its cluster key.
        condition: None for all blocks.
        worst: return at most this many of the deepest ranges.
        boxes: also measure the boxes of a key of 2 to 4 columns that is no curve.

    Raises:
        InvalidKeyError: no `columns`, and the table has no cluster key.
        InvalidOptionError: `worst` is negative.
    """
    if worst < 0:
        msg = f"worst is {worst}, expected at least 0"
        raise InvalidOptionError(msg)
    sort = sort_to_measure(version, columns)
    pruned = version.pruned(condition)
    found = _info(pruned, sort, condition, clustered=columns is None, worst=worst, boxes=boxes)
    return found if columns is not None else replace(found, live_sorts=_live_sorts(pruned, sort, condition))


def _info(
    version: Version,
    sort: Sort,
    condition: BooleanExpression | None,
    *,
    clustered: bool,
    worst: int = 0,
    boxes: bool = False,
) -> ClusteringInfo:
    view = View.of(version, sort, condition, clustered=clustered)
    found = replace(view.info(worst), outside=_outside(version, view))
    return with_boxes(found, version, sort, condition, any_key=boxes)


def _live_sorts(
    version: Version, key: Sort, condition: BooleanExpression | None
) -> tuple[ClusteringInfo, ...]:
    """Return the figures of the blocks in the order of each live sort beside the key."""
    views = (View.of(version, sort, condition) for number, sort in version.sorts.items() if number != key.id)
    return tuple(view.info_of_clustered() for view in views)


def with_boxes(
    found: ClusteringInfo,
    version: Version,
    sort: Sort,
    condition: BooleanExpression | None,
    *,
    any_key: bool = False,
) -> ClusteringInfo:
    """Return the figures of a version's blocks by `sort`, with those of boxes if it is a curve.

    `any_key`: also if it is another key of as many columns as a curve may have.
    """
    ids = key_maker(sort).column_ids
    if not sort.is_curve and not (any_key and LEAST_COLUMNS <= len(ids) <= MOST_COLUMNS):
        return found
    return replace(found, boxes=boxes_of(version, ids, condition))


def _outside(version: Version, view: View) -> tuple[tuple[str, float], ...]:
    """Return for each column of a curve the share of the rows that lie beyond its boundaries; see `ClusteringInfo`."""
    maker = key_maker(view.sort)
    if not isinstance(maker, CurveKeys):
        return ()
    found = maker.outside(version.statistics(key_leaves(view.sort, version.schema)), version.schema)
    rows, matched = view.listing.stored_rows, view.listing.matched
    rows = rows if matched is None else np.where(matched, rows, 0)
    return tuple((name, float(rows[blocks].sum() / max(rows.sum(), 1))) for name, blocks in found.items())


def measure_versions(
    versions: Sequence[Version], columns: str | Sequence[str] | None, condition: ConditionFor
) -> tuple[MeasuredVersion, ...]:
    """Return the figures of versions of one table, all by the key of the last one. Otherwise as `table_info`.

    Raises:
        InvalidKeyError: as `shared_sort`.
    """
    sort = shared_sort(versions, columns)

    def measured(version: Version) -> MeasuredVersion:
        asked = condition(version.schema)
        info = _info(version.pruned(asked), sort, asked, clustered=columns is None)
        return MeasuredVersion(snapshot=version.public_id, info=info)

    return tuple(map(measured, versions))


def shared_sort(versions: Sequence[Version], columns: str | Sequence[str] | None) -> Sort:
    """Return the sort to measure all versions of one table by: the last one's, or the one that `columns` define.

    Raises:
        InvalidKeyError: as `sort_to_measure`; or a version lacks a column of it.
    """
    last = versions[-1]
    sort = sort_to_measure(last, columns)
    for version in versions:
        ids = key_maker(sort).column_ids
        missing = [column_id for column_id in ids if version.schema.leaf_by_id(column_id) is None]
        names = [leaf.name for leaf in map(last.schema.leaf_by_id, missing) if leaf]
        if names:
            msg = (
                f"snapshot {version.public_id} of {version.location} has no column {', '.join(names)} to measure by; "
                f"name columns that snapshots {version.public_id} and {last.public_id} both have (`--columns a,b`)"
            )
            raise InvalidKeyError(msg)
    return sort


def sort_to_measure(version: Version, columns: str | Sequence[str] | None) -> Sort:
    """Return the sort that `columns` define, or for None the version's own.

    Raises:
        InvalidKeyError: no `columns`, and the table has no cluster key; or they are a curve, and there are no rows.
    """
    if columns is not None:
        key = parse_key(columns, version.schema)
        if key.is_layout:  # it is made from rows, and kept in memory only
            return version.sort_by(", ".join(key.texts(version.schema)))
        return Sort(id=_ANY_ID, terms=key.terms)
    if version.sort is None:
        msg = (
            f"{version.location} has no cluster key to measure by; name columns (`--columns a,b`), or "
            f"{version.cluster_hint}. `recluster --policy size` needs none"
        )
        raise InvalidKeyError(msg)
    return version.sort
