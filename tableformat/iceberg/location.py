"""Locations of Iceberg tables: `iceberg://catalog/namespace.table`. A name with a dot is quoted: `"a.b".c`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tblctl.tableformat.errors import InvalidOptionError

SCHEME = "iceberg://"

_NAME = re.compile(r'"([^"]+)"|([^".]+)')


@dataclass(frozen=True, kw_only=True)
class IcebergLocation:
    """A catalog and a table in it, or for a survey a catalog alone (`table` is empty)."""

    catalog: str
    table: tuple[str, ...]

    def __str__(self) -> str:
        names = ".".join(f'"{name}"' if "." in name else name for name in self.table)
        return f"{SCHEME}{self.catalog}/{names}" if names else f"{SCHEME}{self.catalog}"


def is_iceberg(location: str | os.PathLike[str]) -> bool:
    """Return whether a location is one of Iceberg."""
    return os.fspath(location)[: len(SCHEME)].lower() == SCHEME


def parse_location(location: str | os.PathLike[str]) -> IcebergLocation:
    """Return the parts of a table's location.

    Raises:
        InvalidOptionError: it does not name a catalog, a namespace and a table.
    """
    found = parse_catalog(location)
    if len(found.table) < 2:  # noqa: PLR2004
        raise _wrong(location)
    return found


def parse_catalog(location: str | os.PathLike[str]) -> IcebergLocation:
    """Return the parts of a location that may name a catalog only.

    Raises:
        InvalidOptionError: it names no catalog, or a name is empty.
    """
    catalog, _, rest = os.fspath(location)[len(SCHEME) :].partition("/")
    names: list[str] = []
    at = 0
    while at < len(rest):
        name = _NAME.match(rest, at)
        if name is None:
            raise _wrong(location)
        names.append(name[1] or name[2])
        at = name.end()
        if at < len(rest):
            if rest[at] != "." or at + 1 == len(rest):
                raise _wrong(location)
            at += 1
    if not catalog:
        raise _wrong(location)
    return IcebergLocation(catalog=catalog, table=tuple(names))


def _wrong(location: str | os.PathLike[str]) -> InvalidOptionError:
    return InvalidOptionError(
        f"{os.fspath(location)!r:.200} names no Iceberg table, expected iceberg://CATALOG/NAMESPACE.TABLE; "
        'a name with a dot is quoted: iceberg://prod/sales."a.b"'
    )
