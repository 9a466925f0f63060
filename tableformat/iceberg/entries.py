"""Entries of manifests as columns: one row for each file that a manifest names.

Manifests say which files a snapshot has, with statistics of their columns (Apache Iceberg specification, "Manifests").
Objects of PyIceberg take 50 microseconds and 6 KB for each entry; a table may have a million.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.tableformat.iceberg.avro.chunk import Slices
from tblctl.tableformat.iceberg.avro.columns import CHUNK_BYTES, Decoder, Entries, Sparse, Value, Whole
from tblctl.tableformat.iceberg.avro.container import AvroError, Container, read_container

DELETED = 2
"""The status of an entry whose file left the table with the manifest's snapshot."""

_ADDED = 1
_DATA_FILE = 2
_PAIRS = {"nulls": 110, "nans": 137, "lower": 125, "upper": 128}
_STORED = {"values": 109, "sizes": 108}
_BINARY = ("lower", "upper")


@dataclass(frozen=True, kw_only=True)
class ManifestSource:
    """One manifest, as the manifest list describes it, and its bytes.

    Attributes:
        path: where it is.
        data: its bytes.
        spec_id: the partition spec of its files.
        snapshot_id, sequence_number: entries without their own inherit these.
        size_bytes: how many bytes it has, as the manifest list says; None if unknown. Blocks of Avro are complete in
            themselves: nothing else tells that the last ones are cut off.
    """

    path: str
    data: bytes
    spec_id: int
    snapshot_id: int
    sequence_number: int
    size_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnBounds:
    """What n entries say of one column.

    Attributes:
        nulls, nans: counts; -1 if unknown.
        lower, upper: encoded bounds, large_binary; null if unknown.
        values, sizes: values (nulls among them) and bytes in the file; -1 if unknown. None if they were not asked for.
    """

    nulls: np.ndarray
    nans: np.ndarray
    lower: pa.Array
    upper: pa.Array
    values: np.ndarray | None = None
    sizes: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> ColumnBounds:
        """Return what some of the entries say."""
        held = {item.name: getattr(self, item.name) for item in fields(self)}
        taken: dict[str, Any] = {
            name: None if column is None else _take(column, rows) for name, column in held.items()
        }
        return ColumnBounds(**taken)


@dataclass(frozen=True, kw_only=True, eq=False)
class FileEntries:
    """Entries of manifests as columns, one row each.

    Attributes:
        manifest: the number of the manifest that has the entry.
        status: 0 existing, 1 added, 2 deleted.
        snapshot_id: when the file was added, or deleted.
        sequence_number: the data sequence number: deletes of later or equal numbers apply to the file.
        file_sequence_number: when the file was added.
        content: 0 data, 1 position deletes, 2 equality deletes.
        path: large_string.
        format: large_string, such as PARQUET.
        spec_id: the partition spec.
        layout: the place in `Decoded.layouts` of the Avro schema of the entry.
        partition: the values of partition fields, encoded as `layout` says: large_binary.
        rows: records in the file, deleted ones among them.
        size_bytes: the file's size.
        sort_order_id: the order that the writer claims; -1 for none.
        encrypted: the file is.
        referenced: the one data file that a delete file is about, large_string; null for any, or for data files.
    """

    manifest: np.ndarray
    status: np.ndarray
    snapshot_id: np.ndarray
    sequence_number: np.ndarray
    file_sequence_number: np.ndarray
    content: np.ndarray
    path: pa.Array
    format: pa.Array
    spec_id: np.ndarray
    layout: np.ndarray
    partition: pa.Array
    rows: np.ndarray
    size_bytes: np.ndarray
    sort_order_id: np.ndarray
    encrypted: np.ndarray
    referenced: pa.Array

    def __len__(self) -> int:
        return len(self.status)

    def take(self, rows: np.ndarray) -> FileEntries:
        """Return some of the entries."""
        return FileEntries(**{item.name: _take(getattr(self, item.name), rows) for item in fields(self)})


@dataclass(frozen=True, kw_only=True, eq=False)
class Decoded:
    """Entries, what they say of some columns by id, and the Avro schemas that manifests have them in."""

    entries: FileEntries
    columns: dict[int, ColumnBounds]
    layouts: tuple[Any, ...]


