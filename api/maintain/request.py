"""What a caller asks of a recluster, and the plan that follows from it for one version of a table."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tblctl.maintain.view import View
from tblctl.merger.round.commit_every import AT_END, CommitEvery
from tblctl.merger.round.conflicts import OnConflict
from tblctl.selector.advice import advised
from tblctl.selector.candidates import Context
from tblctl.selector.options import SelectOptions
from tblctl.selector.plan import Plan
from tblctl.selector.registry import DEFAULT_POLICY, policy_named
from tblctl.tableformat.errors import (
    InvalidKeyError,
    InvalidOptionError,
)
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.port import Version
from tblctl.tableformat.progress import Progress

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

Condition = Callable[[Schema], "BooleanExpression | None"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a caller asks for, before any table was looked at.

    Attributes:
        policy: its name.
        condition: given the schema, which blocks may be selected: those that may hold rows satisfying it.
        options: for the policy and the merge.
        final: round after round, until there is nothing to do.
        on_conflict: what a conflict does.
        commit_every: when a round commits before its end.
    """

    policy: str
    condition: Condition
    options: SelectOptions
    final: bool = False
    on_conflict: OnConflict = OnConflict.SALVAGE
    commit_every: CommitEvery = AT_END
    progress: Progress | None = None

    @classmethod
    def of(
        cls,
        *,
        policy: str | None,
        condition: Condition,
        options: Mapping[str, Any] | SelectOptions | None,
        final: bool = False,
        on_conflict: str = OnConflict.SALVAGE,
        commit_every: int | str | datetime.timedelta | None = None,
        progress: Progress | None = None,
    ) -> Request:
        """Return the request; `final` selects unclustered blocks too, unless the options say otherwise.

        Raises:
            InvalidOptionError: a name or value that is none.
        """
        policy_named(DEFAULT_POLICY if policy is None else policy)
        given: Any = options
        if given is not None and not isinstance(given, Mapping | SelectOptions):
            msg = (
                f"options is {options!r:.80}, expected a mapping such as {{'threshold': 4}} or SelectOptions"
            )
            raise InvalidOptionError(msg)
        given = progress
        if given is not None and not callable(given):
            msg = f"progress is {progress!r:.80}, expected something to call with (done, total, unit)"
            raise InvalidOptionError(msg)
        found = options if isinstance(options, SelectOptions) else SelectOptions.from_mapping(options or {})
        if final and found.include_unclustered is None:
            found = dataclasses.replace(found, include_unclustered=True)
        return cls(
            policy=policy or DEFAULT_POLICY,
            condition=condition,
            options=found,
            final=final,
            on_conflict=OnConflict.named(on_conflict),
            commit_every=CommitEvery.of(commit_every),
            progress=progress,
        )


def make_plan(version: Version, request: Request) -> Plan:
    """Return what the policy decides for a version.

    Raises:
        InvalidKeyError: the table has no cluster key.
        InvalidPredicateError, UnknownColumnError: of the condition.
    """
    return plan_view(version, view_of(version, request.condition), request)


def view_of(version: Version, condition: Condition) -> View:
    """Return the version's blocks by its cluster key, those that `condition` leaves marked.

    Raises:
        InvalidKeyError: the table has no cluster key.
        InvalidPredicateError, UnknownColumnError: of the condition.
    """
    if version.sort is None:
        msg = (
            f"{version.location} has no cluster key to recluster by; give it one: `tblctl alter LOC --cluster-by a,b` "
            "or `table.set_cluster_key(...)`"
        )
        raise InvalidKeyError(msg)
    return View.of(version, version.sort, condition(version.schema))


def plan_view(version: Version, view: View, request: Request, failed: Collection[str] = ()) -> Plan:
    """Return what the policy decides for all blocks of a version but those that `failed`, given by their paths."""
    context = Context(
        table_id=version.table_id,
        snapshot=version.public_id,
        sort_id=view.sort.id,
        blocks=view.blocks,
        options=request.options,
        table_options=version.options,
        restricted=view.listing.matched,
        failed=view.named(failed) if failed else None,
    )
    return advised(context, policy_named(request.policy)(context))
