"""Read a Delta table's log with the package `deltalake`: which files count, and what it says of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tblctl.tableformat.errors import (
    CorruptTableError,
    InvalidOptionError,
    TableNotFoundError,
    UnsupportedBackendError,
    UnsupportedFormatError,
)
from tblctl.tableformat.folder.names import DELTA_LOG
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.location import scrub, secrets_in, secrets_of

SCHEME = "delta:"

_KNOWN_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"})
"""Features of the protocol that change nothing of what is read here, or are looked at."""

_MAPPING = "delta.columnMapping.mode"


@dataclass(frozen=True, kw_only=True)
class DeltaLog:
    """What a version of a Delta table says.

    Attributes:
        url: of the table, without secrets.
        table_id: its own.
        version: its number.
        schema: the columns.
        partition_columns: those whose values the log gives, not the files.
        files: a row for each file, with the columns of `DeltaTable.get_add_actions(flatten=True)`: path, size_bytes,
            modification_time (ms), num_records, and `null_count.c`, `min.c`, `max.c`, `partition.c` of columns.
    """

    url: str
    table_id: str
    version: int
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    files: pa.Table


def is_delta(location: str | os.PathLike[str]) -> bool:
    """Return whether a location says `delta:PATH`."""
    return os.fspath(location).startswith(SCHEME)


def read_log(location: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> DeltaLog:
    """Read the newest version.

    Args:
        location: a path, or a URL of object storage; `delta:` may be before it.
        options: of fsspec's S3 filesystem; or those of deltalake, by their names in capitals (`AWS_REGION`).

    Raises:
        TableNotFoundError: there is no Delta table.
        UnsupportedFormatError: it has a feature that would make figures wrong: the message names it.
        CorruptTableError: its log cannot be read.
        UnsupportedBackendError: deltalake is not installed.
    """
    try:
        import deltalake
        from deltalake.exceptions import DeltaError, DeltaProtocolError
        from deltalake.exceptions import TableNotFoundError as NotFoundError
    except ImportError as error:
        msg = (
            "Delta tables are read with the package deltalake, which is not installed: install the extra delta, "
            "pip install '.[delta]' in the checkout"
        )
        raise UnsupportedBackendError(msg) from error
    text = os.fspath(location).removeprefix(SCHEME)
    uri = text if "://" in text else str(Path(text).expanduser().resolve())
    url = Storage(text).url
    secrets = (*secrets_of(text), *secrets_in(dict(options or {})))
    try:
        table = deltalake.DeltaTable(uri, storage_options=to_object_store(options or {}))
        _require_readable(table, url)
        return DeltaLog(
            url=url,
            table_id=str(table.metadata().id),
            version=table.version(),
            schema=pa.schema(table.schema()),
            partition_columns=tuple(table.metadata().partition_columns),
            files=pa.table(table.get_add_actions(flatten=True)),
        )
    except NotFoundError as error:
        msg = f"there is no Delta table at {url}: its {DELTA_LOG} has no version"
        raise TableNotFoundError(msg) from (error if not secrets else None)
    except DeltaProtocolError as error:
        msg = f"{url} is a Delta table with a feature that deltalake does not read: {scrub(str(error), secrets)[:300]}"
        raise UnsupportedFormatError(msg) from (error if not secrets else None)
    except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
        msg = f"{url} cannot be read as a Delta table: {scrub(str(error), secrets)[:300]}"
        raise CorruptTableError(msg, name=DELTA_LOG) from (error if not secrets else None)


def _require_readable(table: Any, url: str) -> None:
    """Refuse a table whose statistics say something else than they seem to.

    Raises:
        UnsupportedFormatError: it has deletion vectors, mapped columns, or a feature that is not known here.
    """
    mode = table.metadata().configuration.get(_MAPPING, "none")
    if mode != "none":
        msg = f"{url} is a Delta table with column mapping ({_MAPPING} = {mode}): its columns have other names in files"
        raise UnsupportedFormatError(f"{msg} and statistics, which tblctl does not read")
    features = set(table.protocol().reader_features or ())
    unknown = sorted(features - _KNOWN_FEATURES - {"columnMapping"})
    if unknown:
        msg = f"{url} is a Delta table with features that tblctl does not know: {', '.join(unknown)}"
        raise UnsupportedFormatError(msg)
    if "deletionVectors" in features:
        count = sum(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()))
        if count:
            msg = f"{url} is a Delta table with deletion vectors, of {count:,} files, which tblctl does not count"
            raise UnsupportedFormatError(f"{msg}: `REORG TABLE .. APPLY (PURGE)` removes them")


_OBJECT_STORE = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
}
"""Options of fsspec's S3 filesystem, and their names in deltalake."""


def to_object_store(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options of fsspec's S3 filesystem as those of deltalake. Options in capitals are passed on.

    Raises:
        InvalidOptionError: an option has no counterpart.
    """
    found: dict[str, str] = {}
    for name, value in options.items():
        if name in _OBJECT_STORE:
            found[_OBJECT_STORE[name]] = str(value)
        elif name == "anon":
            found["AWS_SKIP_SIGNATURE"] = str(bool(value)).lower()
        elif name == "client_kwargs" and set(value) <= {"region_name", "endpoint_url"}:
            names = {"region_name": "AWS_REGION", "endpoint_url": "AWS_ENDPOINT_URL"}
            found |= {names[key]: str(item) for key, item in value.items()}
        elif name.isupper():
            found[name] = str(value)
        else:
            msg = (
                f"the storage option {name} has no counterpart for Delta tables: give options of deltalake by their "
                "names in capitals, such as AWS_REGION"
            )
            raise InvalidOptionError(msg)
    if found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    return found
