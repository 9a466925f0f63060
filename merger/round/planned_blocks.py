"""The sort and the blocks of each planned group, as the version to be merged has them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tblctl.merger.round.conflicts import conflicts, left_the_table
from tblctl.merger.round.group_run import GroupRun, State
from tblctl.selector.plan import Group, Plan
from tblctl.tableformat.errors import (
    CorruptTableError,
    InvalidDataError,
    ObjectNotFoundError,
    SnapshotNotFoundError,
)
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import AS_LISTED, Sort
from tblctl.tableformat.port import TablePort, Version, VersionT


def find_blocks_unless_expired(
    port: TablePort[VersionT],
    version: VersionT,
    runs: Collection[GroupRun],
    added: Sequence[Sort],
    *,
    salvages: bool,
) -> None:
    """Do `find_blocks`. If gc removed the version meanwhile, all groups conflict."""
    try:
        find_blocks(version, runs, added, salvages=salvages)
    except CorruptTableError:
        if port.newest().id == version.id:
            raise
        for run in runs:
            if run.is_open:
                run.move(State.CONFLICTED, f"snapshot {version.public_id} expired while it was read")


def require_blocks_of_base(
    port: TablePort[Any], version: Version, plan: Plan, runs: Iterable[GroupRun]
) -> None:
    """Refuse a plan with blocks that had not even been there when it was made. Reads nothing where no block is missing.

    Groups that would go on without lost blocks have the planned figures with them. If the version that the plan was
    made on is gone, nobody knows: then nothing is refused, and these groups conflict.

    Raises:
        InvalidDataError: it names such blocks, or other figures: it is another table's, or was edited.
    """
    lost = [run for run in runs if run.lost]
    if not lost:
        return
    found = _blocks_of_base(port, version, plan, [path for run in lost for path in run.lost])
    if found is None:
        for run in lost:
            if run.is_open:
                run.blocks = ()
                run.move(
                    State.CONFLICTED, f"{left_the_table(run.lost)}, and snapshot {plan.snapshot} expired"
                )
        return
    if strange := {path for run in lost for path in run.lost} - found.keys():
        first = next(run for run in lost if strange & set(run.lost))
        msg = (
            f"group {first.number} of the plan names {min(strange & set(first.lost))!r:.200}, which was not in "
            f"snapshot {plan.snapshot} of {version.location}, for which the plan was made: it is of another table, or "
            "was edited; nothing was changed: plan again"
        )
        raise InvalidDataError(msg, plan_field="blocks", group=first.number)
    planned = {group.number: group for group in plan.groups}
    for run in lost:
        if run.is_open:
            require_figures(planned[run.number], [*run.blocks, *(found[path] for path in run.lost)])


def _blocks_of_base(
    port: TablePort[Any], version: Version, plan: Plan, paths: Sequence[str]
) -> Mapping[str, Block] | None:
    """Return those of some blocks that the version has that the plan was made on; None if it is gone."""
    base_id = port.parse_id(str(plan.snapshot))
    if base_id is None:
        return None
    try:
        base: Version = port.version(base_id, newest=version)
        return base.blocks(paths)
    except (SnapshotNotFoundError, CorruptTableError, ObjectNotFoundError):
        return None


def planned_sorts(version: Version, added: Iterable[Sort]) -> dict[int, Sort]:
    """Return the sorts, by id, of which a plan that brings `added` may have groups in a version.

    These are live ones, `added` among them only if they are as planned; those of `added` whose id is still free; and
    that of rows as they come, if the table has no cluster key.
    """
    brought = {sort.id: sort for sort in added}
    fresh = {number: sort for number, sort in brought.items() if version.may_add(sort)}
    unsorted = {} if version.sort else {AS_LISTED.id: AS_LISTED}
    found = {**fresh, **version.sorts, **unsorted}
    return {number: sort for number, sort in found.items() if sort == brought.get(number, sort)}


def find_blocks(
    version: Version, runs: Iterable[GroupRun], added: Sequence[Sort] = (), *, salvages: bool = False
) -> None:
    """Give every group its sort and its blocks from the version. Groups that are no longer as planned conflict.

    A group is as planned if its sort is live, current or not, and the one that it was at planning; or if it is among
    `added`, those that the plan brings, and its id is still free. One that lost few blocks goes on if one `salvages`.
    One whose rows stay as they come needs a table that still has no cluster key.

    Raises:
        InvalidDataError: a group's figures differ from those of its blocks, or it has blocks of several partitions.
    """
    brought = {sort.id for sort in added}
    sorts = planned_sorts(version, added)
    waiting = []
    for run in runs:
        number = run.group.sort_id
        run.sort = sorts.get(number)
        if run.sort is None and number not in brought:
            run.move(State.CONFLICTED, "the cluster key was altered since the plan")
        elif run.sort is None:
            run.move(
                State.CONFLICTED, f"sort {number}, which it brings, ended or is another one since the plan"
            )
        else:
            waiting.append(run)
    wanted = {run.number: run.group.blocks for run in waiting}
    paths = list(itertools.chain.from_iterable(wanted.values()))
    found = version.blocks(paths)
    dropped = conflicts(wanted, frozenset(paths) - found.keys())
    for run in waiting:
        run.blocks = tuple(found[path] for path in run.group.blocks if path in found)
        lost = dropped.get(run.number, ())
        if lost and not (salvages and run.goes_on_without(lost)):
            run.blocks, run.lost = (), lost
            run.move(State.CONFLICTED, left_the_table(lost))
            continue
        require_figures(run.group, run.blocks)


def require_given(port: TablePort[VersionT], version: VersionT, plan: Plan) -> None:
    """Refuse a plan of a version, or with groups of a sort, that its table never had.

    Raises:
        InvalidDataError: it was edited; `details` has the `plan_field`.
    """
    if not plan.groups:
        return
    base_id = port.parse_id(str(plan.snapshot))
    if base_id is None or not port.ever_had(base_id, newest=version):
        msg = (
            f"the plan says that it was made on snapshot {plan.snapshot!r:.80}, which {version.location} never had; "
            f"its newest is {version.public_id}. It was edited; plan again"
        )
        raise InvalidDataError(msg, plan_field="snapshot")
    brought = {sort.id for sort in plan.sorts} | {AS_LISTED.id}
    for group in plan.groups:
        if group.sort_id not in brought and not port.ever_had_sort(group.sort_id, newest=version):
            known = ", ".join(map(str, sorted(brought | version.sorts.keys())))
            msg = (
                f"group {group.number} of the plan: sort_id is {group.sort_id}, expected one of {known}, which are "
                f"live in {version.location}, or brought by the plan: it was edited; plan again"
            )
            raise InvalidDataError(msg, plan_field="sort_id", group=group.number)


def require_figures(group: Group, blocks: Sequence[Block]) -> None:
    """Refuse a group of which the plan says other things than its blocks do, or that crosses partitions.

    Raises:
        InvalidDataError: it does; `details` has the `plan_field`.
    """
    figures = {
        "rows": sum(block.stored_rows for block in blocks),
        "size_bytes": sum(block.size_bytes for block in blocks),
        "decoded_bytes": sum(block.decoded_bytes for block in blocks),
    }
    refuse_other_figures(group, figures, {block.partition for block in blocks})


_NAME = re.compile(r"(.*?)(?:(?:^| )\(spec (\d+)\))?(?:(?:^| )#([0-9a-f]{12}))?\Z", re.DOTALL)
"""The name of a partition. An Iceberg table adds the spec once that is not the current one, and a hash once two
partitions would have one name: so the name of one partition may change after the plan."""


def _same_partition(one: str, other: str) -> bool:
    """Return whether two names may be of one partition: what both say agrees."""
    (name, *more), (other_name, *others) = (_NAME.fullmatch(text).groups() for text in (one, other))  # type: ignore[union-attr]
    return name == other_name and all(
        None in pair or len({*pair}) == 1 for pair in zip(more, others, strict=True)
    )


def refuse_other_figures(group: Group, figures: Mapping[str, int], partitions: Collection[str]) -> None:
    """Do `require_figures` by the sums over the group's blocks, and the partitions that these are in."""
    places = sorted(partitions)
    if len(places) > 1:
        msg = (
            f"group {group.number} of the plan has blocks of {len(places)} partitions, such as {places[0]!r} "
            f"and {places[1]!r}; blocks are merged within a partition only: plan again"
        )
        raise InvalidDataError(msg, plan_field="partition", group=group.number)
    said = {name: getattr(group, name) for name in figures}
    expected: dict[str, Any] = dict(figures)
    if places and not _same_partition(group.partition or "", places[0]):
        said["partition"], expected["partition"] = group.partition or "", places[0]
    for name, value in said.items():
        if value != expected[name]:
            msg = (
                f"group {group.number} of the plan: {name} is {value!r:.80}, expected {expected[name]!r:.80}, as its "
                "blocks have it: the plan was edited, or the table has changed; plan again"
            )
            raise InvalidDataError(msg, plan_field=name, group=group.number)
