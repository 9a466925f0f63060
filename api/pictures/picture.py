"""A table as a picture: from versions' metadata to the values that `tblctl.pictures.drawing` draws."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.maintain.measure import ConditionFor, shared_sort, with_boxes
from tblctl.maintain.view import View
from tblctl.metrics.information import ClusteringInfo
from tblctl.metrics.intervals import Integers
from tblctl.metrics.layout import Band, first_ranks, lay_out
from tblctl.metrics.partitions import ranks_by_partition
from tblctl.pictures.depths import DepthPoint, depth_history
from tblctl.pictures.planes import Plane, planes_of
from tblctl.tableformat.keys.order import key_ranks
from tblctl.tableformat.model.values import python_value, value_for_people
from tblctl.tableformat.port import Listing, TablePort, Version, VersionEntry

MOST_BARS = 250
"""A version with more blocks is drawn as a density."""

MOST_COLUMNS = 400
"""The most columns that the key axes of all panels have together."""

SNAPSHOTS_SHOWN = 100
"""How many snapshots the history shows. Each costs reading an object and measuring its metadata."""

_INGESTING = ("append", "overwrite")
_KEY_LENGTH = 40  # characters of a key, each up to 4 bytes: the file must stay small


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """The measured blocks of one version, on the picture's key axis.

    Attributes:
        sequence: number or id of the version.
        info: its figures.
        low, high: ranks of each block's bounds on the axis.
        bands: where the blocks lie.
        paths, row_count: of each block.
    """

    sequence: int | str
    info: ClusteringInfo
    low: Integers
    high: Integers
    bands: tuple[Band, ...]
    paths: pa.Array
    row_count: Integers

    @property
    def has_bars(self) -> bool:
        """Whether each block is drawn as a bar of its own."""
        return len(self.paths) <= MOST_BARS


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyAxis:
    """The keys that blocks begin and end with, by partition and then in key order. A key's rank is its place there.

    Attributes:
        rank_count: number of keys.
        columns: number of parts that the axis is divided into, at least 1.
        keys: a row for each rank, a column for each term.
        partitions: the partition of each rank; None if there is only one.
    """

    rank_count: int
    columns: int
    keys: pa.Table
    partitions: tuple[str, ...] | None = None

    def text(self, rank: int) -> str:
        """Return a key as people read it, after its partition."""
        values = (value_for_people(python_value(column[rank])) for column in self.keys.columns)
        whole = ", ".join("null" if value is None else str(value) for value in values)
        if self.partitions is not None:
            whole = f"{self.partitions[rank] or '(no partition)'}: {whole}"
        return printable(whole if len(whole) <= _KEY_LENGTH else whole[: _KEY_LENGTH - 1] + "…")


@dataclass(frozen=True, kw_only=True)
class History:
    """Bytes that each of the last snapshots wrote, oldest first, and the average depths that are known.

    Attributes:
        sequences: numbers of the snapshots; counted from 1 if ids are no whole numbers without gaps.
        ingested: bytes that each added by append or overwrite.
        rewritten: bytes that each wrote to replace existing blocks.
        depths: (sequence, average depth by the cluster key then), oldest first.
    """

    sequences: tuple[int, ...]
    ingested: tuple[int, ...]
    rewritten: tuple[int, ...]
    depths: tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """All that a picture shows.

    Attributes:
        name: the table's name, without its folder.
        location: the table.
        where: only blocks that may hold rows with this condition are shown; None for all blocks.
        axis: the keys of all panels.
        panels: one version, or two to compare.
        history: up to the last of these versions.
        planes: the boxes of each version, if the key orders rows by two columns alike; else none.
    """

    name: str
    location: str
    where: str | None
    axis: KeyAxis
    panels: tuple[Panel, ...]
    history: History
    planes: tuple[Plane, ...] = ()

    @cached_property
    def terms(self) -> str:
        """The terms that ranges are measured by."""
        return printable(", ".join(self.panels[-1].info.cluster_by_keys))

    @property
    def title(self) -> str:
        """What is shown: table, snapshot or snapshots, key."""
        numbers = " and ".join(str(panel.sequence) for panel in self.panels)
        noun = "snapshot" if len(self.panels) == 1 else "snapshots"
        return printable(f"{self.name}, {noun} {numbers}, by {self.terms}")


def make_history(entries: Sequence[VersionEntry], depths: Iterable[DepthPoint]) -> History:
    """Return what happened in versions, newest first, with the depths after each."""
    shown = entries[::-1]
    numbers = _numbers([item.public_id for item in shown])
    known = {point.snapshot: point.average_depth for point in depths}
    written = [(item.summary.bytes_added, item.summary.operation in _INGESTING) for item in shown]
    return History(
        sequences=numbers,
        ingested=tuple(size * is_ingested for size, is_ingested in written),
        rewritten=tuple(size * (not is_ingested) for size, is_ingested in written),
        depths=tuple(
            (number, depth)
            for number, item in zip(numbers, shown, strict=True)
            if (depth := known.get(item.public_id)) is not None
        ),
    )


def history_up_to(
    last: Version, port: TablePort[Any], *, newest: Version | None = None, most_shown: int = SNAPSHOTS_SHOWN
) -> History:
    """Return the history of a table that ends with the version `last`: at most `most_shown` versions.

    Args:
        last: the version.
        port: the table.
        newest: the newest version, if the caller has just read it: to look it up for each version can take long.
        most_shown: how many versions.
    """
    newest = newest or port.newest()
    entries = list(port.history(most_shown, start=last))
    return make_history(entries, depth_history(entries, partial(port.version, newest=newest)))


def _numbers(ids: Sequence[int | str]) -> tuple[int, ...]:
    """Return the ids themselves if they are whole numbers without gaps; else numbers from 1."""
    numbers = [id for id in ids if isinstance(id, int)]
    if len(numbers) == len(ids) and all(b - a == 1 for a, b in itertools.pairwise(numbers)):
        return tuple(numbers)
    return tuple(range(1, len(ids) + 1))


def make_picture(
    versions: Sequence[Version],
    columns: str | Sequence[str] | None,
    condition: ConditionFor,
    history: History,
    *,
    where: str | None,
) -> Picture:
    """Return the picture of one version, or of two to compare. All are measured by the key of the last one.

    Args:
        versions: of one table.
        columns: terms to measure by, as if the table were clustered by them; None for its cluster key.
        condition: only blocks that may hold rows with this condition are shown.
        history: up to the last version.
        where: the condition as people read it.

    Raises:
        InvalidKeyError: there are no `columns` and the last version has no cluster key, or another version lacks a
            column of it.
    """
    sort = shared_sort(versions, columns)
    views = [
        View.of(version, sort, condition(version.schema), clustered=columns is None) for version in versions
    ]
    kept = [_measured(view) for view in views]
    axis, ranks = _shared_axis(views, kept)
    panels = tuple(
        _panel(version, view, chosen, places, axis=axis, condition=condition)
        for version, view, chosen, places in zip(versions, views, kept, ranks, strict=True)
    )
    location = versions[-1].location
    return Picture(
        name=printable(location.rstrip("/").rsplit("/", 1)[-1]),
        location=printable(location),
        where=None if where is None else printable(where),
        axis=axis,
        panels=panels,
        history=history,
        planes=planes_of(versions, sort, condition),
    )


def printable(text: str) -> str:
    """Escape what XML and terminals do not take, such as control characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _measured(view: View) -> Integers:
    """Return the numbers of the blocks that have a place on the axis."""
    blocks = view.blocks
    known = ~(blocks.unclustered | blocks.unknown)
    matched = view.listing.matched
    return np.flatnonzero(known if matched is None else known & matched)


