"""Publish a new snapshot, or lose the race and try again on top of the winner.

A commit creates the object `metadata/snapshots/<head + 1>` if it is absent; whoever creates it wins. The loser reads
the new head and asks `propose` again. Losing is not failing: somebody else got on, so the loop ends when they do.

When a reply is lost, or the name turns out taken, the object there is read back and its `commit_id` compared: it may be
our own.

gc deletes beside writers, so a head states a horizon: what was written before it and no snapshot named may be gone. A
writer compares all that it wrote with the horizon of the head that it commits on. gc commits a horizon before it
deletes, which takes a sequence: a writer either comes first, and gc sees what it names, or loses and sees the horizon.
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

_NOT_CREATED = (StorageError, AccessDeniedError, UnsupportedBackendError, InternalError)
"""What `create_snapshot` raises if nothing was created; after any other error the object may be there."""


def _nothing(_names: Collection[str]) -> None:
    """Forget nothing."""


@dataclass(frozen=True, kw_only=True)
class StagedCommit:
    """What a writer wants to commit on top of a head.

    Attributes:
        snapshot: the head with its new segments, schema, tags, ..; `publish` sets sequence, ids and time.
        objects: names that the snapshot will name and the head does not: all that the writer wrote itself.
        forget: called with those of `objects` that gc may delete, unless blocks are among them: the next draft has
            others in their place.
        written: one of `objects` with the writer's time of it; None if nothing was written.
    """

    snapshot: Snapshot
    objects: Sequence[str] = ()
    forget: Callable[[Collection[str]], None] = _nothing
    written: Written | None = None


@dataclass(frozen=True, kw_only=True)
class Published:
    """A commit that happened; `attempts` counts the creates it took."""

    snapshot: Snapshot
    attempts: int


@dataclass(kw_only=True)
class Fate:
    """Whether what a commit names may be in the table, as far as is proven; nothing of it may be deleted then.

    It is set before the first request that could publish, and taken back only by proof of the opposite. So whatever
    is raised in between, be it by a driver, a logging handler or a signal, nothing published is taken for garbage.
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
    """Commit what `propose` makes of the head, asking again after every lost race; None if it wants nothing.

    Args:
        storage: of the table.
        env: the writer's clock, ids and chance.
        propose: returns what to commit on top of a head.
        head: the newest snapshot that the writer knows.
        fate: keeps account of what may be published.
        patience: how many times longer to wait after a loss than others do.
        clock_is_checked: the caller compared its clock with the storage's.

    Raises:
        ConflictError: `propose` found that its plan no longer fits, or gc may have deleted a block before it was
            published.
        TableNotFoundError: the table was dropped meanwhile, perhaps created again; nothing was committed.
        ClockError: the writer's clock is far from the storage's; nothing was committed.
        CommitOutcomeUnknownError: the reply was lost and the storage did not answer afterwards.
    """
    fate, commit_id = fate or Fate(), env.new_id()
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
        wait(env, attempts, patience=patience)
        newer = reload_head(storage, head)
        if newer.sequence == head.sequence:
            raise dropped(storage)
        head = newer


def reload_head(storage: Storage, head: Snapshot) -> Snapshot:
    """Return the newest snapshot of the table that `head` is of.

    Raises:
        TableNotFoundError: it was dropped meanwhile, perhaps created again.
    """
    newer = load_head(storage, head)
    if newer.sequence < head.sequence or newer.table_id != head.table_id:
        raise dropped(storage)
    return newer


def after_gc(storage: Storage, head: Snapshot) -> Snapshot:
    """Return the newest snapshot when `head` seemed damaged: gc may have removed what it names since.

    Raises:
        The error that is being handled: `head` is the newest one, so something of it is damaged.
    """
    newer = reload_head(storage, head)
    if newer.sequence == head.sequence:
        raise  # noqa: PLE0704 (callers are in an except clause)
    return newer


