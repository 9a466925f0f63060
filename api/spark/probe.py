"""Test with three rows whether a session's Spark keeps the filters of different queries apart.

Spark 4.1 does not. It stores with a frame or view what a reader planned for the filters of one query, and uses that
plan for every other query of the same frame. There `f.where("k < 10").count()` and then `f.count()` return the same
number (seen with 4.1.4). So in such a version a source must not accept filters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    Filter,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
)
from pyspark.sql.types import StructType

NAME = "tblctl_probe"
ROWS = 3

_TAKEN: dict[type[Filter], Callable[[int, int], bool]] = {
    LessThan: lambda number, limit: number < limit,
    GreaterThanOrEqual: lambda number, limit: number >= limit,
}


class ProbeReader(DataSourceReader):
    """Reads the numbers below `ROWS` that satisfy the accepted filters."""

    def __init__(self) -> None:
        self._numbers = list(range(ROWS))

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 (Spark's name)
        for item in filters:
            holds = _TAKEN.get(type(item))
            if holds and isinstance(item, LessThan | GreaterThanOrEqual):
                self._numbers = [number for number in self._numbers if holds(number, item.value)]
        return [item for item in filters if type(item) not in _TAKEN]

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        yield pa.record_batch({"number": pa.array(self._numbers, pa.int64())})


class Probe(DataSource):
    """A source that accepts filters."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "number bigint"

    def reader(self, schema: StructType) -> ProbeReader:  # noqa: ARG002
        return ProbeReader()


def keeps_filters_apart(session: Any) -> bool:
    """Return whether queries of one frame do not disturb each other. Runs three small jobs."""
    session.dataSource.register(Probe)
    every = session.read.format(NAME).load()
    first, others = every.where("number < 1"), every.where("number >= 1")
    return (first.count(), every.count(), first.union(others).count()) == (1, ROWS, ROWS)
