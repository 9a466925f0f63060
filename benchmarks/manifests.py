"""Iceberg manifests as columns, against the objects of PyIceberg and the dictionaries of fastavro.

A table of 1,000,000 files with 16 columns, partitioned by day, in manifests of about 8 MB. Each entry has counts of all
columns and bounds of all, texts truncated to 16 characters. Spark (Java) puts records into blocks of 64,000 bytes;
PyIceberg makes a block of each. Both compress with deflate. Every second manifest has the files of one snapshot; the
others were merged, and have files of many. Four manifests are made, and read many times under other names.

Speeds are compared on one manifest of each kind, which all decode from memory in turn. The whole table is read by a
fresh process from the local disk. Its memory is the kernel's peak (`VmHWM`) above what it has at rest.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import random
import struct
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.common import Report, in_turn, main, resident_mib, scratch, timed
from tblctl.tableformat.iceberg.entries import ManifestSource, read_entries

COLUMNS = tuple(range(1, 17))
FLOATS = (5, 6)
TEXTS = (9, 10, 14, 15, 16)
JAVA_BLOCK_BYTES = 64_000
MANIFEST_ENTRIES = 20_000
FILES = 1_000_000
MOST_SECONDS = 60.0
MOST_MIB = 4096.0
RUNS = 5
LAYOUTS = {"Spark, 64,000 bytes a block": False, "PyIceberg, a block for each entry": True}
LEAST_SPEEDS = (4.0, 3.0)  # times PyIceberg's, by layout
SNAPSHOT = 8_273_645_091_827_364_509
WORDS = (
    "furiously",
    "quickly",
    "carefully",
    "express",
    "pending",
    "final",
    "ironic",
    "regular",
    "special",
    "bold",
)


def measure(report: Report, tiny: bool) -> None:
    size = 300 if tiny else MANIFEST_ENTRIES
    report.line(
        f"manifests of {size:,} entries, {len(COLUMNS)} columns; medians of {1 if tiny else RUNS} runs in turn"
    )
    for (layout, single), least in zip(LAYOUTS.items(), LEAST_SPEEDS, strict=True):
        with scratch() as folder:
            paths = [folder / f"{i}.avro" for i in range(4)]
            for i, path in enumerate(paths):
                path.write_bytes(manifest(size, seed=i, merged=i % 2 == 1, single=single))
            report.begin(f"{layout}: manifests of {paths[0].stat().st_size / 1e6:.1f} MB")
            for path, what in zip(paths[:2], ("one snapshot", "many snapshots"), strict=True):
                compare(report, path, size, what, runs=1 if tiny else RUNS, least=None if tiny else least)
            for columns in ((1, 11), COLUMNS):
                whole(report, paths, 2_000 if tiny else FILES, size, columns)


def compare(report: Report, path: Path, size: int, what: str, *, runs: int, least: float | None) -> None:
    """Write how many entries a processor second each decodes of one manifest, and the ratios."""
    data = path.read_bytes()
    cases = {
        "ours, 2 columns": lambda: read_entries([source(path, data)], (1, 11)),
        "ours, 16 columns": lambda: read_entries([source(path, data)], COLUMNS),
        "PyIceberg's objects": lambda: by_pyiceberg(data),
        "fastavro": lambda: by_fastavro(data),
    }
    seconds = dict(
        zip(
            cases,
            in_turn([timed(case, time.process_time) for case in cases.values()], runs=runs),
            strict=True,
        )
    )
    for name, found in seconds.items():
        report.figure(f"{what}: {name}", size / sorted(found)[len(found) // 2], "entries/s")
    for name in list(cases)[:2]:
        for other in list(cases)[2:]:
            ratios = sorted(b / a for a, b in zip(seconds[name], seconds[other], strict=True))
            limit = least if name == "ours, 2 columns" and other != "fastavro" else None
            report.figure(f"  {name} / {other}", ratios[len(ratios) // 2], "times", least=limit)


def whole(report: Report, paths: Sequence[Path], files: int, size: int, columns: Sequence[int]) -> None:
    """Write what a fresh process needs to read all manifests of a table."""
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    count = max(files // size, 1)
    process = context.Process(target=_read_all, args=(other, [str(path) for path in paths], count, columns))
    process.start()
    wall, cpu, mib = mine.recv()
    process.join()
    report.line(f"  {count * size:,} entries, {len(columns)} columns")
    report.figure("  time", wall, "s", most=MOST_SECONDS)
    report.figure("  entries a processor second", count * size / cpu, "entries/s")
    report.figure("  memory", mib, "MiB", most=MOST_MIB)


def _read_all(answer: Connection, paths: Sequence[str], count: int, columns: Sequence[int]) -> None:
    read_entries([source(Path(paths[0]), Path(paths[0]).read_bytes())], columns)
    rest = resident_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    wall, cpu = time.perf_counter(), time.process_time()
    sources = []
    for i in range(count):
        path = Path(paths[i % len(paths)])
        sources.append(source(path.with_name(f"{i}-{path.name}"), path.read_bytes()))
    found = read_entries(sources, columns)
    answer.send((time.perf_counter() - wall, time.process_time() - cpu, resident_mib("VmHWM") - rest))
    del found


def source(path: Path, data: bytes) -> ManifestSource:
    return ManifestSource(path=str(path), data=data, spec_id=0, snapshot_id=SNAPSHOT, sequence_number=7)


def by_pyiceberg(data: bytes) -> Any:
    """Read a manifest as PyIceberg does."""
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.manifest import (
        MANIFEST_ENTRY_SCHEMAS,
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestEntry,
        ManifestEntryStatus,
    )

    with AvroFile[ManifestEntry](
        _InMemory(data),  # type: ignore[arg-type]  # all that it asks for
        MANIFEST_ENTRY_SCHEMAS[2],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        return list(reader)


class _InMemory:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self) -> io.BytesIO:
        return io.BytesIO(self._data)


def by_fastavro(data: bytes) -> Any:
    """Read a manifest as dictionaries."""
    import fastavro

    return list(fastavro.reader(io.BytesIO(data)))


def manifest(entries: int, *, seed: int, merged: bool, single: bool) -> bytes:
    """Return a manifest as Spark writes it, or with a block for each entry."""
    schema = _schema()
    header = {b"avro.schema": schema, b"avro.codec": b"deflate", b"format-version": b"2", b"content": b"data"}
    sync = random.Random(seed).randbytes(16)
    pairs = b"".join(_text(key) + _text(value) for key, value in header.items())
    parts = [b"Obj\x01", _long(len(header)), pairs, _long(0), sync]
    block: list[bytes] = []
    for record in _records(entries, random.Random(seed), merged=merged):
        block.append(record)
        if single or sum(map(len, block)) >= JAVA_BLOCK_BYTES:
            parts += _block(block, sync)
            block = []
    if block:
        parts += _block(block, sync)
    return b"".join(parts)


def _block(records: Sequence[bytes], sync: bytes) -> list[bytes]:
    packer = zlib.compressobj(wbits=-15)
    data = packer.compress(b"".join(records)) + packer.flush()
    return [_long(len(records)), _text(data), sync]


def _schema() -> bytes:
    from pyiceberg.manifest import data_file_with_partition, manifest_entry_schema_with_data_file
    from pyiceberg.types import DateType, NestedField, StructType
    from pyiceberg.utils.schema_conversion import AvroSchemaConversion

    partition = StructType(NestedField(1000, "ts_day", DateType(), required=False))
    schema = manifest_entry_schema_with_data_file(2, data_file_with_partition(partition, 2))
    return json.dumps(AvroSchemaConversion().iceberg_to_avro(schema, "manifest_entry")).encode()


def _records(count: int, rng: random.Random, *, merged: bool) -> Iterator[bytes]:
    job = uuid.UUID(int=rng.getrandbits(128))
    snapshots = [rng.getrandbits(62) | 1 << 61 for _ in range(max(count // 20, 1))]
    for number in range(count):
        day = 19_000 + number * 365 // count
        parts = [_long(0 if merged else 1)]
        if merged:
            place = rng.randrange(len(snapshots))
            parts += [_long(1), _long(snapshots[place]), *[_long(1) + _long(100 + place)] * 2]
        else:
            parts += [_long(1), _long(SNAPSHOT), _long(0), _long(0)]
        path = (
            f"s3://lake-production/warehouse/sales.db/events/data/ts_day={day}/{number:05d}-{rng.randrange(10**6)}-"
            f"{job}-{number % 40:05d}.parquet"
        )
        rows, size = rng.randrange(400_000, 1_000_000), rng.randrange(60 * 2**20, 128 * 2**20)
        parts += [
            _long(0),
            _text(path.encode()),
            _text(b"PARQUET"),
            _long(1),
            _long(day),
            _long(rows),
            _long(size),
        ]
        parts += [
            _numbers({column: rng.randrange(size // 8) for column in COLUMNS}),
            _numbers(dict.fromkeys(COLUMNS, rows)),
            _numbers({column: rng.randrange(rows) if column in TEXTS else 0 for column in COLUMNS}),
            _numbers(dict.fromkeys(FLOATS, 0)),
        ]
        low = {column: _value(column, rng, day) for column in COLUMNS}
        high = {column: max(low[column], _value(column, rng, day)) for column in COLUMNS}
        parts += [_bounds(low), _bounds(high), _long(0)]
        parts += [_long(1), _long(2), _long(4), _long(size // 2), _long(0), _long(0), _long(1), _long(0)]
        yield b"".join(parts)


def _value(column: int, rng: random.Random, day: int) -> bytes:
    """Return a bound: ids, doubles, decimals, texts and dates."""
    if column in TEXTS:
        words = " ".join(rng.choices(WORDS, k=3)) if column != 9 else rng.choice("ANR")
        return words.encode()[:16]
    if column in FLOATS:
        return struct.pack("<d", rng.random() * 1e5)
    if column in (7, 8):
        return rng.randrange(10**6).to_bytes(3, "big")
    if column in (11, 12, 13):
        return (day - rng.randrange(90)).to_bytes(4, "little")
    return rng.randrange(10**9).to_bytes(8, "little")


def _numbers(pairs: dict[int, int]) -> bytes:
    held = b"".join([_long(key) + _long(value) for key, value in pairs.items()])
    return _long(1) + _long(len(pairs)) + held + _long(0)


def _bounds(pairs: dict[int, bytes]) -> bytes:
    held = b"".join([_long(key) + _text(value) for key, value in pairs.items()])
    return _long(1) + _long(len(pairs)) + held + _long(0)


def _long(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    found = bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    found.append(zigzag)
    return bytes(found)


def _text(value: bytes) -> bytes:
    return _long(len(value)) + value


if __name__ == "__main__":
    main("manifests", measure)
