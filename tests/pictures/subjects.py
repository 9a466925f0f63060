"""Tables to draw: small real ones, and versions of any number of blocks that are metadata only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from unpartitioned import Unpartitioned

import tblctl
from tblctl.pictures.depths import depth_history
from tblctl.pictures.picture import Picture, make_history, make_picture
from tblctl.tableformat.formats import open_port
from tblctl.tableformat.model.cluster_key import Sort, parse_terms
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.port import Listing

SEED = 20_261_121
SCHEMA = Schema.create(pa.schema([("a", pa.int64())]))
SORT = Sort(id=1, terms=parse_terms("a", SCHEMA))


def table_of(location: str, *blocks: tuple[int | None, int | None]) -> tblctl.Table:
    """Make a table in which every block is one append of two keys."""
    table = tblctl.create(location, "a: int64", cluster_by="a")
    for ends in blocks:
        table.append(pa.table({"a": pa.array(ends, pa.int64())}))
    return table


@dataclass(frozen=True, kw_only=True)
class ListedVersion(Unpartitioned):
    """The part of `tblctl.tableformat.port.Version` that a picture needs."""

    low: np.ndarray
    high: np.ndarray
    level: np.ndarray
    partition: tuple[str, ...] = ()
    location: str = "s3://warehouse/sales/orders"
    public_id: int = 7
    schema: Schema = SCHEMA
    sort: Sort = SORT

    def listing(self, sort, condition, *, clustered=True, runs=False, beside=None) -> Listing:
        every = np.ones(self.low.size, dtype=bool)
        rows = np.full(self.low.size, 1_000_000)
        names = tuple(dict.fromkeys(self.partition)) or ("",)
        return Listing(
            paths=pa.array([f"data/{number:032x}.parquet" for number in range(self.low.size)]),
            low=pa.table({"0": self.low}),
            high=pa.table({"0": self.high}),
            own=every,
            sort_id=np.full(self.low.size, sort.id),
            known=every,
            exact=every,
            level=self.level,
            stored_rows=rows,
            size_bytes=rows,
            decoded_bytes=rows,
            same_key_rows=rows,
            matched=None,
            partition=np.array([names.index(name) for name in self.partition], np.int64),
            partitions=names,
        )


def random_version(count: int, *, levels: int = 10) -> ListedVersion:
    """Return blocks of every level and width."""
    rng = np.random.default_rng(SEED)
    low = rng.integers(0, 10**12, count)
    return ListedVersion(
        low=low,
        high=low + rng.integers(0, 10 ** rng.integers(1, 13, count)),
        level=rng.integers(-1, levels, count),
    )


def picture_of(*versions: ListedVersion) -> Picture:
    return make_picture(versions, None, lambda _: None, make_history([], []), where=None)


def picture_of_table(table: tblctl.Table, *sequences: int) -> Picture:
    port = open_port(table.location)
    versions = [port.version(str(sequence)) for sequence in sequences]
    past = list(port.history(start=versions[-1]))
    history = make_history(past, depth_history(past, port.version))
    return make_picture(versions, None, lambda _: None, history, where=None)
