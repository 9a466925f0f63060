"""Damaged objects raise a CorruptTableError with their name: never a library's error, a hang, or a deletion."""

from __future__ import annotations

import copy
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from profiles import THOROUGH
from tables import SCHEMA, Places, as_stored, ids_of, objects_of, places, rows, state_of

import tblctl
from tblctl.errors import CorruptTableError, InputError, TblctlError, UnsupportedFormatError
from tblctl.tableformat.native.log.segment_columns import BASE_COLUMNS
from tblctl.tableformat.native.log.segment_reader import read_segment
from tblctl.tableformat.native.log.snapshot_file import decode
from tblctl.tableformat.storage import Storage

DEEP = "[" * 100_000 + "]" * 100_000
ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    7,
    2**31,
    10**18,
    10**40,
    1.5,
    float("nan"),
    float("inf"),
    "x",
    "",
    "../../etc/passwd",
    [],
    {},
    [[]],
    {"1": {"a": [1]}},
]


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Places]:
    yield from places("memory", tmp_path)


@pytest.fixture
def template(at: Places) -> str:
    """A table with an expired snapshot, a tag, two sorts, nested columns, several segments; head is sequence 8."""
    url = at.fresh()
    schema = pa.schema(
        [*SCHEMA, pa.field("s", pa.struct([("d", pa.decimal128(9, 2)), ("t", pa.timestamp("us"))]))]
    )
    table = tblctl.create(url, schema, cluster_by="id", options={"block_rows": 4})
    table.append(_rows(table, 1, 2, 3, 4, 5, 6, 7, 8))
    table.tag("t", 2)
    table.set_cluster_key("v, id")
    table.append(_rows(table, 11, 12))
    table.gc(keep=1, older_than=0)
    table.append(_rows(table, 21, 22))
    table.delete("id = 22")
    assert table.snapshot.sequence == 8
    return url


@pytest.fixture
def live(template: str) -> frozenset[str]:
    """Every object that a snapshot to be kept names."""
    return frozenset().union(
        *(
            {item.path for item in tblctl.open(template, as_of=sequence).files()}
            | {item.path for item in tblctl.open(template, as_of=sequence)._version().snapshot.segments}
            for sequence in (8, 2)
        )
    )


def _rows(table: tblctl.Table, *ids: int) -> pa.Table:
    if "s" not in table.schema.names:
        return rows(*ids)
    nested = pa.array([{"d": None, "t": None}] * len(ids), table.schema.field("s").type)
    return rows(*ids).append_column("s", nested).cast(table.schema)


def _snapshot(sequence: int) -> str:
    return f"metadata/snapshots/{sequence:020d}.json"


READS: dict[str, Callable[[str], Any]] = {
    "scan": lambda url: state_of(tblctl.open(url)),
    "scan where": lambda url: tblctl.open(url).scan("id > 4 and v < 'x7' and s.d is null").to_arrow(),
    "explain": lambda url: tblctl.open(url).scan("id > 4").explain().to_dict(),
    "dataset": lambda url: tblctl.open(url).to_dataset(),  # (what reads it raises pyarrow's own errors)
    "files": lambda url: [item.to_dict() for item in tblctl.open(url).files()],
    "history": lambda url: [item.to_dict() for item in tblctl.open(url).history()],
    "old": lambda url: ids_of(tblctl.open(url, as_of="t")),
    "time": lambda url: tblctl.open(url, as_of="2999-01-01"),
    "gc dry run": lambda url: tblctl.open(url).gc(keep=1, older_than=0, dry_run=True),
    "check": lambda url: tblctl.open(url).check(deep=True).to_dict(),
}
WRITES: dict[str, Callable[[str], Any]] = {
    "delete": lambda url: tblctl.open(url).delete("id in (1, 2, 11)"),
    "append": lambda url: tblctl.open(url).append(_rows(tblctl.open(url), 31)),
    "alter": lambda url: tblctl.open(url).widen_column("s.d", "decimal128(12, 2)"),
    "gc": lambda url: tblctl.open(url).gc(keep=1, older_than=0),
}


def _try_everything(url: str, where: str) -> list[TblctlError]:
    """Run every operation; return the errors, which must be of tblctl's own for damaged tables."""
    errors: list[TblctlError] = []
    for name, act in (READS | WRITES).items():
        try:
            act(url)
        except (CorruptTableError, UnsupportedFormatError) as error:
            errors.append(error)
        except InputError as error:
            if not _may_be_input(name):
                raise AssertionError(f"{where}: {name} blames the input") from error
        except Exception as error:
            raise AssertionError(f"{where}: {name} raised {error!r}") from error
    return errors