def _shared_axis(
    views: Sequence[View], kept: Sequence[Integers]
) -> tuple[KeyAxis, list[tuple[Integers, Integers]]]:
    """Return the axis of the keys of all views, and the ranks of each view's blocks on it."""
    listings = [view.listing for view in views]
    low, high = (
        pa.concat_tables(
            [getattr(listing, side).take(chosen) for listing, chosen in zip(listings, kept, strict=True)],
            promote_options="permissive",  # a column may have been widened in between
        )
        for side in ("low", "high")
    )
    names, partition = _shared_partitions(listings, kept)
    low_ranks, high_ranks = ranks_by_partition(*key_ranks(low, high, views[-1].sort), partition)
    _, representatives = np.unique(np.concatenate((low_ranks, high_ranks)), return_index=True)
    keys = pa.concat_tables([low, high]).take(representatives)
    cuts = np.cumsum([len(chosen) for chosen in kept])[:-1]
    ranks = zip(np.split(low_ranks, cuts), np.split(high_ranks, cuts), strict=True)
    rank_count = len(representatives)
    columns = max(1, min(rank_count, MOST_COLUMNS // len(views)))
    partitions = None
    if len(names) > 1:
        partitions = tuple(names[code] for code in np.tile(partition, 2)[representatives].tolist())
    axis = KeyAxis(rank_count=rank_count, columns=columns, keys=keys, partitions=partitions)
    return axis, list(ranks)


def _shared_partitions(listings: Sequence[Listing], kept: Sequence[Integers]) -> tuple[list[str], Integers]:
    """Return the names of all partitions in order, and the place of each view's blocks among them."""
    names = sorted({name for listing in listings for name in listing.partitions})
    places = {name: place for place, name in enumerate(names)}
    codes = [
        np.array([places[name] for name in listing.partitions], np.int64)[listing.partition[chosen]]
        for listing, chosen in zip(listings, kept, strict=True)
    ]
    return names, np.concatenate(codes)


def _panel(
    version: Version,
    view: View,
    chosen: Integers,
    ranks: tuple[Integers, Integers],
    *,
    axis: KeyAxis,
    condition: ConditionFor,
) -> Panel:
    low, high = ranks
    blocks = view.blocks
    bands = lay_out(low, high, blocks.level[chosen], rank_count=max(1, axis.rank_count), columns=axis.columns)
    return Panel(
        sequence=version.public_id,
        info=with_boxes(view.info(), version, view.sort, condition(version.schema)),
        low=low,
        high=high,
        bands=bands,
        paths=view.listing.paths.take(pa.array(chosen)),
        row_count=blocks.row_count[chosen],
    )


def tick_ranks(axis: KeyAxis, count: int) -> list[int]:
    """Return at most `count` evenly spread ranks, the first and the last included; none if the axis has no keys."""
    places = np.linspace(0, axis.rank_count - 1, count) if axis.rank_count else ()
    return sorted({round(place) for place in places})


def column_keys(axis: KeyAxis, columns: int) -> list[tuple[str, str]]:
    """Return the first and the last key of each of `columns` parts of the axis."""
    begins = first_ranks(axis.rank_count, columns).tolist()
    return [(axis.text(begin), axis.text(end - 1)) for begin, end in itertools.pairwise(begins)]
