"""One query of a table, and the queries of a time. Pure values, as logs keep them and policies read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockUse:
    """One block that a query read.

    Attributes:
        path: the block's name.
        rows_read: rows of its row groups that were decoded.
        rows_matched: rows that satisfied the condition.
    """

    path: str
    rows_read: int
    rows_matched: int


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query as it was seen, whoever ran it.

    Attributes:
        time: when it ran, in seconds since 1970.
        where: its condition as SQL; empty for one that reads all rows.
        columns: the names of the columns that it reads, those of the condition included; empty if unknown: all.
        weight: queries that it stands for: 10 for one that a sample of a tenth kept.
        blocks_read: blocks that it read; None if unknown, as each figure below.
        blocks_total: blocks of the snapshot that it read.
        bytes_read: compressed bytes of the chunks that it read, about.
        rows_read: rows of the blocks that it read.
        rows_matched: rows that satisfied the condition.
        seconds: how long it took, its reader's own time included.
        cpu_seconds: processor seconds of reading and filtering.
        snapshot: the public id of the snapshot that it read; empty if unknown.
        source: who saw it: `scan` of tblctl, or the kind of log that it was imported from.
        blocks: what it used of the blocks that it read, at most the first `MOST_BLOCKS`; empty if unknown.
        tested: (column, operator) of tests whose values are unknown, so that they are not in `where`.
    """

    time: float
    where: str
    columns: tuple[str, ...] = ()
    weight: float = 1.0
    blocks_read: int | None = None
    blocks_total: int | None = None
    bytes_read: int | None = None
    rows_read: int | None = None
    rows_matched: int | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    snapshot: str = ""
    source: str = "scan"
    blocks: tuple[BlockUse, ...] = ()
    tested: tuple[tuple[str, str], ...] = ()


MOST_WHERE = 16_384
"""Characters of a condition; a longer one is kept in a weaker form, or not."""

MOST_BLOCKS = 1_000
"""So many blocks of a query are kept one by one: 70 bytes each in a log."""


_QUERY_BYTES, _NAME_BYTES, _BLOCK_BYTES = 400, 64, 200


def size_of(query: Query) -> int:
    """Return about how many bytes of memory a query takes; more, if it shares its texts with others."""
    names = sum(map(len, query.columns)) + sum(map(len, (name for test in query.tested for name in test)))
    count = len(query.columns) + 3 * len(query.tested)
    paths = sum(len(use.path) for use in query.blocks)
    return (
        _QUERY_BYTES
        + len(query.where)
        + _NAME_BYTES * count
        + names
        + _BLOCK_BYTES * len(query.blocks)
        + paths
    )


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Queries of one table, the oldest first."""

    queries: tuple[Query, ...]
