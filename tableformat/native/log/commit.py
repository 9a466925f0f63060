"""Publish a new snapshot, or lose the race and try again on top of the winner.

A commit creates the object `metadata/snapshots/<head + 1>` if it is absent. The creator wins. The loser reads the new
head and asks `propose` again. A lost race is no failure: another writer made progress, so the loop ends when the others
are done.

If a reply is lost, or the name is taken, the object is read back and its `commit_id` compared: it may be our own.

gc deletes while others write. So a head has a horizon: objects written before it that no snapshot named may be gone. A
writer compares its objects with the horizon of the head that it commits on. gc commits a horizon before it deletes, and
this commit takes a sequence. So a writer either comes first, and gc sees its objects, or loses and sees the horizon.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import (
    AccessDeniedError,
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptTableError,
    InternalError,
    StorageError,
    TableNotFoundError,
    UnsupportedBackendError,
    UnsupportedFormatError,
)
from tblctl.tableformat.model.snapshot import Snapshot, Tombstone
from tblctl.tableformat.native.log.clock import Written, check_clock, is_ahead, microseconds, write_probe
from tblctl.tableformat.native.log.head import is_object_of, load_head, write_hint
from tblctl.tableformat.native.log.names import DATA, snapshot_path
from tblctl.tableformat.native.log.snapshot_file import (
    check_writable,
    decode,
    encode_snapshot,
    least_writer,
)
from tblctl.tableformat.storage import Storage

LOG = logging.getLogger("tblctl")

_READ_BACK_TRIES = 5
_FIRST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 1.0

_AGEING_SECONDS = 1.0
"""A writer that has lost races for this long waits half as long, and so on: otherwise one that has just begun, whose
waits are short, wins over it again and again. Simulated with 64 appenders (30 ms from reading the head to the create),
the longest append takes 11 s instead of 29, and the appender that commits least comes to 0.62 of the mean instead of
0.38; a commit takes 11 attempts instead of 7."""

_NOT_CREATED = (StorageError, AccessDeniedError, UnsupportedBackendError, InternalError)
"""The errors of `create_snapshot` if nothing was created. After any other error the object may be there."""


def _nothing(_names: Collection[str]) -> None:
    """Forget nothing."""


@dataclass(frozen=True, kw_only=True)
class StagedCommit:
    """A writer's proposed commit on top of a head.

    Attributes:
        snapshot: the head with its new segments, schema, tags, ..; `publish` sets sequence, ids and time.
        objects: the names that the snapshot adds: all objects that the writer wrote.
        forget: called with those of `objects` that gc may delete, unless blocks are among them. The next proposal then
            has others in their place.
        written: one of `objects` with the writer's time of it; None if nothing was written.
    """

    snapshot: Snapshot
    objects: Sequence[str] = ()
    forget: Callable[[Collection[str]], None] = _nothing
    written: Written | None = None


@dataclass(frozen=True, kw_only=True)
class Published:
    """A successful commit. `attempts` counts its creates."""

    snapshot: Snapshot
    attempts: int


@dataclass(kw_only=True)
class Fate:
    """Whether the objects of a commit may be in the table. If so, none of them may be deleted.

    It is set before the first request that could publish, and reset only by proof of the opposite. So after any error
    in between, from a driver, a logging handler or a signal, nothing published is deleted as garbage.
    """

    maybe_published: bool = False


Propose = Callable[[Snapshot], StagedCommit | None]


def publish(
    storage: Storage,
    env: Environment,
    propose: Propose,
    head: Snapshot,
    fate: Fate | None = None,
    *,
    patience: float = 1.0,
    clock_is_checked: bool = False,
) -> Published | None:
    """Commit the proposal of `propose` on top of the head. Ask again after every lost race. None if there is none.

    Args:
        storage: of the table.
        env: the writer's clock, ids and randomness.
        propose: returns the commit on top of a head, or None.
        head: the newest snapshot that the writer knows.
        fate: records whether the commit may be published.
        patience: wait this many times longer after a loss than other writers, and grow impatient as many times later.
        clock_is_checked: the caller has compared its clock with the storage's.

    Raises:
        ConflictError: `propose` found that its plan no longer fits, or gc may have deleted a block before it was
            published.
        TableNotFoundError: the table was dropped meanwhile, perhaps created again; nothing was committed.
        ClockError: the writer's clock differs too much from the storage's; nothing was committed.
        CommitOutcomeUnknownError: the reply was lost and the storage did not answer afterwards.
    """
    fate, commit_id, begun = fate or Fate(), env.new_id(), env.elapsed()
    attempts = renewed_on = 0
    look = _Look(storage, env, clock_is_checked=clock_is_checked)
    while True:
        check_writable(head)
        try:
            draft = propose(head)
        except CorruptTableError:
            head = after_gc(storage, head)
            continue
        if draft is None:
            return None
        lost = look.lost(head, draft)
        if lost:
            newest = reload_head(storage, head) if renewed_on == head.sequence else head
            if any(name.startswith(DATA) for name in lost) or renewed_on == newest.sequence:
                raise _too_late(storage, env, head, lost)
            renewed_on, head = head.sequence, newest
            draft.forget(lost)
            continue
        attempts += 1
        snapshot = _stamped(draft.snapshot, head, commit_id, env.now_ms())
        if _create(storage, env, snapshot, fate):
            write_hint(storage, snapshot.sequence)
            LOG.info("committed snapshot %d (%s) after %d attempts", snapshot.sequence, commit_id, attempts)
            return Published(snapshot=snapshot, attempts=attempts)
        wait(env, attempts, patience=patience, age_seconds=env.elapsed() - begun)
        newer = reload_head(storage, head)
        if newer.sequence == head.sequence:
            raise dropped(storage)
        head = newer


def reload_head(storage: Storage, head: Snapshot) -> Snapshot:
    """Return the newest snapshot of `head`'s table.

    Raises:
        TableNotFoundError: it was dropped meanwhile, perhaps created again.
    """
    newer = load_head(storage, head)
    if newer.sequence < head.sequence or newer.table_id != head.table_id:
        raise dropped(storage)
    return newer


def after_gc(storage: Storage, head: Snapshot) -> Snapshot:
    """Return the newest snapshot after `head` seemed damaged: gc may have removed its objects meanwhile.

    Raises:
        The error being handled: `head` is the newest snapshot, so it is really damaged.
    """
    newer = reload_head(storage, head)
    if newer.sequence == head.sequence:
        raise  # noqa: PLE0704 (callers are in an except clause)
    return newer


def dropped(storage: Storage) -> TableNotFoundError:
    """Return the error of a writer whose table was dropped or replaced by another one."""
    msg = f"{storage.url}: the table was dropped meanwhile; nothing was committed"
    return TableNotFoundError(msg)


def _create(storage: Storage, env: Environment, snapshot: Snapshot, fate: Fate) -> bool:
    """Create the snapshot's object with `create_snapshot`, and record the outcome in `fate`."""
    fate.maybe_published = True
    try:
        is_ours = create_snapshot(storage, env, snapshot)
    except _NOT_CREATED:
        fate.maybe_published = False
        raise
    fate.maybe_published = is_ours
    return is_ours


