"""Changes of a table that write no data: schema, cluster key, options, tags, rollback.

Each function takes the head and returns the next snapshot's content. It is called again after every lost race.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tblctl.tableformat.errors import (
    InvalidKeyError,
    InvalidOptionError,
    InvalidSchemaError,
    SnapshotNotFoundError,
)
from tblctl.tableformat.keys.kinds import has_key_columns, key_leaves, key_maker
from tblctl.tableformat.model.cluster_key import Key, Sort, Term, parse_key
from tblctl.tableformat.model.curve import SAME, means_same
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.snapshot import (
    ROLLBACK,
    ColumnBounds,
    SegmentRef,
    Snapshot,
    Summary,
    iso_timestamp,
)
from tblctl.tableformat.model.values import value_to_json, values_from_json
from tblctl.tableformat.native.log.names import SNAPSHOTS
from tblctl.tableformat.parquet.read_errors import damaged
from tblctl.tableformat.port import SortConflictError

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}")


def change_schema(head: Snapshot, change: Callable[[Schema], Schema], detail: Mapping[str, Any]) -> Snapshot:
    """Return the head with `change` applied to its schema.

    Raises:
        InvalidKeyError: the cluster key needs a column unchanged.
    """
    # Ids are never used twice, even if a rollback restored a schema with a lower last id.
    last_id = max(schema.last_column_id for schema in head.schemas.values())
    old = dataclasses.replace(head.schema, last_column_id=last_id)
    new = change(old)
    _check_key(head, old, new)
    schema_id = max(head.schemas) + 1
    changed = dataclasses.replace(
        head,
        schemas={**head.schemas, schema_id: new},
        schema_id=schema_id,
        live_beside=tuple(
            sort_id for sort_id in head.live_beside if _keeps_order(head.sorts[sort_id], old, new)
        ),
        segments=tuple(_with_bounds_of(segment, old, new) for segment in head.segments),
    )
    return summarised(changed.without_ended_layouts(), "alter", detail)


def _check_key(head: Snapshot, old: Schema, new: Schema) -> None:
    """Refuse to drop columns of the key, or to widen them if blocks would leave its order.

    After other widenings, blocks stay in the order of the key with the same id. Their keys are widened when read, like
    statistics.
    """
    if head.sort is None:
        return
    maker = key_maker(head.sort)
    for column_id in maker.column_ids:
        before, after = old.leaf_by_id(column_id), new.leaf_by_id(column_id)
        if before is None or (after is not None and after.type == before.type):
            continue
        what, why = "dropped", "needs it"
        if after is not None:
            problem = maker.widening_problem(before, after)
            if problem is None:
                continue
            what, why = f"changed to {after.type}", f"needs it unchanged: {problem}"
        msg = (
            f"column {before.name} cannot be {what}: the cluster key ({key_text(head)}) {why}. Change the key first: "
            "`tblctl alter LOC --cluster-by ...` or `--drop-cluster-by`"
        )
        raise InvalidKeyError(msg, column=before.name)


def _with_bounds_of(segment: SegmentRef, old: Schema, new: Schema) -> SegmentRef:
    """Return the segment with its bounds in the new types, without bounds of dropped columns."""
    bounds = {}
    for column_id, value in segment.bounds.items():
        before, after = old.leaf_by_id(column_id), new.leaf_by_id(column_id)
        if before is not None and after is not None:
            bounds[column_id] = _recoded(value, before, after)
    return dataclasses.replace(segment, bounds=bounds)


def _recoded(bounds: ColumnBounds, before: Leaf, after: Leaf) -> ColumnBounds:
    kind = statistic_type(after.type)
    if kind == statistic_type(before.type):
        return bounds
    try:
        values: pa.Array = values_from_json([bounds.min, bounds.max], statistic_type(before.type))
    except ValueError as error:
        raise damaged(f"{SNAPSHOTS} (the newest there): bounds of {before.name}", error) from error
    try:
        values = values.cast(kind)
    except pa.ArrowInvalid as error:
        msg = (
            f"column {before.name} cannot be widened to {after.type}: it has values that do not fit ({error})"
        )
        raise InvalidSchemaError(msg, column=before.name) from error
    return ColumnBounds(
        min=value_to_json(values[0]), max=value_to_json(values[1]), null_count=bounds.null_count
    )


MakeLayout = Callable[[Snapshot, Key], tuple[tuple[Term, ...], tuple[tuple[str, Any], ...]]]
"""Makes the terms and parameters of a curve or a tree from the rows of a snapshot."""


def set_key(head: Snapshot, terms: str | Sequence[str], make_layout: MakeLayout, why: str = "") -> Snapshot:
    """Return the head with the cluster key `terms`, and why. A definition that the table had before keeps its id.

    It gets a new id if a column of it was ever widened: widening checks only live sorts, and a bucket of a date differs
    from the bucket of the same moment. A live curve keeps its boundaries, unless `terms` are `SAME`; an ended one that
    is set again gets new ones. A tree is made anew each time, since its file may have changed; the same tree keeps its
    id.

    Raises:
        InvalidKeyError: the key is not valid; or `SAME`, but the present key is no curve.
    """
    is_curve = head.sort is not None and head.sort.is_curve
    renews = means_same(terms, head.schema.names, is_curve=is_curve)
    key = _present_curve(head) if renews else parse_key(terms, head.schema)
    if not key.terms and not key.tree:
        msg = "a cluster key needs at least one term; `--drop-cluster-by` removes the key"
        raise InvalidKeyError(msg)
    made = _new_sort(head, key, make_layout) if renews or key.tree else None
    same = [sort for sort in head.sorts.values() if _is_it(sort, key, made) and _is_valid(head, sort)]
    sort = same[0] if same else made or _new_sort(head, key, make_layout)
    sorts = {**head.sorts, sort.id: sort}
    changed = dataclasses.replace(head, sorts=sorts, cluster_key_id=sort.id, live_beside=())
    detail = {"cluster_by": list(key.texts(head.schema)), **({"why": why} if why else {})}
    return summarised(changed.without_ended_layouts(), "alter", detail)


def _is_it(sort: Sort, key: Key, made: Sort | None) -> bool:
    """Return whether a sort is that of the key: for a tree the one that was made; a curve that was made is new."""
    if made is None:
        return key.is_of(sort)
    return bool(key.tree) and (sort.terms, sort.parameters) == (made.terms, made.parameters)


def _present_curve(head: Snapshot) -> Key:
    if head.sort is None or not head.sort.is_curve:
        present = f"is {key_text(head)}" if head.sort else "is not set"
        msg = f"`{SAME}` makes new boundaries for a zorder or hilbert key, but the cluster key {present}"
        if head.sort and head.sort.is_layout:
            msg += "; type it again to grow a new tree from its file"
        raise InvalidKeyError(msg)
    return Key(kind=head.sort.kind, terms=head.sort.terms)


def _is_valid(head: Snapshot, sort: Sort) -> bool:
    """Return whether blocks with the id of a sort are in its order."""
    return sort.id == head.cluster_key_id or not _was_widened(head, sort)


def _new_sort(head: Snapshot, key: Key, make_layout: MakeLayout) -> Sort:
    terms, parameters = make_layout(head, key) if key.is_layout else (key.terms, ())
    return Sort(id=head.next_sort_id, kind=key.kind, terms=terms, parameters=parameters)


def _keeps_order(sort: Sort, old: Schema, new: Schema) -> bool:
    """Return whether blocks stay in the order of a sort: its columns exist, with the same types."""
    before, after = key_leaves(sort, old), key_leaves(sort, new)
    return [(leaf.id, leaf.type) for leaf in before] == [(leaf.id, leaf.type) for leaf in after]


def add_sorts(base: Snapshot, head: Snapshot, sorts: Sequence[Sort]) -> Snapshot:
    """Return the head with some sorts live, beside those that are, for blocks that were put into their order in `base`.

    A sort that ended since `base` is not added again: whoever ended it wants no blocks in its order, and blocks that
    have its id may have left that order when a column was widened.

    Raises:
        SortConflictError: what others did since `base` stands against one of them.
    """
    found = problems_of_adding(base, head, sorts)
    if found:
        texts = (f"sort {number} cannot be added: {problem}" for number, problem in sorted(found.items()))
        raise SortConflictError(f"{'; '.join(texts)} since the plan; plan again", sorts=tuple(sorted(found)))
    fresh = {sort.id: sort for sort in sorts}
    live = (head.live_sorts.keys() | fresh.keys()) - {head.cluster_key_id}
    return dataclasses.replace(
        head, sorts={**head.sorts, **fresh}, live_beside=tuple(sorted(item for item in live if item))
    )


def problems_of_adding(base: Snapshot, head: Snapshot, sorts: Iterable[Sort]) -> dict[int, str]:
    """Return why some of the sorts cannot become live (`add_sorts`), by their ids."""
    problems = {sort.id: _problem_of_adding(sort, base, head) for sort in sorts}
    return {number: problem for number, problem in problems.items() if problem}


def _problem_of_adding(sort: Sort, base: Snapshot, head: Snapshot) -> str | None:
    """Return why a sort cannot become live in the head with blocks that were sorted in `base`."""
    if head.sorts.get(sort.id, sort) != sort:
        return "another sort has its id"
    if not has_key_columns(sort, head.schema):
        return "a column of it was dropped"
    if not _keeps_order(sort, base.schema, head.schema):
        return "a column of it was changed"
    if sort.id in head.live_sorts:
        return None
    if sort.id < head.next_sort_id:
        return "it has ended"
    return None if head.cluster_key_id == base.cluster_key_id else "the cluster key was altered"


def _was_widened(head: Snapshot, sort: Sort) -> bool:
    return any(
        len({leaf.type for schema in head.schemas.values() if (leaf := schema.leaf_by_id(column_id))}) > 1
        for column_id in key_maker(sort).column_ids
    )


def drop_key(head: Snapshot) -> Snapshot:
    """Return the head without a cluster key."""
    if head.cluster_key_id is None:
        msg = "the table has no cluster key to drop"
        raise InvalidKeyError(msg)
    changed = dataclasses.replace(head, cluster_key_id=None, live_beside=())
    return summarised(changed.without_ended_layouts(), "alter", {"cluster_by": []})


def set_options(head: Snapshot, values: Mapping[str, Any]) -> Snapshot:
    """Return the head with some options changed."""
    changed = dataclasses.replace(head, options=head.options.updated(values))
    return summarised(changed, "alter", {"options": {key: str(value) for key, value in values.items()}})


def set_tag(head: Snapshot, name: str, sequence: int) -> Snapshot:
    """Return the head with the tag `name` on the snapshot `sequence`, which must be retained."""
    if not _TAG.fullmatch(name):
        msg = f"tag {name!r:.140}: expected a letter or _, then up to 127 letters, digits, '_', '.' or '-'"
        raise InvalidOptionError(msg)
    _check_retained(head, sequence)
    return summarised(
        dataclasses.replace(head, tags={**head.tags, name: sequence}),
        "tag",
        {"tag": name, "sequence": sequence},
    )


def delete_tag(head: Snapshot, name: str) -> Snapshot:
    """Return the head without the tag `name`."""
    if name not in head.tags:
        known = ", ".join(sorted(head.tags)) or "none"
        msg = f"there is no tag {name!r:.140}; tags: {known}"
        raise SnapshotNotFoundError(msg)
    rest = {tag: sequence for tag, sequence in head.tags.items() if tag != name}
    return summarised(dataclasses.replace(head, tags=rest), "untag", {"tag": name})


def roll_back(head: Snapshot, target: Snapshot) -> Snapshot:
    """Return a snapshot with the rows, schema, cluster key and options of `target`, an older one."""
    _check_retained(head, target.sequence)
    restored = dataclasses.replace(
        head,
        segments=target.segments,
        schema_id=target.schema_id,
        sorts={**head.sorts, **target.live_sorts},
        cluster_key_id=target.cluster_key_id,
        live_beside=target.live_beside,
        options=target.options,
        imports=target.imports,  # those files' rows are in the table, no others
    )
    before, after = _paths(head), _paths(target)
    return summarised(
        restored.without_ended_layouts(),
        ROLLBACK,
        {
            "to": target.sequence,
            "segments_removed": len(before - after),
            "segments_added": len(after - before),
        },
    )


def reset_clock(head: Snapshot, now_us: int) -> Snapshot:
    """Return the head as a reset of the clock: its timestamp may be less than that of the snapshot before.

    The horizon may decrease too, but not below now: a gc lists what it deletes before it commits a higher horizon.
    """
    changed = dataclasses.replace(
        head,
        horizon_us=min(head.horizon_us, now_us),
        clock_resets=(*head.clock_resets, head.sequence + 1),
    )
    return summarised(changed, "alter", {"clock_reset_from": iso_timestamp(head.timestamp_ms)})


def _paths(snapshot: Snapshot) -> set[str]:
    return {segment.path for segment in snapshot.segments}


def _check_retained(head: Snapshot, sequence: int) -> None:
    if not head.is_retained(sequence):
        msg = f"snapshot {sequence} expired and is no longer readable; `tblctl history` shows which are"
        raise SnapshotNotFoundError(msg, sequence=sequence)


def summarised(snapshot: Snapshot, operation: str, detail: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot with a summary for an operation that writes no rows."""
    summary = Summary(
        operation=operation,
        rows=snapshot.row_count,
        blocks=snapshot.block_count,
        data_bytes=snapshot.data_bytes,
        detail=dict(detail),
    )
    return dataclasses.replace(snapshot, summary=summary)


def key_terms(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the current cluster key's terms as text; empty without one."""
    return key_maker(snapshot.sort).texts(snapshot.schema) if snapshot.sort else ()


def key_text(snapshot: Snapshot) -> str:
    """Return the current cluster key in one line."""
    return ", ".join(key_terms(snapshot))
