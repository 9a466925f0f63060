"""Which files of a folder count, and what their names say. Pure.

Rules are those of pyarrow and Spark: hidden files (`.x`, `_x`) do not count, nor those without the ending `.parquet`.
A folder `key=value` gives all files below it a value of the column `key`, in percent-encoding ("hive partitioning").
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

from tblctl.tableformat.errors import InvalidOptionError

ENDING = ".parquet"
NULL = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark write for a null."""

_LIKE_PARQUET = re.compile(r"(?i:[^/]+\.(?:parquet|parq|pq)(?:\.[^/]*)?)|[^/.]+")
"""Names of files that are often Parquet: `a.PARQUET`, `a.parquet.snappy`, `d.pq`, and those without an ending."""

_MAGIC = re.compile(r"[*?\[]")
_WEB = re.compile(r"\bhttps?://", re.IGNORECASE)
DELTA_LOG = "_delta_log"
FOREIGN = {DELTA_LOG: "a Delta table", ".hoodie": "a Hudi table"}
"""What a folder is that has a folder of this name."""
_ICEBERG_METADATA = re.compile(r"(?:.*/)?metadata/[^/]+\.metadata\.json(?:\.gz)?")
_NATIVE_METADATA = re.compile(r"(?:.*/)?metadata/(?:snapshots|segments)/[^/]+")
_BLOCK = re.compile(r"data/[0-9a-f]{32}\.parquet")
NATIVE = "a table of tblctl"
ICEBERG = "an Iceberg table"
PROBES = (f"{DELTA_LOG}/", ".hoodie/", "metadata/")
"""Prefixes of the names that show that a folder is a table."""


def split_glob(location: str) -> tuple[str, str | None]:
    """Return the folder that a location names, and the pattern of names below it; None if the location has none.

    `s3://lake/in/2024*/*.parquet` is `s3://lake/in` and `2024*/*.parquet`. In the host of a URL, and before it, no
    character stands for others: a password may be there. In a URL of the web `?` begins a query, which may have one.
    """
    host = location.rfind("://")
    path = location.find("/", max(host + len("://"), location.rfind("@"))) if host >= 0 else 0
    found = None if path < 0 or _WEB.search(location) else _MAGIC.search(location, path)
    if found is None:
        return location, None
    at = location.rfind("/", 0, found.start()) + 1
    return location[:at] or ".", location[at:]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The rule by which files of a folder count: `names`, or those that match `pattern`; else all but hidden ones.

    A pattern takes what it matches, whatever its ending, and the files below a folder that it matches: of these not
    hidden ones. `*` and `?` do not match `/`; `**` matches any folders.

    Raises:
        InvalidOptionError: at construction: the pattern is no glob.
    """

    pattern: str | None = None
    names: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        try:
            _ = self._compiled
        except re.error as error:
            raise InvalidOptionError(f"{self.pattern!r:.200} is no glob: {error}") from error

    @cached_property
    def _compiled(self) -> re.Pattern[str] | None:
        return None if self.pattern is None else re.compile(f"{_regex(self.pattern)}(?:/(?P<below>.+))?")

    @property
    def prefix(self) -> str:
        """What the names of all files that count begin with."""
        if self.pattern is None:
            pairs = zip(min(self.names, default=""), max(self.names, default=""), strict=False)
            return "".join(one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        found = _MAGIC.search(self.pattern)
        return self.pattern[: found.start()] if found else self.pattern

    def takes(self, name: str) -> bool:
        """Return whether a file counts."""
        if self.names:
            return name in self.names
        if self._compiled is None:
            return _is_visible(name)
        found = self._compiled.fullmatch(name)
        return found is not None and (found["below"] is None or _is_visible(found["below"]))


def is_left_out(name: str) -> bool:
    """Return whether a file does not count for its ending alone, though its name is one that Parquet files have."""
    last = name.rpartition("/")[2]
    return not last.endswith(ENDING) and _LIKE_PARQUET.fullmatch(last) is not None and not _is_hidden(name)


def _is_visible(name: str) -> bool:
    return name.endswith(ENDING) and not _is_hidden(name)


def _is_hidden(name: str) -> bool:
    return any(part[:1] in {".", "_"} and "=" not in part for part in name.split("/"))


def _regex(pattern: str) -> str:
    """Return a glob as a regular expression."""
    parts = pattern.strip("/").split("/")
    found = []
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "**":
            found.append(".+" if last else "(?:[^/]+/)*")
        else:
            found.append("".join(_tokens(part)) + ("" if last else "/"))
    return "".join(found)


def _tokens(part: str) -> list[str]:
    found, at = [], 0
    while at < len(part):
        stop = part.find("]", at + 2) if part[at] == "[" else -1
        if stop > 0:
            inner = re.sub(r"([\\\[\]&~|^])", r"\\\1", part[at + 1 : stop])
            found.append(f"[^/{inner[1:]}]" if inner.startswith("!") else f"(?!/)[{inner}]")
            at = stop + 1
            continue
        found.append({"*": "[^/]*", "?": "[^/]"}.get(part[at], re.escape(part[at])))
        at += 1
    return found


def table_of(name: str) -> tuple[str, str] | None:
    """Return what a file belongs to if its name shows that: the folder ("" for the root), and the kind of table."""
    folders = name.split("/")[:-1]
    for place, folder in enumerate(folders):
        if folder in FOREIGN:
            return "/".join(folders[:place]), FOREIGN[folder]
    for pattern, kind in ((_ICEBERG_METADATA, ICEBERG), (_NATIVE_METADATA, NATIVE)):
        if pattern.fullmatch(name):
            return name[: name.rindex("metadata/")].rstrip("/"), kind
    return None


def is_block(name: str) -> bool:
    """Return whether a file has the name of a block of a table of tblctl."""
    return _BLOCK.fullmatch(name) is not None


def may_be_inside(folder: str) -> bool:
    """Return whether a folder of this name is often one inside of a table: a partition, or its data."""
    return folder == "data" or "=" in folder


@dataclass(frozen=True, kw_only=True)
class Partition:
    """The columns and values that a folder's name gives the files in it; values are text, None for null.

    Attributes:
        folder: its name.
        keys, values: in order.
    """

    folder: str
    keys: tuple[str, ...]
    values: tuple[str | None, ...]


def partition_of(folder: str) -> Partition:
    """Return the partition of a folder: `a/year=2024/m=1` has the keys year and m."""
    pairs = [part.partition("=") for part in folder.split("/") if "=" in part]
    return Partition(
        folder=folder,
        keys=tuple(unquote(key) for key, _, _ in pairs),
        values=tuple(None if value == NULL else unquote(value) for _, _, value in pairs),
    )


def are_integers(values: Sequence[str | None]) -> bool:
    """Return whether partition values are all whole numbers of 64 bits, or null; at least one is not null."""
    some = [value for value in values if value is not None]
    return bool(some) and all(
        re.fullmatch(r"-?[0-9]{1,19}", value) and -(2**63) <= int(value) < 2**63 for value in some
    )