def dropped(storage: Storage) -> TableNotFoundError:
    """Return the error of a writer whose table is no longer there, or another one in its place."""
    msg = f"{storage.url}: the table was dropped meanwhile; nothing was committed"
    return TableNotFoundError(msg)


def _create(storage: Storage, env: Environment, snapshot: Snapshot, fate: Fate) -> bool:
    """Create the snapshot's object as `create_snapshot` does, keeping account in `fate`."""
    fate.maybe_published = True
    try:
        is_ours = create_snapshot(storage, env, snapshot)
    except _NOT_CREATED:
        fate.maybe_published = False
        raise
    fate.maybe_published = is_ours
    return is_ours


def wait(env: Environment, attempt: int, *, patience: float = 1.0) -> None:
    """Sleep before the next attempt: longer each time, and by chance, so that losers do not meet again."""
    longest = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** min(attempt, 20))
    env.sleep(patience * longest * (0.5 + env.random() / 2))


def create_snapshot(storage: Storage, env: Environment, snapshot: Snapshot) -> bool:
    """Create the snapshot's object if it is absent; return whether the one that is there now is ours.

    Raises:
        StorageError, AccessDeniedError, UnsupportedBackendError: it was surely not created.
        InternalError: it would be one that nobody can read; it was not created.
        CommitOutcomeUnknownError: nobody can tell now.
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
                return _commit_id(found, snapshot.sequence) == snapshot.commit_id
        wait(env, attempt + 3)
    msg = (
        f"{storage.url}: the reply to a commit was lost and {name} cannot be read back. It may have happened: look at "
        f"`tblctl history` for snapshot {snapshot.sequence} before trying again"
    )
    raise CommitOutcomeUnknownError(msg, commit_id=snapshot.commit_id, sequence=snapshot.sequence) from cause


def _readable(snapshot: Snapshot) -> bytes:
    """Return the snapshot's object, having read it as every reader will.

    Raises:
        InternalError: it cannot be read, or says something else.
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
    """Return whose commit an object is; None if it cannot be read (then it is not ours: creates are atomic)."""
    try:
        found: Snapshot | Tombstone = decode(data, sequence)
    except (CorruptTableError, UnsupportedFormatError):
        return None
    return found.commit_id


def _stamped(snapshot: Snapshot, head: Snapshot, commit_id: str, now_ms: int) -> Snapshot:
    """Return a draft's snapshot as the next commit on top of `head`.

    Raises:
        InternalError: it drops what every later commit carries on.
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
    )


class _Look:
    """The last look before each attempt of one commit: is all there, and nothing so old that gc may delete it?"""

    def __init__(self, storage: Storage, env: Environment, *, clock_is_checked: bool) -> None:
        self._storage = storage
        self._env = env
        self._clock_is_checked = clock_is_checked

    def lost(self, head: Snapshot, draft: StagedCommit) -> list[str]:
        """Return the objects of a draft that are gone, or that gc may delete.

        The parent's content is compared: a table that was created again has one of the same name. A drop and a create
        between this look and the commit stay unnoticed; they would have to fit into one round trip.

        Raises:
            TableNotFoundError: the snapshot `head` is no longer there.
            ClockError: this machine's clock is far from the storage's.
        """
        storage = self._storage
        times = dict(zip(draft.objects, storage.modified(list(draft.objects)), strict=True))
        if not is_object_of(storage.try_read(snapshot_path(head.sequence)), head):
            raise dropped(storage)
        if not self._clock_is_checked:
            self._clock_is_checked = self._check_clock(draft.written, times)
        return [name for name, time in times.items() if time is None or microseconds(time) < head.horizon_us]

    def _check_clock(self, written: Written | None, times: Mapping[str, float | None]) -> bool:
        """Compare the clocks around a write of the draft, or a probe without one; False if the write is gone."""
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
    msg = f"{storage.url}: {lost[0]}{more} were removed before they could be published, or may be at any time: {why}"
    return ConflictError(msg, missing=tuple(lost))