class DamagedManifestError(ValueError):
    """A manifest cannot be read; `path` names it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(problem)
        self.path = path


@dataclass(frozen=True)
class _Wanted:
    """The columns of which something is wanted, and what: the field of the map that has it, by name."""

    column_ids: Collection[int]
    pairs: Mapping[str, int]


def read_entries(
    sources: Iterable[ManifestSource], column_ids: Collection[int] = (), *, stored: bool = False
) -> Decoded:
    """Return the entries of manifests in order, and what they say of some columns.

    Holds few manifests at a time, if `sources` makes them one after the other.

    Args:
        sources: the manifests.
        column_ids: the columns.
        stored: also how many values and bytes of each a file has.

    Raises:
        DamagedManifestError: a manifest is no Avro file, is cut off, or lacks required fields.
    """
    wanted = _Wanted(column_ids, _PAIRS | _STORED if stored else _PAIRS)
    layouts: dict[bytes, _Layout] = {}
    parts: list[_Part] = []
    given, whole = _Given(), 0
    for number, source in enumerate(sources):
        given.add(source)
        container = _container(source)
        layout = layouts.get(container.schema_text)
        if layout is None:
            layout = layouts[container.schema_text] = _Layout(len(layouts), container, given, wanted, number)
        parts += layout.add(number, container)
        if sum(len(part["manifest"]) for part, _ in parts[whole:]) >= _JOINED_ENTRIES:
            parts[whole:] = [_together(parts[whole:])]
            whole += 1
    for layout in layouts.values():
        parts += layout.finish()
    if not parts:
        parts = [_columns(0, None, np.zeros(0, np.int64), given, wanted)]
    return Decoded(**_joined(parts), layouts=tuple(layout.schema for layout in layouts.values()))


_JOINED_ENTRIES = 100_000
"""Parts are joined whenever they have so many entries: memory of many small arrays is not returned when freed."""

_Part = tuple[dict[str, Any], dict[int, dict[str, Any]]]
"""Columns of some entries, and of their bounds by column."""


class _Given:
    """What the manifest list says of the manifests so far."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._numbers = array("q")

    def add(self, source: ManifestSource) -> None:
        self.paths.append(source.path)
        self._numbers.extend((source.spec_id, source.snapshot_id, source.sequence_number))

    def columns(self, manifest: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return spec, snapshot and sequence number of the manifests of entries."""
        spec_id, snapshot_id, sequence_number = np.array(self._numbers).reshape(-1, 3)[manifest].T
        return np.ascontiguousarray(spec_id), snapshot_id, sequence_number


class _Layout:
    """Decodes manifests of one Avro schema, small ones together. Holds few decompressed ones at a time."""

    def __init__(self, number: int, first: Container, given: _Given, wanted: _Wanted, manifest: int) -> None:
        self.schema = first.schema
        self._number = number
        self._given = given
        self._wanted = wanted
        self._waiting: list[tuple[int, Container]] = []
        self._bytes = 0
        try:
            self._decoder = Decoder(first.schema, _selection(wanted))
        except AvroError as error:
            raise DamagedManifestError(given.paths[manifest], str(error)) from error

    def add(self, number: int, container: Container) -> list[_Part]:
        """Take a manifest, and return what was decoded meanwhile."""
        self._waiting.append((number, container))
        self._bytes += sum([len(block) for block in container.blocks])
        return self.finish() if self._bytes >= CHUNK_BYTES else []

    def finish(self) -> list[_Part]:
        """Decode the manifests that wait."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        try:
            return self._decoded(waiting)
        except AvroError:
            for each in waiting:  # one by one, to learn which is damaged
                try:
                    self._decoded([each])
                except AvroError as error:
                    raise DamagedManifestError(self._given.paths[each[0]], str(error.args[0])) from error
            raise

    def _decoded(self, waiting: Sequence[tuple[int, Container]]) -> list[_Part]:
        numbers = np.array([number for number, _ in waiting], np.int64)
        parts = []
        for count, found, files in self._decoder.decode([container for _, container in waiting]):
            entries, bounds = _columns(count, found, numbers[files], self._given, self._wanted)
            parts.append((entries | {"layout": np.full(count, self._number, np.int64)}, bounds))
        return parts


def _container(source: ManifestSource) -> Container:
    if source.size_bytes is not None and len(source.data) < source.size_bytes:
        problem = (
            f"it has {len(source.data)} bytes, the manifest list says {source.size_bytes}: it is cut off"
        )
        raise DamagedManifestError(source.path, problem)
    try:
        return read_container(source.data)
    except AvroError as error:
        raise DamagedManifestError(source.path, str(error)) from error


def _together(parts: Sequence[_Part]) -> _Part:
    """Return parts as one. Takes the columns out of the parts."""
    columns = {
        column: {name: _join([bounds[column].pop(name) for _, bounds in parts]) for name in list(first)}
        for column, first in parts[0][1].items()
    }
    return {name: _join([part.pop(name) for part, _ in parts]) for name in list(parts[0][0])}, columns


def _joined(parts: Sequence[_Part]) -> dict[str, Any]:
    """Return the entries of all parts in the order of their manifests. Takes the columns out of the parts."""
    entries, columns = _together(parts)
    manifest = entries["manifest"]
    order = None if bool((np.diff(manifest) >= 0).all()) else np.argsort(manifest, kind="stable")
    bounds = {
        column: ColumnBounds(**{name: _take(found.pop(name), order) for name in list(found)})
        for column, found in columns.items()
    }
    return {
        "entries": FileEntries(**{name: _take(entries.pop(name), order) for name in list(entries)}),
        "columns": bounds,
    }


def _selection(wanted: _Wanted) -> Any:
    value = Value()
    single = (134, 100, 101, 103, 104, 140, 131, 143)
    pairs = Entries(keys=frozenset(wanted.column_ids))
    file: dict[int, Any] = dict.fromkeys(single, value) | {102: Whole()}
    if wanted.column_ids:
        file |= dict.fromkeys(wanted.pairs.values(), pairs)
    return {0: value, 1: value, 3: value, 4: value, _DATA_FILE: file}


def _columns(
    count: int,
    found: Any,
    manifest: np.ndarray,
    given: _Given,
    wanted: _Wanted,
) -> _Part:
    """Return the columns of `count` decoded entries, what they inherit filled in, and those of their bounds."""
    if not count:
        found = {0: np.zeros(0, np.int64), _DATA_FILE: {}}
    file = found.get(_DATA_FILE)
    if not isinstance(file, Mapping):
        raise AvroError("its entries have no data_file (field 2)")
    status = _required(found, 0, _numbers, count)
    spec_id, given_snapshot, inherited = given.columns(manifest)
    inherits = (status == _ADDED) | (inherited == 0)

    def sequence(key: int) -> np.ndarray:
        own = _numbers(found.get(key), count)
        return np.where((own < 0) & inherits, inherited, own)

    own_snapshot = _numbers(found.get(1), count)
    entries = {
        "manifest": manifest,
        "status": status,
        "snapshot_id": np.where(own_snapshot < 0, given_snapshot, own_snapshot),
        "sequence_number": sequence(3),
        "file_sequence_number": sequence(4),
        "content": np.maximum(_numbers(file.get(134), count), 0),
        "path": _required(file, 100, _text, count),
        "format": _required(file, 101, _text, count),
        "spec_id": spec_id,
        "layout": np.zeros(count, np.int64),
        "partition": _required(file, 102, _binary, count),
        "rows": _required(file, 103, _numbers, count),
        "size_bytes": _required(file, 104, _numbers, count),
        "sort_order_id": _numbers(file.get(140), count),
        "encrypted": _present(file.get(131), count),
        "referenced": _text(file.get(143), count),
    }
    return entries, {column: _bounds(file, column, count, wanted.pairs) for column in wanted.column_ids}


def _bounds(file: Mapping[int, Any], column: int, count: int, pairs: Mapping[str, int]) -> dict[str, Any]:
    held: dict[str, Sparse | None] = {name: _pair(file.get(key), column) for name, key in pairs.items()}
    return {
        name: _binary(value, count) if name in _BINARY else _numbers(value, count)
        for name, value in held.items()
    }


def _pair(pairs: Any, column: int) -> Sparse | None:
    """Return the values of one key of a map that only some entries have."""
    if pairs is None:
        return None
    rows = None
    count = 0
    if isinstance(pairs, Sparse):
        rows, count, pairs = pairs.rows, pairs.count, pairs.values or {}
    found: Sparse | None = pairs.get(column)
    if found is None or rows is None:
        return found
    return Sparse(count=count, rows=rows[found.rows], values=found.values)


def _required(found: Mapping[int, Any], key: int, column: Callable[[Any, int], Any], count: int) -> Any:
    """Return a field that each entry must have, as a column."""
    value = found.get(key)
    if count and (value is None or (isinstance(value, Sparse) and len(value.rows) < count)):
        raise AvroError(f"its entries, or some of them, lack the field with the id {key}")
    return column(value, count)


def _numbers(value: Any, count: int) -> np.ndarray:
    """Return whole numbers, -1 where there is none."""
    if value is None or (isinstance(value, Sparse) and value.values is None):
        return np.full(count, -1, np.int64)
    held = value.values if isinstance(value, Sparse) else value
    if not isinstance(held, np.ndarray) or held.dtype != np.int64:
        raise AvroError("a field that should have whole numbers has other values")
    return value.numbers(-1) if isinstance(value, Sparse) else held


def _binary(value: Any, count: int) -> pa.Array:
    """Return texts as large_binary, null where there is none."""
    if value is None or (isinstance(value, Sparse) and value.values is None):
        return pa.nulls(count, pa.large_binary())
    if not isinstance(value.values if isinstance(value, Sparse) else value, Slices):
        raise AvroError("a field that should have texts has other values")
    return value.binary() if isinstance(value, Sparse) else value.to_arrow()


def _text(value: Any, count: int) -> pa.Array:
    """Return texts as large_string."""
    try:
        return _binary(value, count).cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise AvroError(f"a path or a format is no UTF-8 ({error})") from error


def _present(value: Any, count: int) -> np.ndarray:
    found = np.zeros(count, bool)
    if isinstance(value, Sparse):
        found[value.rows] = True
    return found


def _join(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)


def _take(values: Any, rows: np.ndarray | None) -> Any:
    if rows is None:
        return values
    return values[rows] if isinstance(values, np.ndarray) else values.take(pa.array(rows))
