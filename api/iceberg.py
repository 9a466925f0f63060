"""Iceberg tables of people's own catalogs: measured and planned as tables of the native format are."""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tblctl.as_of import AsOf, version_as_of
from tblctl.clustered import ClusteredTable
from tblctl.conditions import resolved
from tblctl.recorded import seconds_of
from tblctl.results import GcOutcome
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.errors import InvalidOptionError, TblctlError
from tblctl.tableformat.iceberg.location import is_iceberg, parse_catalog, parse_location
from tblctl.tableformat.storage.location import shown_url

__all__ = [
    "IcebergTable",
    "find_iceberg_tables",
    "from_iceberg",
    "is_iceberg",
    "open_iceberg",
    "refuse_for_native",
    "refuse_iceberg",
    "shown_location",
]

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table as PyIcebergTable

    from tblctl.results import Outcome
    from tblctl.selector.options import SelectOptions
    from tblctl.selector.plan import Plan
    from tblctl.selector.policy import Policy
    from tblctl.tableformat.iceberg.port import IcebergPort
    from tblctl.tableformat.iceberg.version import IcebergVersion
    from tblctl.tableformat.progress import Progress
    from tblctl.tableformat.workload.queries import Workload

    Where = str | BooleanExpression | None

LOG = logging.getLogger("tblctl")


class NotOnIcebergError(InvalidOptionError, AttributeError):
    """An operation that only tables of tblctl's own format have."""


