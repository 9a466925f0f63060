"""Locations of Iceberg tables: `iceberg://catalog/namespace.table`.

A name with a dot or a quote in it is quoted, and a quote in it doubled, as in SQL: `"a.b".c`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tblctl.tableformat.errors import InvalidOptionError

SCHEME = "iceberg://"

_NAME = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


@dataclass(frozen=True, kw_only=True)
class IcebergLocation:
    """A catalog and a table in it, or for a survey a catalog alone (`table` is empty)."""

    catalog: str
    table: tuple[str, ...]

    def __str__(self) -> str:
        names = names_to_text(self.table)
        return f"{SCHEME}{self.catalog}/{names}" if names else f"{SCHEME}{self.catalog}"


def names_to_text(names: Sequence[str]) -> str:
    """Return names joined by dots, quoted where that is needed."""
    return ".".join(
        '"' + name.replace('"', '""') + '"' if "." in name or '"' in name else name for name in names
    )


def parse_names(text: str) -> tuple[str, ...] | None:
    """Return the names that dots join; None if one is empty or a quote is not closed."""
    names: list[str] = []
    at = 0
    while at < len(text):
        name = _NAME.match(text, at)
        if name is None:
            return None
        names.append(name[2] or name[1].replace('""', '"'))
        at = name.end()
        if at < len(text):
            if text[at] != "." or at + 1 == len(text):
                return None
            at += 1
    return tuple(names)


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
    names = parse_names(rest)
    if not catalog or names is None:
        raise _wrong(location)
    return IcebergLocation(catalog=catalog, table=names)


def _wrong(location: str | os.PathLike[str]) -> InvalidOptionError:
    return InvalidOptionError(
        f"{os.fspath(location)!r:.200} names no Iceberg table, expected iceberg://CATALOG/NAMESPACE.TABLE; "
        'a name with a dot is quoted: iceberg://prod/sales."a.b", a quote in one is doubled'
    )