def wait(env: Environment, attempt: int, *, patience: float = 1.0, age_seconds: float = 0.0) -> None:
    """Sleep before the next attempt.

    Each wait is longer than the one before, and partly random, so that losers do not collide again. With the writer's
    age they become shorter, so that none starves.
    """
    longest = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** min(attempt, 20))
    share = 1 + age_seconds / (patience * _AGEING_SECONDS)
    env.sleep(patience * longest * (0.5 + env.random() / 2) / share)


def create_snapshot(storage: Storage, env: Environment, snapshot: Snapshot) -> bool:
    """Create the snapshot's object if it is absent; return whether the one that is there now is ours.

    Raises:
        StorageError, AccessDeniedError, UnsupportedBackendError: it was certainly not created.
        InternalError: it would not be readable; it was not created.
        CommitOutcomeUnknownError: the outcome is unknown.
    """
    name = snapshot_path(snapshot.sequence)
    data = _readable(snapshot)
    try:
        if storage.create(name, data):
            return True
    except CommitOutcomeUnknownError as error:
        if error.details.get("not_durable"):
            msg = f"{error}. Readers see snapshot {snapshot.sequence}, but a crash of the machine may lose it"
            raise CommitOutcomeUnknownError(
                msg, commit_id=snapshot.commit_id, sequence=snapshot.sequence, not_durable=True
            ) from error
        LOG.warning("the reply to a commit of %s was lost; reading it back", name)
        cause: Exception | None = error
    else:
        cause = None
    for attempt in range(1, _READ_BACK_TRIES + 1):
        try:
            found = storage.try_read(name)
        except (StorageError, AccessDeniedError) as error:
            cause = error
        else:
            if found is not None:
                try:
                    return _commit_id(found, snapshot.sequence) == snapshot.commit_id
                except CorruptTableError as error:  # damaged on its way, or for good: it may be ours
                    cause = error
        wait(env, attempt + 3)
    msg = (
        f"{storage.url}: the reply to a commit was lost and {name} cannot be read back. It may have happened: look at "
        f"`tblctl history` for snapshot {snapshot.sequence} before trying again"
    )
    raise CommitOutcomeUnknownError(msg, commit_id=snapshot.commit_id, sequence=snapshot.sequence) from cause


