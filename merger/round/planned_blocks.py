"""The sort and the blocks of each planned group, as the version to be merged has them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tblctl.merger.round.conflicts import conflicts, left_the_table
from tblctl.merger.round.group_run import GroupRun, State
from tblctl.selector.plan import Plan
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

    Groups that would go on without lost blocks have the planned rows with them. If the version that the plan was made
    on is gone, nobody knows: then nothing is refused, and these groups conflict.

    Raises:
        InvalidDataError: it names such blocks, or other rows: it is another table's, or was edited.
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
        raise InvalidDataError(msg)
    planned_rows = {group.number: group.rows for group in plan.groups}
    for run in lost:
        if run.is_open:
            _require_rows(run, planned_rows[run.number], [*run.blocks, *(found[path] for path in run.lost)])


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
        InvalidDataError: a group's row count differs from that of its blocks, or it has blocks of several partitions.
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
        _require_as_planned(run)


def _require_as_planned(run: GroupRun) -> None:
    """Refuse a group whose row count differs from the plan, or that crosses partitions.

    Raises:
        InvalidDataError: it does.
    """
    _require_rows(run, run.group.rows, run.blocks)
    partitions = sorted({block.partition for block in run.blocks})
    if len(partitions) > 1:
        msg = (
            f"group {run.number} of the plan has blocks of {len(partitions)} partitions, such as {partitions[0]!r} "
            f"and {partitions[1]!r}; blocks are merged within a partition only: plan again"
        )
        raise InvalidDataError(msg)


def _require_rows(run: GroupRun, planned_rows: int, blocks: Iterable[Block]) -> None:
    """Refuse a group whose blocks have other rows than planned.

    Raises:
        InvalidDataError: they have.
    """
    rows = sum(block.stored_rows for block in blocks)
    if rows != planned_rows:
        msg = (
            f"group {run.number} of the plan says {planned_rows} rows, its blocks have {rows}: "
            "the plan was altered; plan again"
        )
        raise InvalidDataError(msg)
