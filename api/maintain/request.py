"""What a caller asks of a recluster, and its plan for one version of a table."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tblctl.conditions import resolved
from tblctl.maintain.boxes import boxes_of_blocks
from tblctl.maintain.view import View
from tblctl.merger.round.commit_every import AT_END, BESIDE_OTHERS, CommitEvery
from tblctl.merger.round.conflicts import OnConflict
from tblctl.metrics.intervals import Integers
from tblctl.policies import flags, policy_of
from tblctl.selector import planner
from tblctl.selector.option_fields import options_of
from tblctl.selector.options import Parts, SelectOptions, parts
from tblctl.selector.plan import Plan
from tblctl.selector.planner import Planned
from tblctl.selector.policy import Policy, Rates, State, Workload, sort_terms, works_without_key
from tblctl.selector.table_view import TableView
from tblctl.tableformat.environment import SYSTEM, Environment
from tblctl.tableformat.errors import (
    InvalidKeyError,
    InvalidOptionError,
)
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.model.cluster_key import AS_LISTED, Key, Sort
from tblctl.tableformat.model.curve import is_bare
from tblctl.tableformat.model.options import POLICY
from tblctl.tableformat.model.runs import NO_RUN
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.text_scanner import quote_name
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.port import TablePort, Version, VersionT
from tblctl.tableformat.predicate.boxes import Box, Place, boxes_of
from tblctl.tableformat.progress import Progress
from tblctl.workload.log import workload_for

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

LOG = logging.getLogger("tblctl")

ConditionOf = Callable[[Schema], "BooleanExpression | None"]
"""Given a schema, returns the condition on its columns; None for all rows."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a caller asks for, independent of any table.

    Attributes:
        policy: decides what to merge.
        asked: the options as the caller gave them, where it named no policy: the table may name one (`on`). Else None.
        condition: given the schema, which blocks may be selected: those that may hold rows satisfying it.
        options: for the policy, the planner and the merge.
        final: run rounds until there is nothing to do.
        on_conflict: what to do in a conflict.
        commit_every: when a round commits before its end.
        workload: the queries that the policy is to follow; None for those that the table's log has.
        limited_by: why the budget is smaller than asked for, for people; empty if it is not.
    """

    policy: Policy
    condition: ConditionOf
    options: Parts
    final: bool = False
    on_conflict: OnConflict = OnConflict.SALVAGE
    commit_every: CommitEvery = BESIDE_OTHERS
    progress: Progress | None = None
    asked: Mapping[str, Any] | SelectOptions | None = None
    workload: Workload = None
    limited_by: str = ""

    @property
    def may_plan_again(self) -> bool:
        """Whether groups that other writers took blocks of before they began are planned again."""
        return self.commit_every.adapts and self.on_conflict is OnConflict.SALVAGE

    @classmethod
    def of(
        cls,
        *,
        policy: str | Policy | None,
        condition: ConditionOf,
        options: Mapping[str, Any] | SelectOptions | None,
        final: bool = False,
        on_conflict: str = OnConflict.SALVAGE,
        commit_every: int | str | datetime.timedelta | None = None,
        progress: Progress | None = None,
        workload: Workload = None,
    ) -> Request:
        """Return the request; `final` selects unclustered blocks too, unless the options say otherwise.

        Raises:
            InvalidOptionError: a name or value that is none, or something that is no policy.
        """
        chosen = policy_of(policy)
        given: Any = options
        if given is not None and not isinstance(given, Mapping | SelectOptions):
            msg = (
                f"options is {options!r:.80}, expected a mapping such as {{'threshold': 4}} or SelectOptions"
            )
            raise InvalidOptionError(msg)
        given = progress
        if given is not None and not callable(given):
            msg = f"progress is {progress!r:.80}, expected a function of (done, total, unit)"
            raise InvalidOptionError(msg)
        choice = OnConflict.named(on_conflict)
        fails = choice is OnConflict.FAIL
        return cls(
            policy=chosen,
            condition=condition,
            options=parts(chosen, options, final=final) if policy else _common_parts(chosen, options, final),
            asked=None if policy else options or {},
            final=final,
            on_conflict=choice,
            # With FAIL, nothing of a round stays if a group conflicts, unless the caller asked for several commits.
            commit_every=AT_END if fails and commit_every is None else CommitEvery.of(commit_every),
            progress=progress,
            workload=workload,
        )

    def on(self, version: Version) -> Request:
        """Return the request with the policy of a table's option `recluster.policy`, if the caller named none.

        Raises:
            InvalidOptionError: there is no such policy, or it does not have an option that the caller gave.
        """
        if self.asked is None:
            return self
        name = version.options.recluster_policy
        try:
            chosen = policy_of(name)
        except InvalidOptionError as error:
            raise InvalidOptionError(f"{version.location} has {POLICY}={name}: {error}") from error
        _refuse_others(chosen, self.asked, "by default" if name is None else f"by the table's {POLICY}")
        options = parts(chosen, self.asked, final=self.final)
        return replace(self, policy=chosen, options=options, asked=None)


def _refuse_others(policy: Policy, asked: Mapping[str, Any] | SelectOptions, why: str) -> None:
    """Refuse options that only other policies have.

    Raises:
        InvalidOptionError: there is one.
    """
    strange = (
        asked.keys() - {item.name for item in options_of(policy.options)}
        if isinstance(asked, Mapping)
        else ()
    )
    for flag in flags() if strange else ():
        if (name := flag.option.name) in strange:
            others = " or ".join(flag.policies)
            msg = f"policy {policy.name} ({why}) does not take {name}: leave {name} out, or choose policy {others}"
            raise InvalidOptionError(msg)


def _common_parts(policy: Policy, asked: Mapping[str, Any] | SelectOptions | None, final: bool) -> Parts:
    """Return the options without those that only other policies have: maybe the table names one of them.

    Raises:
        InvalidOptionError: an option that no policy has, or a wrong value.
    """
    if not isinstance(asked, Mapping):
        return parts(policy, asked, final=final)
    own = {item.name for item in options_of(policy.options)}
    others = {flag.option.name for flag in flags()} - own if asked.keys() - own else set()
    return parts(policy, {name: value for name, value in asked.items() if name not in others}, final=final)


def make_plan(
    version: Version,
    request: Request,
    *,
    pending: Collection[str] = (),
    rates: Rates = None,
    env: Environment = SYSTEM,
    port: TablePort[Any] | None = None,
) -> Plan:
    """Return the plan of the policy for a version.

    Args:
        version: of the table.
        request: what the caller asked for.
        pending: paths of blocks in groups of plans that are kept for later: they may not be selected.
        rates: as in `planned`.
        env: the policy's clock and source of randomness.
        port: the table, whose log of queries a policy gets that wants it; None for no log.

    Raises:
        InvalidKeyError: the table has no cluster key.
        InvalidPredicateError, UnknownColumnError: the condition does not fit the table.
    """
    request = request.on(version)
    version, view = selectable(version, request)
    from tblctl.maintain.credit import within_savings

    workload = workload_of_request(request, port, version)
    request = within_savings(request, port, version, workload)
    found = planned(version, view, request, pending=pending, workload=workload, rates=rates, env=env).plan
    warn_of_other_order(version, request, found)
    return found


def workload_of_request(
    request: Request,
    port: TablePort[Any] | None,
    version: Version,
    *,
    lately: Callable[[Version], Workload] | None = None,
) -> Workload:
    """Return the queries that the policy gets: those of the request, or else of `lately`, or of the table's log.

    The log is read only where nothing else is there.
    """
    if request.workload is not None:
        return request.workload
    return workload_for(request.policy, port, version) if lately is None else lately(version)


def warn_of_other_order(version: Version, request: Request, plan: Plan) -> None:
    """Log that blocks leave the order of the cluster key, if the plan sorts them by columns that were asked for."""
    key, asked = version.sort, asked_sort(version, request)
    if key is None or asked is None or asked.id == key.id or not plan.groups:
        return
    LOG.warning(
        "%s is clustered by %s, but the plan sorts %d blocks by %s: they leave the order of the cluster key, and no "
        "depth counts them from then on. Without columns to sort by they stay in it",
        version.location,
        ", ".join(key_maker(key).texts(version.schema)),
        sum(len(group.blocks) for group in plan.groups),
        ", ".join(key_maker(asked).texts(version.schema)),
    )


def selectable(version: VersionT, request: Request, *, executes: bool = False) -> tuple[VersionT, View]:
    """Return the version without partitions that the condition excludes, and its blocks by its cluster key.

    Blocks that may match are marked. Without a key, blocks are listed as they come, if the policy works with these.

    Args:
        version: of the table.
        request: has the condition, and the policy.
        executes: a plan that was made before is carried out, whatever the policy.

    Raises:
        InvalidKeyError: the table has no cluster key, and the policy needs one; or terms of the policy's are not valid.
        InvalidPredicateError, UnknownColumnError: the condition does not fit the table.
    """
    if not executes:
        require_key(version, request.policy)
    condition = request.condition(version.schema)
    pruned = version.pruned(condition)
    beside = asked_sort(version, request)
    return pruned, View.of(pruned, version.sort or AS_LISTED, condition, runs=True, beside=beside)


def require_key(version: Version, policy: Policy) -> None:
    """Refuse a table without a cluster key for a policy that needs one.

    Raises:
        InvalidKeyError: it is one.
    """
    if version.sort is None and not works_without_key(policy):
        msg = (
            f"{version.location} has no cluster key to recluster by; {version.cluster_hint}. Without a key, "
            "--policy size stitches small blocks as they come"
        )
        raise InvalidKeyError(msg)


def asked_sort(version: Version, request: Request) -> Sort | None:
    """Return the sort that the policy's options name; None if they name none.

    Raises:
        InvalidKeyError: its terms are not valid.
    """
    terms = sort_terms(request.policy, request.options.policy)
    if terms is None:
        return None
    try:
        return version.sort_by(terms)
    except InvalidKeyError as error:
        msg = f"sort_columns {terms!r:.200}: {error}"
        raise InvalidKeyError(msg, **error.details, option="sort_columns") from error


def planned(
    version: Version,
    view: View,
    request: Request,
    failed: Collection[str] = (),
    *,
    pending: Collection[str] = (),
    workload: Workload = None,
    state: State = None,
    rates: Rates = None,
    env: Environment = SYSTEM,
    with_advice: bool = True,
) -> Planned:
    """Return the policy's plan, and its state for the next plan.

    Args:
        version: of the table.
        view: its blocks by its cluster key.
        request: what the caller asked for.
        failed: paths of blocks that may not be selected, since they failed to merge.
        pending: paths of blocks that may not be selected, since a plan that is kept for later has them.
        workload: what the table was asked lately (`workload_of_request`); see `Policy.decide`.
        state: that of the plan before.
        rates: what reading and rewriting take; None for the stated defaults.
        env: the policy's clock and source of chance.
        with_advice: False where nobody reads it.
    """
    found = planner.plan(
        table_view(version, view, failed, pending, asked_sort=asked_sort(version, request)),
        request.policy,
        request.options.policy,
        request.options.budget,
        memory_bytes=request.options.memory_bytes,
        workload=workload,
        state=state,
        rates=rates,
        now=env.now(),
        rng=env.random,
        with_advice=with_advice,
    )
    plan = with_boundaries(version, found.plan)
    if request.limited_by and "max_seconds" in {item.rule for item in plan.rejected}:
        plan = replace(plan, note=f"{plan.note}; {request.limited_by}")
    return replace(found, plan=plan)


def with_boundaries(version: Version, plan: Plan) -> Plan:
    """Return a plan whose new curves have boundaries. Policies decide without: rows are read for those that it has."""
    for bare in plan.sorts:
        if not (bare.is_curve and is_bare(bare.parameters)):
            continue
        key = Key(kind=bare.kind, terms=bare.terms)
        made = version.sort_by(", ".join(key.texts(version.schema)))
        taken = {sort.id for sort in plan.sorts}
        if made.id in taken:  # the table does not know which ids the plan gave away
            made = replace(made, id=bare.id)
        plan = replace(
            plan,
            sorts=tuple(made if sort.id == bare.id else sort for sort in plan.sorts),
            groups=tuple(
                replace(group, sort_id=made.id) if group.sort_id == bare.id else group
                for group in plan.groups
            ),
        )
    return plan


def table_view(
    version: Version,
    view: View,
    failed: Collection[str] = (),
    pending: Collection[str] = (),
    *,
    asked_sort: Sort | None = None,
) -> TableView:
    """Return the blocks of a version as policies see them. `failed` and `pending` are paths of blocks to mark so."""
    listing, blocks = view.listing, view.blocks
    return TableView(
        table_id=version.table_id,
        snapshot=version.public_id,
        sort_id=view.sort.id,
        sorts=version.sorts,
        sort_ids=listing.sort_id,
        next_sort_id=version.next_sort_id,
        table_options=version.options,
        paths=listing.paths,
        **vars(blocks),
        decoded_bytes=listing.decoded_bytes,
        same_key_rows=listing.same_key_rows,
        restricted=listing.matched,
        failed=view.named(failed) if failed else None,
        pending=view.named(pending) if pending else None,
        partition=listing.partition,
        partition_values=listing.partitions if any(listing.partitions) else None,
        listed_twice=listing.listed_twice,
        inexact=view.is_inexact,
        truncated_run=listing.truncated_run,
        figures_of=view.figures_of,
        **({} if listing.run is None else {"run": listing.run}),
        bounds_of=partial(_bounds_of, version),
        boxes_of=boxes_of_blocks(version, view.sort) if view.sort.is_curve else None,
        spares=None,
        may_ask=None,
        condition_boxes=partial(_condition_boxes, version),
        sort_by=partial(_sort_by, version),
        written_levels=partial(_written_levels, version),
        runs_in=partial(_runs_in, version),
        column_count=len(version.schema.leaves),
        asked_sort=asked_sort,
        deletions_of=version.deletions,
    )


def _bounds_of(version: Version, column: str) -> tuple[pa.Array, pa.Array, Integers]:
    """Return bounds of a column in each block, and how many nulls; see `TableView.bounds_of`."""
    leaf = version.schema.leaf(column)
    statistics = version.statistics([leaf])
    found = statistics.column(leaf)
    if found is None:
        unknown = pa.nulls(len(statistics.row_count), statistic_type(leaf.type))
        return unknown, unknown, np.full(len(unknown), -1)
    return found.min, found.max, found.null_count


def _condition_boxes(version: Version, where: str, place: Place) -> tuple[Box, ...]:
    """Return the boxes of a condition; see `TableView.condition_boxes`."""
    return boxes_of(resolved(where, version.schema), place)


def _sort_by(version: Version, columns: tuple[str, ...]) -> Sort:
    """Return the sort by one column, or the Hilbert curve through several; see `TableView.sort_by`."""
    terms = ", ".join(quote_name(column) for column in columns)
    return version.sort_by(terms if len(columns) == 1 else f"hilbert({terms})", reads_rows=False)


def _written_levels(version: Version) -> Integers:
    """Return the levels with which blocks were written; see `TableView.written_levels`."""
    found: Integers = version.listing(AS_LISTED, None).level
    return found


def _runs_in(version: Version, sort: Sort) -> Integers:
    """Return the runs of the blocks in the order of a sort; see `TableView.runs_in`."""
    listing = version.listing(sort, None, clustered=False, runs=True, beside=sort)
    run = NO_RUN if listing.run is None else listing.run
    found: Integers = np.where(listing.sort_id == sort.id, run, NO_RUN)
    return found
