"""How the files of engines' logs are read: streamed, in bounded memory, and what cannot be used is counted."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, cast

from tblctl.tableformat.errors import InvalidDataError

MOST_LINE_BYTES = 32 << 20
"""Longer lines of a log are left out: a plan of Spark has some megabytes at most."""

_READ_BYTES = 1 << 16
_CODECS = {".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}
_PARQUET_ROWS = 4_096

TOO_LONG_LINE = f"a line has more than {MOST_LINE_BYTES >> 20} MiB"
DAMAGED_LINE = "a line is damaged, or half a line"


@dataclass(kw_only=True)
class Reading:
    """What is read of one log.

    Attributes:
        time: seconds since 1970 of queries whose time the log does not have.
        unused: how many queries were not used, by reason.
        undated: how many queries of a log with times have none that can be read, and got that of `time`.
    """

    time: float
    unused: Counter[str] = field(default_factory=Counter)
    undated: int = 0


def open_stream(path: Path) -> io.BufferedReader:
    """Open a file; one whose name says so is decompressed as it is read.

    Raises:
        InvalidDataError: it cannot be opened.
    """
    import pyarrow as pa

    try:
        if path.suffix == ".gz":  # which Arrow reads nothing of, if it is not at its end
            return cast("io.BufferedReader", gzip.open(path))
        raw: Any = pa.input_stream(str(path), compression=_CODECS.get(path.suffix))
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {error}"
        raise InvalidDataError(msg) from error
    return io.BufferedReader(raw, _READ_BYTES)


def lines_of(path: Path, reading: Reading) -> Iterator[bytes]:
    """Yield the lines of a file. A damaged end of a compressed file, as of a program that still runs, is counted."""
    with open_stream(path) as stream:
        skips = False
        while True:
            try:
                line = stream.readline(MOST_LINE_BYTES)
            except (OSError, EOFError, zlib.error):
                reading.unused["a compressed file is damaged, or not at its end"] += 1
                return
            if not line:
                return
            is_whole = line.endswith(b"\n") or len(line) < MOST_LINE_BYTES
            if is_whole and not skips:
                yield line
            elif not is_whole and not skips:
                reading.unused[TOO_LONG_LINE] += 1
            skips = not is_whole


def json_lines(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file with one in each line."""
    for line in lines_of(path, reading):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            yield found
        else:
            reading.unused[DAMAGED_LINE] += 1


def csv_rows(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV file with a header, by column."""
    csv.field_size_limit(MOST_LINE_BYTES)
    with open_stream(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
        rows = csv.DictReader(text)
        while True:
            try:
                yield {str(name): value for name, value in next(rows).items()}
            except StopIteration:
                return
            except csv.Error:
                reading.unused[DAMAGED_LINE] += 1


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, by column.

    Raises:
        InvalidDataError: it is no Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tblctl.tableformat.parquet.checked_footer import checked_footer

    try:
        with pa.OSFile(str(path)) as source:
            checked_footer(
                lambda start, stop: pa.py_buffer(source.read_at(stop - start, start)),
                source.size(),
                row_count=None,
            )
            for batch in pq.ParquetFile(source).iter_batches(_PARQUET_ROWS):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        msg = f"{path} is no Parquet file: {error}"
        raise InvalidDataError(msg) from error


_MILLIS_FROM, _MICROS_FROM, _NANOS_FROM = 1e11, 1e14, 1e17
"""Numbers that large are times in units below the second: as seconds, they would be after the year 5000."""


def time_of(value: Any) -> float | None:
    """Return a time in seconds since 1970: from a datetime, a number in any unit, or ISO text; UTC without a zone."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).timestamp()
    if isinstance(value, date) or value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    except (TypeError, ValueError):
        return _iso_time(value)
    for start, unit in ((_NANOS_FROM, 1e9), (_MICROS_FROM, 1e6), (_MILLIS_FROM, 1e3)):
        if number >= start:
            return number / unit if number / unit < _MILLIS_FROM else None
    return number if number >= 0 else None


def _iso_time(value: Any) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(re.sub(r" (?=[+-]\d)", "", value.strip().removesuffix(" UTC")))
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp()


def count_of(value: Any) -> int | None:
    """Return a count, of a number or its text; None if it is none."""
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if 0 <= found < 2**63 else None


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """Return a value of nested objects by its dotted name, in any case; None without one."""
    found: Any = row
    for name in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = next((value for key, value in found.items() if str(key).lower() == name.lower()), None)
    return found
