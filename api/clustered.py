"""A table of any format: look at it, measure it, keep it clustered."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from tblctl.as_of import AsOf, version_as_of
from tblctl.conditions import resolved
from tblctl.recorded import Recorded, seconds_of
from tblctl.results import CheckReport, GcOutcome, Outcome, PendingPlan, ScheduledPlan, SnapshotInfo
from tblctl.tableformat.errors import InvalidOptionError, TblctlError
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.port import TablePort, Version
from tblctl.tableformat.progress import Progress

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from tblctl.advise.estimate import Estimate
    from tblctl.advise.suggest import Suggestion
    from tblctl.maintain.measure import MeasuredVersion
    from tblctl.metrics.information import ClusteringInfo
    from tblctl.pictures.depths import DepthPoint
    from tblctl.pictures.file import Drawing
    from tblctl.selector.options import SelectOptions
    from tblctl.selector.plan import Plan
    from tblctl.selector.policy import Policy
    from tblctl.tableformat.pending import PendingPlans
    from tblctl.tableformat.workload.queries import Workload

    Where = str | BooleanExpression | None

ResultT = TypeVar("ResultT")


class ClusteredTable(Recorded):
    """A table of any format, behind the port.

    A handle that is `pinned` to a version only reads it. Other handles act on the newest version. Handles can be shared
    between threads and pickled. Their repr holds no secrets.
    """

    def __init__(self, port: TablePort[Any], *, pinned: Version | None = None) -> None:
        self._port = port
        self._pinned = pinned
        self._in_background: str | None = None  # the table's id, once this handle began a recluster there

    def close(self, *, wait: bool = True) -> None:
        """Wait for the recluster that this handle began in the background; the handle can still be used afterwards.

        Without `recluster.mode=async` there is nothing to wait for. In a `with` statement, this is called at its end;
        after an exception without `wait`.

        Args:
            wait: until the round is done. False: stop it; what it has committed stays. It stops where it would report
                progress: not while it plans, nor while it waits, 10 seconds at most, to try again what lost a race.
        """
        if self._in_background is not None:
            from tblctl.maintain import background

            background.BACKGROUND.end(self._in_background, wait=wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(wait=kind is None)

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def location(self) -> str:
        """Where the table is, without user information."""
        return self._port.location

    @property
    def schema(self) -> pa.Schema:
        """The columns, in the types they were declared with."""
        return self._version().schema.logical

    @property
    def cluster_by(self) -> tuple[str, ...]:
        """The cluster key's terms; empty without one."""
        version = self._version()
        return key_maker(version.sort).texts(version.schema) if version.sort else ()

    @property
    def options(self) -> dict[str, Any]:
        """The options, by name."""
        return self._version().options.to_json()

    @property
    def snapshot(self) -> SnapshotInfo:
        """The version that reads see now."""
        newest = self._port.newest()
        return SnapshotInfo.of(self._port.entry(self._pinned or newest, newest=newest))

    def history(self, limit: int | None = None) -> list[SnapshotInfo]:
        """Return the versions, newest first; those that gc expired are no longer `readable`."""
        return [SnapshotInfo.of(entry) for entry in self._port.history(limit)]

    def _version(self) -> Version:
        """Return the version that reads see, for its own properties."""
        return self._pinned or self._port.newest()

    def _readable(self) -> Version:
        """Return the version that reads see, to read its metadata. A pinned handle keeps no metadata in memory."""
        pinned = self._pinned
        version: Version = self._port.newest() if pinned is None else self._port.version(pinned.id)
        return version

    def _read(self, read: Callable[[Version], ResultT]) -> ResultT:
        """Return what `read` returns for the version that reads see: a newer one, if the newest expires meanwhile."""
        from tblctl.maintain.newest import on_newest

        return on_newest(self._port, read) if self._pinned is None else read(self._readable())

    def _require_live(self) -> None:
        if self._pinned is not None:
            msg = (
                f"this handle of {self.location} is pinned to snapshot {self._pinned.public_id} and only reads; "
                "open the table without as_of to change it"
            )
            raise InvalidOptionError(msg)

    def __repr__(self) -> str:
        pinned = f", as_of={self._pinned.public_id}" if self._pinned else ""
        return f"tblctl.{type(self).__name__}({self.location!r}{pinned})"

    def _repr_html_(self) -> str:
        """Return the table for a notebook; where it cannot be read, what `repr` returns and why."""
        from tblctl.metrics.html import fields_html, table_html

        try:
            version, snapshot = self._version(), self.snapshot
        except TblctlError as error:
            return fields_html(repr(self), {"cannot be read": str(error)})
        fields = {
            "snapshot": str(snapshot.sequence),
            "rows": snapshot.rows,
            "blocks": snapshot.blocks,
            "bytes": snapshot.bytes,
            "cluster key": ", ".join(self.cluster_by) or "(none)",
        }
        columns = [(field.name, str(field.type)) for field in version.schema.logical]
        return fields_html(self.location, fields) + table_html(("column", "type"), columns)

    # -- how well it is clustered -------------------------------------------------------------------------------

    def info(
        self,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
        *,
        worst: int = 5,
        boxes: bool = False,
    ) -> ClusteringInfo:
        """Return how well the table is clustered.

        Args:
            columns: measure as if clustered by these terms, from column statistics; None for the cluster key.
            where: only the blocks that may hold rows satisfying the condition.
            worst: return at most this many of the deepest ranges of keys.
            boxes: also measure how well blocks separate the columns of a key of 2 to 4 columns. Keys along a curve are
                measured so in any case.

        Raises:
            InvalidKeyError: no `columns` and no cluster key; or a term is not valid.
            ConflictError: gc removed version after version while they were read.
        """
        from tblctl.maintain.measure import table_info

        return self._read(
            lambda version: table_info(
                version, columns, resolved(where, version.schema), worst=worst, boxes=boxes
            )
        )

    def compare(
        self, before: AsOf, after: AsOf, *, columns: str | Sequence[str] | None = None, where: Where = None
    ) -> tuple[MeasuredVersion, ...]:
        """Return how well two versions are clustered, both by the key of the second. Versions are named as in `open`.

        Arguments and errors are as for `picture`.
        """
        from tblctl.maintain.measure import measure_versions

        newest = self._port.newest()
        versions = [version_as_of(self._port, as_of, newest) for as_of in (before, after)]
        return measure_versions(versions, columns, lambda schema: resolved(where, schema))

    def depth_history(self, limit: int = 20) -> tuple[DepthPoint, ...]:
        """Return average depth and overlaps after each of the last snapshots, newest first.

        Figures that reclusters recorded are used. The others are measured if their snapshots can still be read.
        """
        from tblctl.pictures.depths import depth_history

        newest = self._port.newest()
        entries = list(self._port.history(limit, start=newest))
        return depth_history(entries, partial(self._port.version, newest=newest))

    def suggest(self, predicates: str | Sequence[str] | None = None, *, layouts: bool = False) -> Suggestion:
        """Return columns that the table could be clustered by, best first, from its statistics alone.

        Args:
            predicates: typical conditions of queries: a text with one in each line, or each ended by `;`; or several
                texts with one condition each. Columns rank by the blocks that these would read. None: conditions that
                are drawn from the log of the table's queries, newer ones more often; without a log, columns rank by
                depth.
            layouts: rank linear keys, curves and trees, too, by what the conditions would read. Columns that they
                test are read, of at most 256 row groups.

        Raises:
            InvalidPredicateError: names line and column in the text.
            InvalidOptionError: with `layouts`: no condition tests a column that can be a key, there are no rows, or
                these are plain files or a Delta table, whose rows are not read here.
            ConflictError: as for `info`.
        """
        from tblctl.advise.asked import suggestion

        return self._read(lambda version: suggestion(self._port, version, predicates, layouts=layouts))

    def estimate(
        self,
        *,
        days: float = 30,
        target_depth: float = 4.0,
        policy: str | Policy | None = None,
        price_per_gib: float | None = None,
        price_per_hour: float | None = None,
    ) -> Estimate:
        """Return what keeping an average depth costs a day, from what arrived lately and a simulation of the policy.

        Args:
            days: of the table's history to look at.
            target_depth: at least 1.
            policy: as for `plan`.
            price_per_gib: of files that are read to be merged.
            price_per_hour: of all machines that merge.

        Raises:
            InvalidOptionError: a number is not positive, or there is no such policy.
            InvalidKeyError: the table has no cluster key, and the policy needs one.
        """
        from tblctl.advise.estimate import estimate

        return estimate(
            self._port,
            days=days,
            target_depth=target_depth,
            policy=policy,
            price_per_gib=price_per_gib,
            price_per_hour=price_per_hour,
        )

    def picture(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
        compare: tuple[AsOf, AsOf] | None = None,
    ) -> Drawing:
        """Draw how well the table is clustered: where its blocks lie, how deep they are, and the history of both.

        Return the drawing, which a notebook shows.

        Args:
            path: the file; an existing one is replaced. Its name ends with .svg, .png or .html. The HTML page describes
                the block under the pointer. None: no file is written.
            columns: as for `info`.
            where: as for `info`.
            compare: two versions, named as in `open`, side by side on one axis of keys, by the key of the second.

        Raises:
            InvalidOptionError: the format is unknown, the file cannot be written, or matplotlib (the extra `pictures`)
                is not installed.
            InvalidKeyError: as for `info`.
            SnapshotNotFoundError: `compare` names no readable snapshot.
        """
        from tblctl.pictures.file import Drawing, check_drawing, write_picture
        from tblctl.pictures.picture import history_up_to, make_picture

        check_drawing(path)
        newest = self._port.newest()
        shown = (
            [self._readable()]
            if compare is None
            else [version_as_of(self._port, as_of, newest) for as_of in compare]
        )
        history = history_up_to(shown[-1], self._port, newest=newest)
        text = None if where is None else str(where)
        found = make_picture(shown, columns, lambda schema: resolved(where, schema), history, where=text)
        if path is not None:
            write_picture(found, path)
        return Drawing(found)

    # -- keeping it in order --------------------------------------------------------------------------------

    def plan(
        self,
        policy: str | Policy | None = None,
        where: Where = None,
        options: Mapping[str, Any] | SelectOptions | None = None,
        *,
        workload: Workload | None = None,
    ) -> Plan:
        """Return what one round of `recluster` would do, and why. Nothing is written.

        Args:
            policy: levels, full, runs, or the name of one that a program registered or a package offers; or a policy
                itself (`tblctl.policies`). None: that of the table's option `recluster.policy`, or else levels.
            where: only blocks that may hold rows satisfying the condition are merged.
            options: what to select, and the limits; see `tblctl.SelectOptions`. Sizes may be text.
            workload: the queries that a policy such as workload follows (`tblctl.Workload`).

        Raises:
            InvalidKeyError: the table has no cluster key.
            InvalidOptionError: lists every problem.
            ConflictError: gc removed version after version while they were read.
        """
        from tblctl.maintain.experience import rates_of
        from tblctl.maintain.request import Request, make_plan

        request = Request.of(
            policy=policy,
            condition=lambda schema: resolved(where, schema),
            options=options,
            workload=workload,
        )
        return self._read(
            lambda version: make_plan(version, request, rates=rates_of(self._port, version), port=self._port)
        )

    def recluster(
        self,
        plan: Plan | None = None,
        *,
        policy: str | Policy | None = None,
        where: Where = None,
        options: Mapping[str, Any] | SelectOptions | None = None,
        final: bool = False,
        engine: str = "auto",
        spark: Any = None,
        on_conflict: str = "salvage",
        commit_every: int | str | datetime.timedelta | None = None,
        progress: Progress | None = None,
        workload: Workload | None = None,
    ) -> Outcome:
        """Merge overlapping blocks, so that a key is in few of them. The rows stay the same; writers are not held up.

        Args:
            plan: what to merge, from `plan`; groups of it that others changed since are reported and left out.
            policy: as for `plan`.
            where: only blocks that may hold rows satisfying the condition are merged.
            options: see `tblctl.SelectOptions`; sizes may be text.
            final: run rounds until there is nothing to do. Otherwise one round runs, and another one if it committed
                nothing because groups failed; the blocks of failed groups are then left alone. Limits of bytes, seconds
                and money hold for all rounds together, the others for each. Blocks that are not sorted by the current
                key are merged too, unless the options forbid it. Beside a writer that never pauses it may never end.
            engine: local (this process), spark, or auto: Spark if a session is given, or above 64 GiB in memory.
            spark: your SparkSession, classic or Connect, which is not stopped. Or a function that returns a context
                manager for one, such as `lambda: tblctl.spark_session(master="spark://h:7077")`; it is called when
                there is something to merge. None: a session on this machine, if needed.
            on_conflict: what to do if other writers removed blocks of a group. salvage commits the other groups. fail
                raises and commits nothing more; with `commit_every`, the round's earlier commits stay.
            commit_every: commit after so many merged groups (8), or a merged group once so much time has passed since
                the last commit ("60s", a timedelta). None: at the end; beside another writer each group.
            progress: called with (done, total, unit); the unit is rows or groups of the round.
            workload: as for `plan`.

        Raises:
            InvalidKeyError: the table has no cluster key.
            InvalidOptionError: arguments contradict each other, or the plan is of another table.
            ConflictError: with `on_conflict="fail"`.
        """
        from tblctl.maintain.choose_engine import engines, likely_name
        from tblctl.maintain.recluster import recluster
        from tblctl.maintain.request import Request

        _refuse_beside_plan(plan, policy, where, options, workload, final or None)
        request = Request.of(
            policy=policy,
            condition=lambda schema: resolved(where, schema),
            options=options,
            final=final,
            on_conflict=on_conflict,
            commit_every=commit_every,
            progress=progress,
            workload=workload,
        )
        self._require_live()
        with engines(engine, spark, self.location) as named:
            return recluster(self._port, request, named, plan=plan, expected=likely_name(engine, spark))

    # -- plans kept for later ---------------------------------------------------------------------------------------

    def schedule(
        self,
        policy: str | Policy | None = None,
        where: Where = None,
        options: Mapping[str, Any] | SelectOptions | None = None,
        *,
        expires: float | str | datetime.timedelta = "7d",
        plans_at: str | None = None,
        workload: Workload | None = None,
    ) -> ScheduledPlan:
        """Make the plan of a round, and keep it for `recluster_pending`, in this process or others.

        Blocks in groups of pending plans are not selected again. A pending plan keeps nobody from writing: groups whose
        blocks others replace drop out when it is executed. A plan without groups is not kept.

        Args:
            policy: as for `plan`.
            where: as for `plan`.
            options: as for `plan`.
            expires: how long it may be executed: seconds, a timedelta, or text such as "7d". gc removes it afterwards.
            plans_at: Iceberg: the folder or URL where plans are kept; None for the table's property `tblctl.plans`.
            workload: as for `plan`.

        Raises:
            InvalidKeyError: the table has no cluster key.
            InvalidOptionError: lists every problem.
        """
        from tblctl.maintain.experience import rates_of
        from tblctl.maintain.pending import lifetime_of, schedule
        from tblctl.maintain.request import Request, make_plan

        request = Request.of(
            policy=policy,
            condition=lambda schema: resolved(where, schema),
            options=options,
            workload=workload,
        )
        lifetime = lifetime_of(expires)
        self._require_live()
        env = self._port.env
        return schedule(
            self._plans(plans_at),
            lambda pending: self._read(
                lambda version: make_plan(
                    version,
                    request,
                    pending=pending,
                    rates=rates_of(self._port, version),
                    env=env,
                    port=self._port,
                )
            ),
            lifetime_seconds=lifetime,
        )

    def recluster_pending(
        self,
        id: str | None = None,
        *,
        engine: str = "auto",
        spark: Any = None,
        on_conflict: str = "salvage",
        progress: Progress | None = None,
        plans_at: str | None = None,
    ) -> Outcome:
        """Execute a pending plan. Several processes may do so at once: each takes the groups that no other one took.

        A group is claimed before it is merged. Claims that were not renewed for half an hour are free again; a process
        renews its own as long as it lives. Each commit has as many groups as keep the engine busy. Seconds and money of
        the plan's budget count for all commits of a call together. The last process removes the plan. `note` says what
        was left out, and why.

        Args:
            id: of the plan; None for the oldest that has groups nobody took.
            engine: as for `recluster`.
            spark: as for `recluster`.
            on_conflict: as for `recluster`.
            progress: as for `recluster`, for the groups of each commit.
            plans_at: where plans are kept, as for `schedule`.

        Raises:
            InvalidOptionError: there is no such plan, it has expired, or it is of another table.
            InvalidDataError: it is damaged, was edited, or is of another version of tblctl; without `id`: none of the
                pending plans can be executed for such a reason; or the folder `plans_at` is missing.
            ConflictError: with `on_conflict="fail"`.
        """
        from tblctl.maintain.choose_engine import engines
        from tblctl.maintain.pending import PendingJob, execute
        from tblctl.maintain.request import Request

        request = Request.of(
            policy=None,
            condition=lambda _schema: None,
            options=None,
            on_conflict=on_conflict,
            progress=progress,
        )
        self._require_live()
        with engines(engine, spark, self.location) as engine_for:
            plans = self._kept_plans(plans_at)
            job = PendingJob(port=self._port, plans=plans, request=request, engine=engine_for)
            return execute(job, id)

    def pending_plans(self, *, plans_at: str | None = None) -> list[PendingPlan]:
        """Return the pending plans, oldest first, expired ones among them. Nothing is written.

        Raises:
            InvalidDataError: the folder `plans_at` is missing.
        """
        from tblctl.maintain.pending import list_plans

        return list_plans(self._port, self._kept_plans(plans_at))

    def cancel_plan(self, id: str, *, plans_at: str | None = None) -> PendingPlan:
        """Remove a pending plan. A process that executes it commits the groups that it has begun, and no others.

        Raises:
            InvalidOptionError: there is no such plan, or it is of another table.
            InvalidDataError: the folder `plans_at` is missing.
        """
        from tblctl.maintain.pending import cancel

        self._require_live()
        return cancel(self._port, self._kept_plans(plans_at), id)

    def _plans(self, place: str | None) -> PendingPlans:
        from tblctl.tableformat.pending import PendingPlans

        return PendingPlans(self._port.plan_storage(place), self._port.env, self.location)

    def _kept_plans(self, place: str | None) -> PendingPlans:
        """Return the plans at a place, to look at. If somebody names the place, it has to be there."""
        plans = self._plans(place)
        if place is not None:
            plans.require_place()
        return plans

    def gc(
        self,
        keep: int = 10,
        older_than: float | str | datetime.timedelta = "24h",
        *,
        dry_run: bool = False,
    ) -> GcOutcome:
        """Expire old versions, and delete objects that nothing names any more.

        Args:
            keep: how many of the newest versions stay, besides tagged ones; gc's own versions do not count.
            older_than: seconds, a timedelta, or text such as "24h". Younger objects stay, by the storage's clock. A
                write that takes longer than this is refused at its commit (`ConflictError`); a shorter one never is.
            dry_run: delete nothing; ages are then by this machine's clock.

        Raises:
            ClockError: this machine's clock and the storage's differ by more than five minutes.
        """
        seconds = seconds_of(older_than, "older_than")
        self._require_live()
        found = self._port.collect_garbage(keep=keep, older_than_seconds=seconds, dry_run=dry_run)
        return GcOutcome(
            dry_run=dry_run,
            snapshots_expired=found.versions,
            objects_deleted=found.objects,
            bytes_deleted=found.size_bytes,
        )

    def check(self, deep: bool = False, *, progress: Progress | None = None) -> CheckReport:
        """Verify every invariant of the format; `deep` reads all data too. Changes nothing."""
        found = self._port.check(deep=deep, progress=progress)
        return CheckReport(
            ok=not found.problems,
            deep=deep,
            snapshots=found.snapshots,
            segments=found.segments,
            blocks=found.blocks,
            rows=found.rows,
            problems=found.problems,
        )


def _refuse_beside_plan(plan: Plan | None, *given: Any) -> None:
    """Refuse what says how to plan, beside a plan.

    Raises:
        InvalidOptionError: any of it is given.
    """
    if plan is not None and any(item is not None for item in given):
        others = "policy, where, options, workload and final"
        msg = f"a plan fixes what one round does: leave out either the plan, or {others}"
        raise InvalidOptionError(msg)