class IcebergTable(ClusteredTable):
    """An Iceberg table: measured, planned and reclustered, beside all other writers of it."""

    def __getattr__(self, name: str) -> Any:
        """Explain that an operation of `Table` is not there."""
        from tblctl.table import Table

        if name.startswith("_") or not hasattr(Table, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise _not_here(name, self.location)

    def plan(
        self,
        policy: str | Policy | None = None,
        where: Where = None,
        options: Mapping[str, Any] | SelectOptions | None = None,
        *,
        cluster_by: str | Sequence[str] | None = None,
        workload: Workload | None = None,
    ) -> Plan:
        """Return what one round of `recluster` would do, and why. Nothing is written.

        The log warns if a recluster would be refused.

        Args:
            policy: as for `ClusteredTable.plan`.
            where: as for `ClusteredTable.plan`.
            options: as for `ClusteredTable.plan`.
            cluster_by: the key to plan by. None: that of the property `tblctl.cluster-by`, or else the sort order.
            workload: as for `ClusteredTable.plan`.

        Raises:
            InvalidKeyError: the table has no cluster key and none is given, or a term is not valid.
        """
        from tblctl.maintain.experience import rates_of
        from tblctl.maintain.request import (
            Request,
            planned,
            selectable,
            warn_of_other_order,
            workload_of_request,
        )

        request = Request.of(
            policy=policy,
            condition=lambda schema: resolved(where, schema),
            options=options,
            workload=workload,
        )

        def read(version: IcebergVersion) -> Plan:
            keyed = version if cluster_by is None else version.clustered_by(cluster_by)
            asked = request.on(keyed)
            chosen, view = selectable(keyed, asked)
            asked_of_it = workload_of_request(asked, self._port, chosen)
            found = planned(
                chosen, view, asked, workload=asked_of_it, rates=rates_of(self._port, version)
            ).plan
            warn_of_other_order(chosen, asked, found)
            _warn_if_refused(chosen)
            return found

        return self._read(read)  # type: ignore[arg-type]

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
        cluster_by: str | Sequence[str] | None = None,
        workload: Workload | None = None,
    ) -> Outcome:
        """Merge overlapping files, so that a key is in few of them, and commit REPLACE snapshots. Rows stay the same.

        Other writers neither wait nor fail; groups that they changed are left out.

        Args:
            plan: this, the next nine and `workload` are as for `ClusteredTable.recluster`.
            policy: the policy.
            where: which blocks.
            options: of the selection.
            final: run rounds until there is nothing to do.
            engine: what merges.
            spark: a session, or what makes one.
            on_conflict: what a conflict does.
            commit_every: when to commit.
            progress: is called as work goes on.
            cluster_by: the cluster key. The first commit sets the property `tblctl.cluster-by` to it; without one, the
                note says that the key stays. "same" makes new boundaries for a curve. None: the table's own key.
            workload: the queries.

        Raises:
            InvalidKeyError: the table has no cluster key and none is given, or a term is not valid.
            InvalidOptionError: also for format version 3, equality deletes, files that are encrypted or no Parquet.
            CommitOutcomeUnknownError: the catalog did not say whether it committed; no file was deleted.
        """
        self._require_live()
        port: IcebergPort = self._port  # type: ignore[assignment]
        keyed_port = port if cluster_by is None else port.clustered_by(cluster_by)
        keyed = self if cluster_by is None else IcebergTable(keyed_port)
        before, copied = port.newest().property_terms, keyed_port.entries_copied
        outcome = super(IcebergTable, keyed).recluster(
            plan,
            policy=policy,
            where=where,
            options=options,
            final=final,
            engine=engine,
            spark=spark,
            on_conflict=on_conflict,
            commit_every=commit_every,
            progress=progress,
            workload=workload,
        )
        notes = filter(None, (outcome.note, _key_note(outcome, before, port.newest(), cluster_by)))
        return replace(outcome, note="; ".join(notes), entries_copied=keyed_port.entries_copied - copied)

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
        """Execute a pending plan, as `ClusteredTable.recluster_pending` does."""
        port: IcebergPort = self._port  # type: ignore[assignment]
        copied = port.entries_copied
        outcome = super().recluster_pending(
            id, engine=engine, spark=spark, on_conflict=on_conflict, progress=progress, plans_at=plans_at
        )
        return replace(outcome, entries_copied=port.entries_copied - copied)

    def gc(  # type: ignore[override]
        self,
        older_than: float | str | datetime.timedelta = "24h",
        *,
        expire_older_than: float | str | datetime.timedelta | None = None,
        keep: int | None = None,
        dry_run: bool = False,
    ) -> GcOutcome:
        """Delete what tblctl itself left behind, and if asked to, expire snapshots and what they alone needed.

        Nothing that any snapshot in the metadata names is deleted, on whatever branch, nor files of other writers or
        tables. Branches, tags, `history.expire.*` and settings of branches are respected.

        Args:
            older_than: seconds, a timedelta, or text such as "24h", which is the least. Younger files stay.
            expire_older_than: expire older snapshots. None: if `keep` is given, those older than
                `history.expire.max-snapshot-age-ms`, or else 5 days; otherwise none expires.
            keep: how many of the newest snapshots of each branch stay.
            dry_run: delete nothing, and list what would be deleted.

        Raises:
            InvalidOptionError: nothing may be deleted here: `gc.enabled` is false, or the catalog hides history.
            ConflictError: another writer committed meanwhile; nothing was deleted.
            CommitOutcomeUnknownError: the catalog did not say whether snapshots expired; nothing was deleted.
        """
        self._require_live()
        port: IcebergPort = self._port  # type: ignore[assignment]
        age = expire_older_than
        found = port.collect(
            seconds_of(older_than, "older_than"),
            expires=keep is not None or expire_older_than is not None,
            age_ms=None if age is None else int(seconds_of(age, "expire_older_than") * 1000),
            keep=keep,
            dry_run=dry_run,
        )
        return GcOutcome(
            dry_run=dry_run,
            snapshots_expired=found.versions,
            objects_deleted=found.objects,
            bytes_deleted=found.size_bytes,
            note=found.note,
        )

    def delete_files(self) -> dict[str, int]:
        """Return how many live delete files there are: `position` (vectors among them), and `equality`."""
        from tblctl.tableformat.iceberg.deletes import EQUALITY, POSITION

        version: IcebergVersion = self._readable()  # type: ignore[assignment]
        content = version.deletes.entries.content
        return {"position": int((content == POSITION).sum()), "equality": int((content == EQUALITY).sum())}


def _warn_if_refused(version: IcebergVersion) -> None:
    """Log why a recluster of what was planned would be refused."""
    from tblctl.tableformat.iceberg.rewritable import refusal

    try:
        why = refusal(version)
    except TblctlError as error:  # delete files are not read for a plan
        why = str(error)
    if why is not None:
        LOG.warning("a recluster of %s would be refused: %s", version.location, why)


def _key_note(
    outcome: Outcome, before: str | None, newest: IcebergVersion, cluster_by: str | Sequence[str] | None
) -> str:
    """Say what became of the cluster key, if it was to change: the property named `before`."""
    after = newest.property_terms
    if outcome.commits == 0 and cluster_by is not None:
        return newest.kept_key(cluster_by)
    if outcome.commits and before not in {None, after}:
        return f"the cluster key (property tblctl.cluster-by) was {before}, and is {after} now"
    return ""


