"""Pending plans and claims of their groups: objects beside a table that several processes share.

A pending plan is one object, written once under a new name. It expires: its name says how many seconds it lives from
the storage's time of the object on. A claim is an object that one process creates if it is absent, so of several
processes one gets a group. It is free again once it was not renewed for some time: the next process creates the claim
of the next attempt. A process that ends without its plan removes what claims there are of it, its own among them.

Both are hints that spare work. Nothing waits for them, nothing depends on them: a commit decides by the blocks of the
newest version alone. Ages are by the storage's clock on both sides.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import (
    CommitOutcomeUnknownError,
    InvalidDataError,
    InvalidOptionError,
    TblctlError,
    UnsupportedFormatError,
)
from tblctl.tableformat.native.log.checked_json import has_checksum, with_checksum
from tblctl.tableformat.native.log.clock import write_probe
from tblctl.tableformat.native.log.names import (
    CLAIMS,
    MOST_ATTEMPTS,
    MOST_GROUPS,
    MOST_PLAN_SECONDS,
    PLANS,
    claim_of,
    claim_path,
    claims_of,
    is_plan_id,
    plan_of,
    plan_path,
)
from tblctl.tableformat.storage import Storage

LOG = logging.getLogger("tblctl")

PENDING_VERSION = 1
"""Version of the object around a plan, whose own version is the plan's. A reader refuses a higher one."""


LONGEST_SECONDS = MOST_PLAN_SECONDS
"""How long a plan may live, as its name can say: 31 years."""


@dataclass(frozen=True, kw_only=True)
class PendingObject:
    """The object of a pending plan. Times are the storage's, in seconds since 1970-01-01 UTC."""

    id: str
    name: str
    size_bytes: int
    created_seconds: float
    lifetime_seconds: int

    @property
    def expires_seconds(self) -> float:
        """From then on, nobody executes it, and gc removes it."""
        return self.created_seconds + self.lifetime_seconds


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The last claim of a group. `renewed_seconds` is by the storage's clock."""

    group: int
    attempt: int
    renewed_seconds: float