def _readable(snapshot: Snapshot) -> bytes:
    """Return the snapshot's object after decoding it as every reader will.

    Raises:
        InternalError: it cannot be decoded, or decodes to something else.
    """
    try:
        data = encode_snapshot(snapshot)
        if encode_snapshot(decode(data, snapshot.sequence)) == data:  # type: ignore[arg-type]
            return data
        problem: Exception | str = "it reads as something else"
    except (CorruptTableError, UnsupportedFormatError, ValueError, TypeError, AttributeError) as error:
        problem = error
    cause = problem if isinstance(problem, Exception) else None
    msg = f"snapshot {snapshot.sequence} would not be readable, so nothing was committed: {problem}"
    raise InternalError(msg) from cause


def _commit_id(data: bytes, sequence: int) -> str | None:
    """Return the commit id in an object; None if it is of a newer format (then it is not ours).

    Raises:
        CorruptTableError: the object is damaged.
    """
    try:
        found: Snapshot | Tombstone = decode(data, sequence)
    except UnsupportedFormatError:
        return None
    return found.commit_id


def _stamped(snapshot: Snapshot, head: Snapshot, commit_id: str, now_ms: int) -> Snapshot:
    """Return a proposed snapshot as the next commit on top of `head`.

    Raises:
        InternalError: it lowers values that must never decrease.
    """
    is_reset = snapshot.clock_resets != head.clock_resets
    lowers_horizon = snapshot.horizon_us < head.horizon_us and not is_reset
    if lowers_horizon or snapshot.retained_from < head.retained_from:
        msg = f"a commit on snapshot {head.sequence} would lower its horizon or retained_from"
        raise InternalError(msg)
    return dataclasses.replace(
        snapshot,
        sequence=head.sequence + 1,
        commit_id=commit_id,
        timestamp_ms=now_ms if is_reset else max(now_ms, head.timestamp_ms),
        min_writer_version=max(head.min_writer_version, least_writer(snapshot)),
        writes_since_recluster=snapshot.writes_after(head),
    )


class _Look:
    """The last check before each attempt of a commit: all objects exist, and none is old enough for gc to delete."""

    def __init__(self, storage: Storage, env: Environment, *, clock_is_checked: bool) -> None:
        self._storage = storage
        self._env = env
        self._clock_is_checked = clock_is_checked

    def lost(self, head: Snapshot, draft: StagedCommit) -> list[str]:
        """Return the objects of a proposal that are gone, or that gc may delete.

        The parent's content is compared, because a table that was created again has a snapshot of the same name. A drop
        and a create between this check and the commit stay unnoticed, but they would have to fit into one round trip.

        Raises:
            TableNotFoundError: the snapshot `head` is no longer there.
            ClockError: this machine's clock differs too much from the storage's.
        """
        storage = self._storage
        times = dict(zip(draft.objects, storage.modified(list(draft.objects)), strict=True))
        if not is_object_of(storage.try_read(snapshot_path(head.sequence)), head):
            raise dropped(storage)
        if not self._clock_is_checked:
            self._clock_is_checked = self._check_clock(draft.written, times)
        return [name for name, time in times.items() if time is None or microseconds(time) < head.horizon_us]

    def _check_clock(self, written: Written | None, times: Mapping[str, float | None]) -> bool:
        """Compare the clocks by a write of the proposal, or by a probe if it has none; False if the write is gone."""
        if written is None:
            check_clock(self._storage, *write_probe(self._storage, self._env))
            return True
        modified = times[written.name]
        if modified is not None:
            check_clock(self._storage, written, modified)
        return modified is not None


def _too_late(storage: Storage, env: Environment, head: Snapshot, lost: Sequence[str]) -> ConflictError:
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    why = (
        "gc ran with an --older-than shorter than this write took. Nothing was committed: write again"
        if not is_ahead(head, env.now())
        else "gc ran on a machine whose clock was ahead. Nothing was committed: `tblctl check LOC --fix-clock`, then "
        "write again"
    )
    msg = f"{storage.url}: gc removed {lost[0]}{more} before they were published, or may remove them: {why}"
    return ConflictError(msg, missing=tuple(lost))