def from_iceberg(table: PyIcebergTable, *, branch: str = "main") -> IcebergTable:
    """Return the tblctl table of a PyIceberg table, which is not changed: each call loads the newest metadata.

    Args:
        table: of any catalog.
        branch: what readers see, and what reclusters write to.
    """
    from tblctl.tableformat.iceberg.port import IcebergPort

    return IcebergTable(IcebergPort.of_table(table, SYSTEM, branch=branch))


def open_iceberg(
    location: str | os.PathLike[str],
    *,
    catalog_options: Mapping[str, str] | None = None,
    branch: str = "main",
    as_of: AsOf = None,
    metadata_cache: str | os.PathLike[str] | None = None,
    refine: bool = False,
) -> IcebergTable:
    """Open a table of a catalog. It is looked up at once.

    Args:
        location: `iceberg://CATALOG/NAMESPACE.TABLE`.
        catalog_options: properties of the catalog, beside PyIceberg's own configuration.
        branch: what readers see.
        as_of: a snapshot's id, a tag or a branch, or a time, for the table as it was. None: as it is.
        metadata_cache: a folder of this machine to keep manifests of remote storage in. None: they are kept in memory.
        refine: also read the footers of Parquet files whose manifest has no bounds of a column, or inexact ones.

    Raises:
        InvalidOptionError: the location is malformed, or the catalog is not configured.
        TableNotFoundError, SnapshotNotFoundError: there is no such table, or no such branch.
    """
    from tblctl.tableformat.iceberg.port import IcebergPort
    from tblctl.tableformat.storage.file_cache import FileCache

    cache = None if metadata_cache is None else FileCache(Path(metadata_cache))
    place = parse_location(location)
    port = IcebergPort.of_catalog(
        place, catalog_options or {}, SYSTEM, branch=branch, cache=cache, refine=refine
    )
    newest = port.newest()
    return IcebergTable(port, pinned=None if as_of is None else version_as_of(port, as_of, newest))


def find_iceberg_tables(
    location: str | os.PathLike[str],
    *,
    catalog_options: Mapping[str, str] | None = None,
    namespace: str | None = None,
) -> list[str]:
    """Return the locations of all tables of a catalog, or of a namespace and those below it, sorted.

    Raises:
        TableNotFoundError: there is no table, or no such namespace.
    """
    from tblctl.tableformat.errors import TableNotFoundError
    from tblctl.tableformat.iceberg.catalog import find_tables, open_catalog
    from tblctl.tableformat.iceberg.location import parse_names

    place = parse_catalog(location)
    below = () if namespace is None else parse_names(namespace)
    if below is None:
        msg = f"{namespace!r:.200} is no namespace, expected names joined by dots; one with a dot is quoted"
        raise InvalidOptionError(msg)
    inside = (*place.table, *below)
    catalog = open_catalog(place.catalog, catalog_options or {})
    found = [str(table) for table in find_tables(catalog, place.catalog, inside)]
    if not found:
        msg = f"there is no table in {place}" + (f", namespace {namespace}" if namespace else "")
        raise TableNotFoundError(msg)
    return found


def shown_location(location: str) -> str:
    """Return a location without secrets. Names of tables have none, and may have any characters."""
    try:
        place = parse_location(location)
    except InvalidOptionError:
        return shown_url(location)
    return str(replace(place, catalog=shown_url(place.catalog)))


def refuse_for_native(**options: Any) -> None:
    """Refuse options of Iceberg tables, given by their names, for a table of the native format.

    Raises:
        InvalidOptionError: one is given.
    """
    for name, value in options.items():
        if value:
            msg = f"{name} is for Iceberg tables, whose locations are iceberg://CATALOG/NAMESPACE.TABLE"
            raise InvalidOptionError(msg)


def refuse_iceberg(location: str | os.PathLike[str], what: str) -> None:
    """Refuse an Iceberg table where only the native format has an operation.

    Raises:
        InvalidOptionError: the location is one of Iceberg.
    """
    if is_iceberg(location):
        raise _not_here(what, os.fspath(location))


_SETTING = frozenset({"create", "tblctl create", "tblctl alter", "set_options"})
"""What sets options of a table, `recluster.mode` among them."""


def _not_here(what: str, location: str) -> NotOnIcebergError:
    text = (
        f"{what} is for tables of tblctl's own format; {location} is an Iceberg table: "
        "use an engine that writes to it"
    )
    if what in _SETTING:
        text += (
            ". No recluster.mode follows its engines' commits, since tblctl does not make them: `tblctl recluster LOC "
            "--watch 5m` keeps it clustered"
        )
    return NotOnIcebergError(text)
