"""Boundaries for a new curve, from a bounded sample of rows and from the statistics of all blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import InvalidDataError, InvalidKeyError
from tblctl.tableformat.keys.boundaries import Weights, divided, with_bounds
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
    schema = snapshot.schema
    leaves = _leaves(terms, schema)
    if not snapshot.row_count:
        raise no_rows(leaves, f"{storage.url} has none")
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
    return _ranges(
        _with_others(rows.column(number).combine_chunks(), weights, metadata, leaf, others)
        for number, leaf in enumerate(leaves)
    )


def ranges_of_rows(tables: Iterable[pa.Table], schema: Schema, terms: Sequence[Term], name: str) -> Ranges:
    """Return boundaries of columns for the rows in some tables, which have these columns.

    Raises:
        InvalidKeyError: there are no rows.
        InvalidDataError: a column has values of another type.
    """
    leaves = _leaves(terms, schema)
    rows = _thinned(_key_columns(table, leaves, name) for table in tables)
    if rows is None:
        raise no_rows(leaves, f"{name} has none")
    weights = np.ones(len(rows))
    return _ranges((column.combine_chunks(), weights) for column in rows.columns)


def no_rows(leaves: Sequence[Leaf], why: str) -> InvalidKeyError:
    """Return the error that there are no rows to make boundaries from."""
    names = ", ".join(leaf.name for leaf in leaves)
    msg = (
        f"a curve through {names} takes its boundaries from rows, and {why}: create the table `--like` a file with "
        "rows (`sample=` in Python), or append rows first and set the key then (`tblctl alter LOC --cluster-by ...`)"
    )
    return InvalidKeyError(msg)


def _leaves(terms: Sequence[Term], schema: Schema) -> list[Leaf]:
    return [leaf for term in terms if (leaf := schema.leaf_by_id(term.column_id)) is not None]


def _ranges(columns: Iterable[tuple[pa.Array, Weights]]) -> Ranges:
    given = list(columns)
    bits = BITS[len(given)]
    boundaries, places = zip(*(divided(*column, bits=bits) for column in given), strict=True)
    return Ranges(bits=bits, boundaries=boundaries, places=places)


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
    """Return the columns of a curve, by number, in their statistic types."""
    try:
        columns = [leaf_values(rows, leaf.path).cast(statistic_type(leaf.type)) for leaf in leaves]
    except pa.ArrowInvalid as error:
        msg = f"the columns of a curve cannot be taken from {name}: {error}"
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


def _with_others(
    values: pa.Array, weights: Weights, metadata: BlockMetadata, leaf: Leaf, others: npt.NDArray[np.int64]
) -> tuple[pa.Array, Weights]:
    """Return a column's sample, and the bounds of blocks that were not read."""
    column = metadata.column(leaf)
    if column is None or not len(others):
        return values, weights
    some = others[:: -(-len(others) // MOST_BOUNDS)]
    at, scale = pa.array(some), len(others) / len(some)
    nulls = np.clip(column.null_count[some], 0, None)
    rows = np.asarray((metadata.row_count[some] - nulls) * scale, np.float64)
    return with_bounds(values, weights, column.min.take(at), column.max.take(at), rows)
