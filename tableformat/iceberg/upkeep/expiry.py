"""Decide which snapshots expire, as Iceberg's own `expire_snapshots` does. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.snapshots import Snapshot

_AGE = "history.expire.max-snapshot-age-ms"
_COUNT = "history.expire.min-snapshots-to-keep"
_DEFAULT_AGE_MS = 5 * 86_400_000
_WAP = "wap.id"


@dataclass(frozen=True, kw_only=True)
class Retention:
    """What of a branch stays.

    Attributes:
        age_ms: snapshots younger than this, in milliseconds.
        count: the newest ones, at least 1.
    """

    age_ms: int
    count: int

    @classmethod
    def of(cls, properties: Mapping[str, str], age_ms: int | None, count: int | None) -> Retention:
        """Return what stays of branches without settings of their own.

        What a table's properties promise (`history.expire.*`) is kept, even if less is asked for.

        Args:
            properties: of the table.
            age_ms: asked for; None for the property's, or else Iceberg's default of 5 days.
            count: asked for; None for the property's, or else 1.
        """
        promised_age, promised_count = _number(properties, _AGE), _number(properties, _COUNT)
        default_age = _DEFAULT_AGE_MS if age_ms is None and promised_age is None else 0
        return cls(
            age_ms=max(age_ms or 0, promised_age or 0, default_age),
            count=max(count or 1, promised_count or 1),
        )

    def on(self, ref: SnapshotRef) -> Retention:
        """Return what stays of a branch: its own settings come first."""
        return Retention(
            age_ms=self.age_ms if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms,
            count=self.count if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep,
        )


def _number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name, "")
    return int(text) if text.isdecimal() else None


NAMED = "named by branches or tags"
COUNTED = f"among those that a branch keeps ({_COUNT}, --keep)"
YOUNG = f"too young ({_AGE}, --expire-older-than; by default 5 days)"
WAITING = f"to be published yet ({_WAP})"


def expired_snapshots(metadata: TableMetadata, retention: Retention, now_ms: int) -> list[int]:
    """Return the ids of snapshots that expire, oldest first.

    The snapshots of tags and the heads of branches stay, and what a branch retains. Of the others, which no branch
    leads to, young ones stay, and those that wait to be published (`wap.id`).
    """
    kept = kept_snapshots(metadata, retention, now_ms)
    found = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept]
    return [snapshot.snapshot_id for snapshot in sorted(found, key=lambda item: item.timestamp_ms)]


def kept_snapshots(metadata: TableMetadata, retention: Retention, now_ms: int) -> dict[int, str]:
    """Return why each snapshot stays that does, by id: the first of its reasons, in the order above."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    heads = {ref.snapshot_id for ref in metadata.refs.values()} | {metadata.current_snapshot_id}
    kept = {id_: NAMED for id_ in heads if id_ is not None}
    young: set[int] = set()
    reached: set[int] = set()
    for ref in metadata.refs.values():
        if ref.snapshot_ref_type == "branch":
            own = retention.on(ref)
            for place, snapshot in enumerate(_ancestors(by_id, ref.snapshot_id)):
                reached.add(snapshot.snapshot_id)
                if place < own.count:
                    kept.setdefault(snapshot.snapshot_id, COUNTED)
                elif snapshot.timestamp_ms > now_ms - own.age_ms:
                    young.add(snapshot.snapshot_id)
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id in reached:
            continue
        if snapshot.timestamp_ms > now_ms - retention.age_ms:
            young.add(snapshot.snapshot_id)
        elif snapshot.summary is not None and _WAP in snapshot.summary.additional_properties:
            kept.setdefault(snapshot.snapshot_id, WAITING)
    return dict.fromkeys(young, YOUNG) | kept


def why_all_stay(metadata: TableMetadata, retention: Retention, now_ms: int) -> str:
    """Return why no snapshot expires, for people; "" if one does, or if there is no snapshot but the newest."""
    kept = kept_snapshots(metadata, retention, now_ms)
    here = [snapshot.snapshot_id for snapshot in metadata.snapshots]
    if len(here) < 2 or not all(id_ in kept for id_ in here):  # noqa: PLR2004
        return ""
    counts = Counter(kept[id_] for id_ in here)
    reasons = [f"{counts[why]} {why}" for why in (NAMED, COUNTED, YOUNG, WAITING) if counts[why]]
    return f"no snapshot expires: of {len(here)}, {'; '.join(reasons)}"


def _ancestors(by_id: Mapping[int, Snapshot], id_: int | None) -> Iterator[Snapshot]:
    while id_ is not None and id_ in by_id:
        yield by_id[id_]
        id_ = by_id[id_].parent_snapshot_id
