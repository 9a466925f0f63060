"""Options of a Spark reader or writer, parsed and validated. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tblctl.storage_text import read_storage_options
from tblctl.tableformat.errors import InvalidOptionError, TblctlError
from tblctl.tableformat.model.options import parse_size, record_rate
from tblctl.tableformat.storage.location import is_secret_option

_STORAGE = "storage."
_OWN = ("path", "as_of", "columns", "where", "memory_bytes", "record")
_SPARKS = frozenset({"checkpointlocation", "queryname", "location", "owner", "provider"})
"""Options that Spark adds, in lower case."""

_LOCAL = re.compile(r"^file:/+")  # the form in which Spark passes local paths

_CASED = "s3_additional_kwargs"
"""An option of s3fs that contains others, such as ServerSideEncryption. Spark passes their names on in lower case, and
s3fs ignores names that it does not know. Objects would then be stored unencrypted."""

_NO_SECRETS = frozenset({"SSEKMSKeyId", "BucketKeyEnabled"})
"""Options inside of `_CASED` that are no secrets, although their names look so."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options of one reader or writer.

    Attributes:
        location: location of the table.
        as_of: a sequence, tag or time as text; None for the newest version.
        columns: the columns to read, in order; None for all.
        where: a SQL condition on the rows to read; None for all rows.
        memory_bytes: memory budget of one writing task; None for the table's option.
        storage: fsspec options beside the registered ones; no secrets.
        record: off, on or sample:0.1, instead of the table's option `recluster.record`; None for that.
    """

    location: str
    as_of: str | None
    columns: tuple[str, ...] | None
    where: str | None
    memory_bytes: int | None
    storage: Mapping[str, Any]
    record: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse and validate the options.

        Raises:
            InvalidOptionError: the message lists every problem, and shows no value of a storage option.
        """
        names = {name.lower(): name for name in options}
        problems = [
            f"there is no option {name!r}: expected one of {', '.join(_OWN)}, storage.NAME"
            for name in sorted(names)
            if name not in _OWN and name not in _SPARKS and not name.startswith(_STORAGE)
        ]
        problems += [
            f"Spark passes the name of option {name!r} on in lower case, which S3 does not know: give "
            f'option("{_STORAGE}{_CASED}", \'{{"ServerSideEncryption": "AES256"}}\'), or storage_options to '
            "tblctl.spark.register"
            for name in sorted(names)
            if name.startswith(f"{_STORAGE}{_CASED}.")
        ]
        columns = _columns(options.get("columns"))
        if columns == ():
            problems.append('option columns names none: expected names such as "a,b"')
        if not options.get("path"):
            problems.append(
                "there is no path: name the table's location in load(...), save(...), start(...), or in CREATE "
                "TEMPORARY VIEW .. USING tblctl OPTIONS (path '...'); Spark passes none on from CREATE TABLE"
            )
        storage: dict[str, Any] = {}
        memory_bytes = None
        given = {
            name.removeprefix(_STORAGE): options[names[name]] for name in names if name.startswith(_STORAGE)
        }
        try:
            storage = read_storage_options(given)
            memory_bytes = parse_size(options["memory_bytes"]) if "memory_bytes" in options else None
            if "record" in options:
                record_rate(options["record"])
        except TblctlError as error:
            problems.append(str(error))
        problems += [
            f"option {_STORAGE + name!r} may hold a secret, and Spark shows options in its plans and UI: "
            "give it to tblctl.spark.register(spark, storage_options={...})"
            for name in sorted({*given, *_names(storage)})
            if is_secret_option(name) and name.rpartition(".")[2] not in _NO_SECRETS
        ]
        if problems:
            raise InvalidOptionError("; ".join(problems))
        location = _LOCAL.sub("/", options["path"], count=1)
        require_shared(location)
        return cls(
            location=location,
            as_of=options.get("as_of"),
            columns=columns,
            where=options.get("where"),
            memory_bytes=memory_bytes,
            storage=storage,
            record=options.get("record"),
        )


def require_shared(location: str) -> None:
    """Raise if Spark's workers cannot reach a table's location.

    Raises:
        InvalidOptionError: the table is in memory.
    """
    if location.startswith("memory:"):
        raise InvalidOptionError(
            f"{location} is in the memory of one process, where Spark's workers cannot see it: put the table on a "
            "disk that all of them share, or on S3"
        )


def _names(value: Any, outer: str = "") -> Iterator[str]:
    """Yield the names of options and of the options nested in them, as in `a.b`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield outer + name
            yield from _names(inner, f"{outer}{name}.")
    elif isinstance(value, list):
        for item in value:
            yield from _names(item, outer)


def _columns(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())
