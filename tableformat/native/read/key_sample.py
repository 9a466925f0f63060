"""A bounded sample of rows, and boundaries for a new curve from it and from the statistics of all blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import InvalidDataError, InvalidKeyError
from tblctl.tableformat.keys.boundaries import Weights, choose_boundaries, with_bounds
from tblctl.tableformat.keys.linear import leaf_values
from tblctl.tableformat.model.cluster_key import Term
from tblctl.tableformat.model.curve import BITS, Ranges
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.read.metadata import ADDRESS_COLUMNS, BlockMetadata, block_metadata
from tblctl.tableformat.parquet.opened import BlockAddress
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.storage import Storage

SAMPLED_PLACES = 64
"""Row groups that rows are read of, at even distances in the table."""

SAMPLED_ROWS = 1 << 17
"""Rows that are kept of them: 128 for each range of a column of two."""

MOST_BOUNDS = 1 << 16
"""Blocks that are not read, whose bounds count; of more, evenly many."""


def ranges_of_table(storage: Storage, snapshot: Snapshot, terms: Sequence[Term]) -> Ranges:
    """Return boundaries of columns for the rows of a snapshot. Reads at most `SAMPLED_PLACES` row groups of them.

    Raises:
        InvalidKeyError: the table has no rows.
    """
    leaves = _leaves(terms, snapshot.schema)
    if not snapshot.row_count:
        raise no_rows(_curve(leaves), f"{storage.url} has none")
    sample = sample_of_table(storage, snapshot, leaves)
    return _ranges(
        _with_others(sample.rows.column(number).combine_chunks(), sample, leaf)
        for number, leaf in enumerate(leaves)
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class TableSample:
    """Some rows of a table.

    Attributes:
        rows: their columns, by number, in statistic types.
        weights: how many rows of its block each stands for.
        metadata: of all blocks.
        others: the blocks that were not read.
    """

    rows: pa.Table
    weights: Weights
    metadata: BlockMetadata
    others: npt.NDArray[np.int64]


def sample_of_table(storage: Storage, snapshot: Snapshot, leaves: Sequence[Leaf]) -> TableSample:
    """Return columns of some rows of a table, which has any. Reads at most `SAMPLED_PLACES` row groups of it."""
    schema = snapshot.schema
    metadata = block_metadata(storage, snapshot)
    metadata.fetch_statistics(leaves, ADDRESS_COLUMNS)
    offsets = _sampled_offsets(metadata.row_count)
    chosen = np.array(list(offsets))
    addresses = metadata.addresses(chosen, snapshot.column_ids)
    samples = in_parallel(
        lambda item: _sample(storage, item[0], offsets[item[1]], leaves, schema),
        list(zip(addresses, chosen.tolist(), strict=True)),
        threads=IO_THREADS,
    )
    rows = pa.concat_tables(samples)
    weights = np.concatenate(
        [
            np.full(len(sample), metadata.row_count[block] / max(len(sample), 1))
            for sample, block in zip(samples, chosen.tolist(), strict=True)
        ]
    )
    others = np.setdiff1d(np.arange(len(metadata)), chosen)
    return TableSample(rows=rows, weights=weights, metadata=metadata, others=others)


def ranges_of_rows(tables: Iterable[pa.Table], schema: Schema, terms: Sequence[Term], name: str) -> Ranges:
    """Return boundaries of columns for the rows in some tables, which have these columns.

    Raises:
        InvalidKeyError: there are no rows.
        InvalidDataError: a column has values of another type.
    """
    leaves = _leaves(terms, schema)
    rows = sample_of_rows(tables, leaves, name)
    if rows is None:
        raise no_rows(_curve(leaves), f"{name} has none")
    weights = np.ones(len(rows))
    return _ranges((column.combine_chunks(), weights) for column in rows.columns)


def sample_of_rows(tables: Iterable[pa.Table], leaves: Sequence[Leaf], name: str) -> pa.Table | None:
    """Return columns of at most `SAMPLED_ROWS` rows, by number, in statistic types; None if there are no rows.

    Raises:
        InvalidDataError: a column has values of another type.
    """
    return _thinned(_key_columns(table, leaves, name) for table in tables)


def no_rows(what: str, why: str) -> InvalidKeyError:
    """Return the error that there are no rows to make something of."""
    msg = (
        f"{what} from rows, and {why}: create the table `--like` a file with "
        "rows (`sample=` in Python), or append rows first and set the key then (`tblctl alter LOC --cluster-by ...`)"
    )
    return InvalidKeyError(msg)


def _curve(leaves: Sequence[Leaf]) -> str:
    names = ", ".join(leaf.name for leaf in leaves)
    return f"a curve through {names} takes its boundaries"


def _leaves(terms: Sequence[Term], schema: Schema) -> list[Leaf]:
    return [leaf for term in terms if (leaf := schema.leaf_by_id(term.column_id)) is not None]


def _ranges(columns: Iterable[tuple[pa.Array, Weights]]) -> Ranges:
    given = list(columns)
    bits = BITS[len(given)]
    return Ranges(bits=bits, boundaries=tuple(choose_boundaries(*column, bits=bits) for column in given))


def _sampled_offsets(rows: npt.NDArray[np.int64]) -> dict[int, list[int]]:
    """Return for some blocks, by number, the rows whose row groups are read: at even distances in the table."""
    through = np.cumsum(rows)
    total = int(through[-1])
    count = min(SAMPLED_PLACES, total)
    marks = (2 * np.arange(count) + 1) * total // (2 * count)
    blocks = np.searchsorted(through, marks, side="right")
    found: dict[int, list[int]] = {}
    for block, mark in zip(blocks.tolist(), marks.tolist(), strict=True):
        found.setdefault(block, []).append(mark - int(through[block]) + int(rows[block]))
    return found


def _sample(
    storage: Storage,
    address: BlockAddress,
    offsets: Sequence[int],
    leaves: Sequence[Leaf],
    schema: Schema,
) -> pa.Table:
    """Return the columns of some rows of the row groups of a block that have the rows at `offsets`."""
    with BlockFile(storage, address) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        groups = np.unique(np.searchsorted(np.cumsum(sizes), offsets, side="right")).tolist()
        projection = file.projection(schema, list(dict.fromkeys(leaf.path[0] for leaf in leaves)))
        rows = file.read(groups, projection, use_threads=False)
    return _every(_key_columns(rows, leaves, address.path), len(offsets) * SAMPLED_ROWS // SAMPLED_PLACES)


def _every(rows: pa.Table, most: int) -> pa.Table:
    """Return at most so many of the rows, at even distances."""
    step = -(-len(rows) // max(most, 1))
    return rows.take(pa.array(np.arange(step // 2, len(rows), step))) if step > 1 else rows


def _key_columns(rows: pa.Table, leaves: Sequence[Leaf], name: str) -> pa.Table:
    """Return the columns of a key, by number, in their statistic types."""
    try:
        columns = [leaf_values(rows, leaf.path).cast(statistic_type(leaf.type)) for leaf in leaves]
    except pa.ArrowInvalid as error:
        msg = f"the columns of a key cannot be taken from {name}: {error}"
        raise InvalidDataError(msg) from error
    return pa.table(columns, names=[str(number) for number in range(len(columns))])


def _thinned(tables: Iterator[pa.Table]) -> pa.Table | None:
    """Return at most `SAMPLED_ROWS` of all rows, at even distances; None if there are none."""
    kept: list[pa.Table] = []
    step, count = 1, 0
    for table in tables:
        some = _every(table, -(-len(table) // step))
        kept.append(some)
        count += len(some)
        while count > SAMPLED_ROWS:
            kept = [_every(pa.concat_tables(kept).combine_chunks(), SAMPLED_ROWS // 2)]
            step, count = step * 2, len(kept[0])
    return pa.concat_tables(kept) if count else None


def _with_others(values: pa.Array, sample: TableSample, leaf: Leaf) -> tuple[pa.Array, Weights]:
    """Return a column's sample, and the bounds of blocks that were not read."""
    metadata, others = sample.metadata, sample.others
    column = metadata.column(leaf)
    if column is None or not len(others):
        return values, sample.weights
    some = others[:: -(-len(others) // MOST_BOUNDS)]
    at, scale = pa.array(some), len(others) / len(some)
    nulls = np.clip(column.null_count[some], 0, None)
    rows = np.asarray((metadata.row_count[some] - nulls) * scale, np.float64)
    return with_bounds(values, sample.weights, column.min.take(at), column.max.take(at), rows)
