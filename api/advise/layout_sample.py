"""A bounded sample of a table's rows, of any format that merges read, to try layouts on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.advise.arranged import Rows
from tblctl.selector.draft import most_rows
from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.keys.sampling import groups_at, sampled_offsets
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import AS_LISTED, Sort, Term
from tblctl.tableformat.model.schema.schema import Leaf
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.statistics import BlockStatistics
from tblctl.tableformat.port import BlockIO, Version

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SampleLimits:
    """How much is read.

    Attributes:
        places: row groups, at even distances in the table.
        rows: that are kept of them.
    """

    places: int = 256
    rows: int = 1 << 17


DEFAULT_SAMPLE = SampleLimits()


@dataclass(frozen=True, kw_only=True, eq=False)
class LayoutSample:
    """Some rows of a table.

    Attributes:
        rows: their columns.
        weights: how many rows of the table each stands for.
        row_groups: that were read.
        block_rows: the rows of a block that a recluster writes.
        block_count: the blocks of the table if all are written anew.
    """

    rows: Rows
    weights: Floats
    row_groups: int
    block_rows: int
    block_count: int


def read_sample(
    io: BlockIO, version: Version, leaves: Sequence[Leaf], limits: SampleLimits = DEFAULT_SAMPLE
) -> LayoutSample:
    """Return columns of some rows of a table. Reads these columns of at most `limits.places` row groups.

    Raises:
        InvalidOptionError: the table has no rows; or equality deletes apply to a block (Iceberg).
        CorruptTableError: a block is missing or damaged.
    """
    listing = version.listing(AS_LISTED, None)
    rows = listing.stored_rows
    total = int(rows.sum())
    if not total:
        msg = f"{version.location} has no rows to try layouts on"
        raise InvalidOptionError(msg)
    offsets = sampled_offsets(rows, limits.places)
    paths = [listing.paths[number].as_py() for number in offsets]
    blocks = version.blocks(paths)
    reading = _Reading(io, leaves, limits)
    found = in_parallel(
        lambda item: reading.of_block(*item),
        list(zip(io.live([blocks[path] for path in paths]), offsets.values(), strict=True)),
        threads=IO_THREADS,
    )
    shares = [
        np.full(len(part), len(places) / max(len(part), 1))
        for (part, _), places in zip(found, offsets.values(), strict=True)
    ]
    weights = np.concatenate(shares)
    if not len(weights):
        msg = (
            f"{version.location}: all rows that were looked at are deleted; there are none to try layouts on"
        )
        raise InvalidOptionError(msg)
    decoded = listing.decoded_bytes.sum(keepdims=True)
    block_rows = int(most_rows(rows.sum(keepdims=True), decoded, version.options)[0])
    statistics = version.statistics(leaves)
    return LayoutSample(
        rows=Rows(
            schema=version.schema,
            table=pa.concat_tables([part for part, _ in found]),
            ends=_ends(statistics, leaves),
        ),
        weights=weights * (total / weights.sum()),
        row_groups=sum(count for _, count in found),
        block_rows=block_rows,
        block_count=-(-total // block_rows),
    )


class _Reading:
    """Reads the same columns of many blocks."""

    def __init__(self, io: BlockIO, leaves: Sequence[Leaf], limits: SampleLimits) -> None:
        self._io, self._limits = io, limits
        self._columns = Sort(id=1, terms=tuple(Term(column_id=leaf.id) for leaf in leaves))
        self._fields = [(leaf.name, statistic_type(leaf.type)) for leaf in leaves]

    def of_block(self, block: Block, offsets: Sequence[int]) -> tuple[pa.Table, int]:
        """Return some rows of the row groups that have the rows at `offsets`, and how many row groups these are."""
        if not block.row_count:
            return pa.table({name: pa.array([], kind) for name, kind in self._fields}), 0
        with self._io.open(block) as reader:
            last = sum(reader.group_rows) - 1
            groups = groups_at([min(offset, last) for offset in offsets], reader.group_rows)
            keys = reader.keys(groups, self._columns)
        columns = {
            name: values.cast(kind) for values, (name, kind) in zip(keys.columns, self._fields, strict=True)
        }
        return _spread(pa.table(columns), len(offsets) * self._limits.rows // self._limits.places), len(
            groups
        )


def _spread(rows: pa.Table, most: int) -> pa.Table:
    """Return so many of the rows, at even distances; all if they are fewer."""
    if len(rows) <= most:
        return rows
    return rows.take(pa.array((2 * np.arange(most) + 1) * len(rows) // (2 * most)))


def _ends(statistics: BlockStatistics, leaves: Sequence[Leaf]) -> Mapping[int, pa.Array]:
    """Return the least and the greatest value of columns by id, as far as statistics have them."""
    found = {}
    for leaf in leaves:
        column = statistics.column(leaf)
        if column is not None and column.min.null_count < len(column.min) > column.max.null_count:
            least = column.min.take(pa.array([pc.index(column.min, pc.min(column.min)).as_py()]))
            greatest = column.max.take(pa.array([pc.index(column.max, pc.max(column.max)).as_py()]))
            chunks = pa.chunked_array([*_chunks(least), *_chunks(greatest)])
            found[leaf.id] = chunks.combine_chunks()
    return found


def _chunks(values: Any) -> Sequence[pa.Array]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]