class PendingPlans:
    """The pending plans at a place, and the claims of their groups.

    Args:
        storage: the place; names are below its root.
        env: names, and the clock around a probe.
        table: the location of the table, for people.
    """

    def __init__(self, storage: Storage, env: Environment, table: str) -> None:
        self._storage, self._env = storage, env
        self._owner = env.new_id()
        self.table = table

    @property
    def location(self) -> str:
        """The place, for people; without secrets."""
        return self._storage.url

    @property
    def words(self) -> str:
        """What names the table and the place after a command such as `tblctl plan`."""
        elsewhere = [] if self.location == self.table else ["--plans-at", self.location]
        return shlex.join([self.table, *elsewhere])

    def require_place(self) -> None:
        """Refuse a folder that is not there: its name may be misspelt. Only local disk tells.

        Raises:
            InvalidDataError: there is no such folder.
        """
        if self._storage.is_missing_folder:
            msg = f"there is no folder {self.location}, where pending plans of {self.table} are looked for"
            raise InvalidDataError(
                f"{msg}: `tblctl plan {self.words} --schedule` makes it with the first plan"
            )

    def now_seconds(self) -> float:
        """Return the storage's time. Writes a small object, and deletes it."""
        return write_probe(self._storage, self._env)[1]

    # -- plans

    def add(self, plan: Mapping[str, Any], *, lifetime_seconds: int) -> PendingObject:
        """Keep a plan, in its JSON form.

        Raises:
            InvalidOptionError: the lifetime is below a second, or above 31 years.
        """
        if not 1 <= lifetime_seconds <= LONGEST_SECONDS:
            msg = f"a pending plan lives {lifetime_seconds} seconds, expected 1 to {LONGEST_SECONDS}"
            raise InvalidOptionError(msg)
        plan_id = self._env.new_run_id()  # so that ids sort by age
        name = plan_path(plan_id, lifetime_seconds)
        data = with_checksum({"pending_version": PENDING_VERSION, "plan": plan})
        self._storage.write(name, data)
        (created,) = self._storage.modified([name])
        return PendingObject(
            id=plan_id,
            name=name,
            size_bytes=len(data),
            created_seconds=self._env.now() if created is None else created,  # cancelled at once
            lifetime_seconds=lifetime_seconds,
        )

    def listed(self) -> list[PendingObject]:
        """Return all pending plans, oldest first, expired ones among them."""
        return self._below(PLANS)

    def sweep(self) -> list[PendingObject]:
        """Remove claims whose plan is gone, and return all pending plans, as `listed` does.

        A process that was killed, or that claimed a group of a plan while another one cancelled it, leaves such claims.
        Claims are listed before plans: the plan of a claim is seen, or was removed. Failures are only logged.
        """
        claims = [
            (found[0], item.name) for item in self._storage.list(CLAIMS) if (found := claim_of(item.name))
        ]
        plans = self.listed()
        known = {item.id for item in plans}
        dead = [name for plan_id, name in claims if plan_id not in known]
        if dead:
            try:
                self._storage.delete(dead)
            except TblctlError as error:
                LOG.debug("claims of plans that are gone stay: %s", error)
        return plans

    def find(self, plan_id: str) -> PendingObject | None:
        """Return a pending plan; None if there is none.

        Raises:
            InvalidOptionError: the id is none.
        """
        if not is_plan_id(plan_id):
            msg = (
                f"{plan_id!r:.80} is not the id of a pending plan (32 digits 0-9a-f); `tblctl plan {self.words} "
                "--list` shows the ids"
            )
            raise InvalidOptionError(msg)
        return next(iter(self._below(f"{PLANS}{plan_id}")), None)

    def _below(self, prefix: str) -> list[PendingObject]:
        found = [
            PendingObject(
                id=parsed[0],
                name=item.name,
                size_bytes=item.size_bytes,
                created_seconds=item.modified_seconds,
                lifetime_seconds=parsed[1],
            )
            for item in self._storage.list(prefix)
            if (parsed := plan_of(item.name))
        ]
        return sorted(found, key=lambda item: (item.created_seconds, item.id))

    def read(self, pending: PendingObject) -> bytes | None:
        """Return a pending plan's object, for `decode_pending`; None if it is gone."""
        return self._storage.try_read(pending.name)

    def remove(self, plan_id: str) -> None:
        """Remove a pending plan, then its claims."""
        plans = [item.name for item in self._below(f"{PLANS}{plan_id}")]
        claims = [item.name for item in self._storage.list(claims_of(plan_id)) if claim_of(item.name)]
        self._storage.delete([*plans, *claims])

    # -- claims

    def claims(self, plan_id: str) -> dict[int, Claim]:
        """Return the last claim of each claimed group of a plan."""
        found: dict[int, Claim] = {}
        for item in self._storage.list(claims_of(plan_id)):
            parsed = claim_of(item.name)
            if parsed is None:
                continue
            _, group, attempt = parsed
            if group not in found or found[group].attempt < attempt:
                found[group] = Claim(group=group, attempt=attempt, renewed_seconds=item.modified_seconds)
        return found

    def claim(self, plan_id: str, group: int, last: Claim | None) -> Claim | None:
        """Claim a group; None if another process was faster, or it is not known who was.

        Args:
            plan_id: of the pending plan.
            group: its number in the plan.
            last: the claim that expired; None if the group was never claimed.
        """
        attempt = 0 if last is None else last.attempt + 1
        if attempt >= MOST_ATTEMPTS or group >= MOST_GROUPS:
            return None
        name, data = claim_path(plan_id, group, attempt), self._claim_data()
        try:
            is_ours = self._storage.create(name, data) or self._storage.try_read(name) == data
        except CommitOutcomeUnknownError as error:
            LOG.debug("it is not known whether %s was created: %s", name, error)
            return None
        return Claim(group=group, attempt=attempt, renewed_seconds=0.0) if is_ours else None

    def renew(self, plan_id: str, claims: Iterable[Claim], is_over: Callable[[], bool]) -> None:
        """Write claims of this process again, so that the storage's time of them is new. Failures are only logged.

        The rest is left out once `is_over`: claims may be hundreds, and whoever holds them waits for this to end.
        """
        for claim in claims:
            if is_over():
                return
            try:
                self._storage.write(claim_path(plan_id, claim.group, claim.attempt), self._claim_data())
            except TblctlError as error:
                LOG.debug("a claim of plan %s is not renewed: %s", plan_id, error)

    def release(self, plan_id: str, claims: Iterable[Claim]) -> None:
        """Delete claims of this process, so that others need not wait. Failures are only logged."""
        try:
            self._storage.delete([claim_path(plan_id, claim.group, claim.attempt) for claim in claims])
        except TblctlError as error:
            LOG.debug("claims of plan %s stay until they expire: %s", plan_id, error)

    def _claim_data(self) -> bytes:
        return with_checksum({"pending_version": PENDING_VERSION, "owner": self._owner})


def decode_pending(data: bytes, name: str) -> Any:
    """Return the JSON form of the plan in a pending plan's object.

    Raises:
        InvalidDataError: the object is damaged or was edited.
        UnsupportedFormatError: it is of a newer tblctl.
    """
    try:
        if not has_checksum(data):
            raise ValueError("it does not end with a checksum")  # noqa: TRY301
        document = json.loads(data, parse_constant=_refuse_number)
        version = document.get("pending_version") if isinstance(document, dict) else None
        if type(version) is not int or "plan" not in document:
            raise ValueError("it is not an object with a pending_version and a plan")  # noqa: TRY301
    except (ValueError, RecursionError) as error:
        msg = (
            f"the pending plan {name} is damaged, or was edited: {str(error)[:300]}; only a plan "
            "in a file, for `recluster --plan`, may be edited"
        )
        raise InvalidDataError(msg) from error
    if version != PENDING_VERSION:
        msg = f"the pending plan {name} has version {version}, this tblctl reads version {PENDING_VERSION}"
        raise UnsupportedFormatError(f"{msg}: cancel it and plan again, or install a newer tblctl")
    return document["plan"]


def _refuse_number(text: str) -> None:
    raise ValueError(f"it has the number {text}")
