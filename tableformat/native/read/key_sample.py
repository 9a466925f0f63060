"""Boundaries for a new curve, from a bounded sample of rows and from the statistics of all blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import InvalidDataError, InvalidKeyError
from tblctl.tableformat.keys import sampling
from tblctl.tableformat.keys.linear import leaf_values
from tblctl.tableformat.keys.sampling import (
    every,
    groups_at,
    ranges_of_blocks,
    ranges_of_columns,
    sample_of,
    sampled_offsets,
)
from tblctl.tableformat.model.cluster_key import Term
from tblctl.tableformat.model.curve import Ranges
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.read.metadata import ADDRESS_COLUMNS, block_metadata
from tblctl.tableformat.parquet.opened import BlockAddress
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.storage import Storage


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
    offsets = sampled_offsets(metadata.row_count)
    addresses = metadata.addresses(np.array(list(offsets)), snapshot.column_ids)
    samples = in_parallel(
        lambda item: _sample(storage, *item, leaves, schema),
        list(zip(addresses, offsets.values(), strict=True)),
        threads=IO_THREADS,
    )
    return ranges_of_blocks(dict(zip(offsets, samples, strict=True)), metadata, leaves)


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
    return ranges_of_columns((column.combine_chunks(), weights) for column in rows.columns)


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
        projection = file.projection(schema, list(dict.fromkeys(leaf.path[0] for leaf in leaves)))
        rows = file.read(groups_at(offsets, sizes), projection, use_threads=False)
    return sample_of(_key_columns(rows, leaves, address.path), len(offsets))


def _key_columns(rows: pa.Table, leaves: Sequence[Leaf], name: str) -> pa.Table:
    """Return the columns of a curve, by number, in their statistic types."""
    try:
        columns = [leaf_values(rows, leaf.path).cast(statistic_type(leaf.type)) for leaf in leaves]
    except pa.ArrowInvalid as error:
        msg = f"the columns of a curve cannot be taken from {name}: {error}"
        raise InvalidDataError(msg) from error
    return pa.table(columns, names=[str(number) for number in range(len(columns))])


def _thinned(tables: Iterator[pa.Table]) -> pa.Table | None:
    """Return at most `sampling.SAMPLED_ROWS` of all rows, at even distances; None if there are none."""
    kept: list[pa.Table] = []
    step, count = 1, 0
    for table in tables:
        some = every(table, -(-len(table) // step))
        kept.append(some)
        count += len(some)
        while count > sampling.SAMPLED_ROWS:
            kept = [every(pa.concat_tables(kept).combine_chunks(), sampling.SAMPLED_ROWS // 2)]
            step, count = step * 2, len(kept[0])
    return pa.concat_tables(kept) if count else None