def _may_be_input(name: str) -> bool:
    """A mutated schema or tag can be valid, only not what the operation expects."""
    return name in {"scan where", "explain", "old", "time", "delete", "append", "alter", "scan"}


def _paths(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in items:
        yield from _paths(value, (*above, key))


def _with(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(document)
    changed[path[0]] = _with(document[path[0]], path[1:], value)
    return changed


def _without(document: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.copy(document)
    if len(path) == 1:
        del changed[path[0]]
    else:
        changed[path[0]] = _without(document[path[0]], path[1:])
    return changed


@pytest.mark.parametrize("sequence", [8, 2, 1])
def test_no_mutation_of_a_snapshots_json_does_more_than_raise_our_errors(
    template: str, at: Places, sequence: int
) -> None:
    document = json.loads(Storage(template).read(_snapshot(sequence)))
    accepted = []
    for path in _paths(document):
        changes = [_with(document, path, value) for value in ODD_VALUES]
        for changed in [*changes, _without(document, path)] if path else changes:
            try:
                decode(as_stored(changed), sequence)
            except (CorruptTableError, UnsupportedFormatError) as error:
                assert _snapshot(sequence) in str(error)  # noqa: PT017 (thousands of cases)
            else:
                accepted.append((path, changed))
    assert len(accepted) > 10  # numbers, texts and bounds that only the data can contradict
    for path, changed in accepted[:: max(1, len(accepted) // (30 if THOROUGH else 10))]:
        url = at.renew(template)
        Storage(url).write(_snapshot(sequence), as_stored(changed))
        _judge(url, str(path), frozenset())


def _judge(url: str, where: str, live: frozenset[str]) -> list[TblctlError]:
    """Try everything on a damaged table; where an error was raised, no object that was `live` may have gone."""
    before = objects_of(url)
    needed = {name for name in before if name.startswith("metadata/snapshots/")} | live
    errors = _try_everything(url, where)
    for error in errors:
        assert "metadata/" in str(error) or "data/" in str(error), (where, str(error))
    if any(isinstance(error, CorruptTableError) for error in errors):
        after = objects_of(url)
        gone = needed & (before.keys() - after.keys())
        assert not gone, (where, gone)
    return errors


def _cuts(data: bytes) -> list[bytes]:
    places = sorted(
        {0, 1, 4, len(data) // 4, len(data) // 2, 3 * len(data) // 4, len(data) - 8, len(data) - 1}
    )
    return [data[:place] for place in places]


def _flips(data: bytes) -> list[bytes]:
    return [
        data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
        for place in range(3, len(data), max(1, len(data) // 12))
    ]


def _object_of(template: str, kind: str) -> str:
    names = sorted(objects_of(template))
    if kind == "snapshot":
        return _snapshot(8)
    if kind == "tagged snapshot":
        return _snapshot(2)
    if kind == "tombstone":
        return _snapshot(1)
    head = tblctl.open(template)._native.head()
    if kind == "segment":
        return head.segments[0].path
    found = tblctl.open(template).files()[0].path
    assert found in names
    return found


KINDS = ["snapshot", "tagged snapshot", "tombstone", "segment", "block"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_or_replaced_object_is_told_by_name(
    template: str, live: frozenset[str], at: Places, kind: str
) -> None:
    name = _object_of(template, kind)
    data = Storage(template).read(name)
    others = [
        b"",
        b"\0" * len(data),
        b"PAR1",
        b"not json, not parquet",
        b"\xff\xfe{",
        b"{}",
        b"[]",
        b"null",
        b"NaN",
    ]
    for number, damaged in enumerate(
        [*_cuts(data), *others, DEEP.encode(), b'{"a":' + DEEP.encode() + b"}", b"9" * 10_000]
    ):
        url = at.renew(template)
        Storage(url).write(name, damaged)
        errors = _judge(url, f"{name} {number}", live if kind != "block" else frozenset({name}))
        found = [error for error in errors if name in str(error)]
        report = [] if kind == "snapshot" else tblctl.open(url).check(deep=True).problems
        assert found or any(name in line for line in report), (number, [str(error) for error in errors])


@pytest.mark.parametrize("kind", ["segment", "block"])
def test_a_flipped_byte_never_does_more_than_raise_our_errors(
    template: str, live: frozenset[str], at: Places, kind: str
) -> None:
    name = _object_of(template, kind)
    data = Storage(template).read(name)
    for number, damaged in enumerate(_flips(data)):
        url = at.renew(template)
        Storage(url).write(name, damaged)
        _judge(url, f"{name} flip {number}", live if kind != "block" else frozenset({name}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_object_is_told_by_name(template: str, live: frozenset[str], at: Places, kind: str) -> None:
    name = _object_of(template, kind)
    url = at.copy(template)
    Storage(url).delete([name])
    if kind == "snapshot":  # then the one before it is the newest: the commit is gone, the table whole
        Storage(url).delete(["metadata/latest"])
        assert ids_of(tblctl.open(url)) == [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 21, 22]
        return
    problems = tblctl.open(url).check(deep=True).problems
    assert any(name in line or str(int(name[-25:-5])) in line for line in problems), problems
    before = objects_of(url)
    with pytest.raises(TblctlError):
        tblctl.open(url).gc(keep=1, older_than=0) if kind != "block" else state_of(tblctl.open(url))
    assert objects_of(url) == before


def _segment_mutations(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for place, item in enumerate(table.schema):
        name, count = item.name, table.num_rows
        yield f"{name} dropped", table.drop_columns([name])
        for what, column in {
            "null": pa.nulls(count, item.type),
            "of type null": pa.nulls(count),
            "text": pa.array(["x"] * count),
            "-7": pa.array([-7] * count, pa.int64()),
            "2**62": pa.array([2**62] * count, pa.int64()),
            "float": pa.array([float("nan")] * count),
            "list": pa.array([[1]] * count),
            "binary": pa.array([b"\xff\xfe"] * count),
        }.items():
            if place < len(BASE_COLUMNS) or name.startswith("column_1_") or what in {"null", "text"}:
                yield f"{name} {what}", table.set_column(place, name, column)
    for path in (
        "/etc/passwd",
        "../x.parquet",
        "data/../../x.parquet",
        "data/",
        "",
        "metadata/latest",
        "data\\x.parquet",
    ):
        yield f"path {path!r}", table.set_column(0, "path", pa.array([path] * table.num_rows, pa.string()))
    yield (
        "two columns have the same name",
        pa.table([*table.columns, table.column(0)], [*table.column_names, "path"]),
    )


def _replace_segment(url: str, name: str, table: pa.Table) -> None:
    """Write another content for a segment, without checksums; the summaries agree in size and number of blocks."""
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    storage = Storage(url)
    storage.write(name, sink.getvalue())
    for sequence in range(1, 9):
        document = json.loads(storage.read(_snapshot(sequence)))
        for segment in document.get("segments", []):
            if segment["path"] == name:
                segment |= {"size_bytes": len(sink.getvalue()), "block_count": table.num_rows}
                del segment["footer_bytes"], segment["footer_checksum"]
        storage.write(_snapshot(sequence), as_stored(document))


def _readable_versions(url: str) -> Iterator[tblctl.Table]:
    """Yield the newest version, if it can be read: gc may have removed only what it does not name."""
    try:
        table = tblctl.open(url)
        table.files()
    except CorruptTableError:
        return
    yield table


def _refused(url: str, name: str) -> bool:
    """Return whether the decoder refuses a segment whole; what it raises must be of tblctl's own, and name it."""
    storage = Storage(url)
    (ref,) = (item for item in tblctl.open(url)._native.head().segments if item.path == name)
    try:
        read_segment(storage, ref)
    except CorruptTableError as error:
        assert name in str(error)  # noqa: PT017 (hundreds of cases)
        return True
    return False


def _kind(what: str, refused: bool) -> tuple[str, str]:
    """Return what a mutation shares with others of its kind: what is wrong, and where it is not refused the column."""
    column, _, wrong = what.partition(" ")
    if refused:
        return "path" if column == "path" else "any", wrong
    # A bound of each type reads text its own way; other facts are alike for all columns.
    return column if wrong == "text" else re.sub("[0-9]+", "n", column), wrong


def test_no_mutation_of_a_segments_columns_does_more_than_raise_our_errors(template: str, at: Places) -> None:
    """The decoder judges every mutation, and all operations meet the first of each kind."""
    name = _object_of(template, "segment")
    table = pq.read_table(io.BytesIO(Storage(template).read(name)))
    known: set[tuple[str, str]] = set()
    for what, changed in _segment_mutations(table):
        url = at.renew(template)
        _replace_segment(url, name, changed)
        refused = _refused(url, name)
        assert refused or what.split()[0] != "path", what
        kind = _kind(what, refused)
        if kind in known:
            continue
        known.add(kind)
        errors = _judge(url, f"segment: {what}", frozenset())
        for readable in _readable_versions(url):
            assert {item.path for item in readable.files()} <= objects_of(url).keys(), what
        if what.split()[0] == "path":
            assert errors, what


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../outside.parquet", "data/../../outside.parquet", "data//x.parquet"]
)
def test_a_name_that_leaves_the_root_is_never_read_or_deleted(
    tmp_path: Path, template: str, live: frozenset[str], path: str
) -> None:
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(b"precious")
    for where in ("segment", "block"):
        at = Places("local", tmp_path)
        url = at.fresh()
        for name, data in objects_of(template).items():
            Storage(url).write(name, data)
        if where == "segment":
            document = json.loads(Storage(url).read(_snapshot(8)))
            document["segments"][0]["path"] = path
            Storage(url).write(_snapshot(8), as_stored(document))
        else:
            name = tblctl.open(url)._native.head().segments[0].path
            table = pq.read_table(io.BytesIO(Storage(url).read(name)))
            column = pa.array([path] * table.num_rows, pa.string())
            _replace_segment(url, name, table.set_column(0, "path", column))
        errors = _judge(url, path, live)
        assert any("refusing" in str(error) for error in errors), [str(error) for error in errors]
        assert outside.read_bytes() == b"precious"


def test_a_segment_that_claims_more_blocks_than_any_is_refused_at_once(
    template: str, live: frozenset[str], at: Places
) -> None:
    for count in (10**18, 10**9, 99):
        url = at.renew(template)
        document = json.loads(Storage(url).read(_snapshot(8)))
        document["segments"][0]["block_count"] = count
        document["summary"]["blocks"] += count - 1
        Storage(url).write(_snapshot(8), as_stored(document))
        assert _judge(url, f"{count} blocks", live)


@pytest.mark.parametrize("sequence", [8, 2, 1])
def test_a_newer_format_version_is_refused_with_what_to_do(
    template: str, live: frozenset[str], at: Places, sequence: int
) -> None:
    url = at.copy(template)
    document = json.loads(Storage(url).read(_snapshot(sequence)))
    Storage(url).write(
        _snapshot(sequence),
        json.dumps({"format_version": 2, "kind": "new", **{k: document[k] for k in ("sequence",)}}).encode(),
    )
    act = {8: READS["scan"], 2: READS["old"], 1: READS["history"]}[sequence]
    with pytest.raises(UnsupportedFormatError, match="install a newer tblctl"):
        act(url)
    before = objects_of(url)
    with pytest.raises(UnsupportedFormatError):
        WRITES["gc"](url)
    if sequence == 8:
        for write in WRITES.values():
            with pytest.raises(UnsupportedFormatError):
                write(url)
    assert objects_of(url) == before


@pytest.mark.parametrize(
    "hint",
    [
        None,
        b"",
        b"{",
        b"null",
        b"[1]",
        b'{"sequence": null}',
        b'{"sequence": "8"}',
        b'{"sequence": -1}',
        b'{"sequence": 0}',
        b'{"sequence": true}',
        b'{"sequence": 1}',
        b'{"sequence": 3}',
        b'{"sequence": 9}',
        b'{"sequence": 100000}',
        b'{"sequence": 999999999999999999}',
        b'{"sequence": 1e400}',
        b'{"sequence": ' + b"9" * 5000 + b"}",
        DEEP.encode(),
        b"\xff\xfe\x00",
        b"\0" * 100,
    ],
    ids=lambda hint: "missing" if hint is None else repr(hint[:30]),
)
def test_the_hint_is_never_trusted(template: str, hint: bytes | None) -> None:
    storage = Storage(template)
    if hint is None:
        storage.delete(["metadata/latest"])
    else:
        storage.write("metadata/latest", hint)
    table = tblctl.open(template)
    assert table.snapshot.sequence == 8
    table.append(_rows(table, 31))
    assert json.loads(storage.read("metadata/latest")) == {"sequence": 9}


def test_a_gap_in_the_snapshots_is_told_and_nothing_is_deleted(template: str) -> None:
    storage = Storage(template)
    storage.delete([_snapshot(4)])
    assert 1 in ids_of(tblctl.open(template))
    assert any("no snapshot 4" in line for line in tblctl.open(template).check().problems)
    before = objects_of(template)
    with pytest.raises(TblctlError, match="4"):
        WRITES["gc"](template)
    assert objects_of(template) == before
