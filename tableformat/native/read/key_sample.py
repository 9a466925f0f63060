"""A bounded sample of rows, and boundaries for a new curve from it and from the statistics of all blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.errors import InvalidDataError, InvalidKeyError
from tblctl.tableformat.keys import sampling
from tblctl.tableformat.keys.boundaries import Weights
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
from tblctl.tableformat.native.read.metadata import ADDRESS_COLUMNS, BlockMetadata, block_metadata
from tblctl.tableformat.parquet.opened import BlockAddress
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.storage import Storage


def ranges_of_table(storage: Storage, snapshot: Snapshot, terms: Sequence[Term]) -> Ranges:
    """Return boundaries of columns for the rows of a snapshot. Reads at most `SAMPLED_PLACES` row groups of them.

    Raises:
        InvalidKeyError: the table has no rows.
    """
    leaves = _leaves(terms, snapshot.schema)
    if not snapshot.row_count:
        raise no_rows(_curve(leaves), f"{storage.url} has none")
    sample = sample_of_table(storage, snapshot, leaves)
    return ranges_of_blocks(sample.of_blocks, sample.metadata, leaves)


@dataclass(frozen=True, kw_only=True, eq=False)
class TableSample:
    """Some rows of a table.

    Attributes:
        of_blocks: the rows of some blocks, by number: their columns, by number, in statistic types.
        metadata: of all blocks.
    """

    of_blocks: Mapping[int, pa.Table]
    metadata: BlockMetadata

    @property
    def rows(self) -> pa.Table:
        """All rows of the sample."""
        return pa.concat_tables(self.of_blocks.values())

    @property
    def weights(self) -> Weights:
        """How many rows of its block each row stands for."""
        rows = self.metadata.row_count
        each = (np.full(len(some), rows[block] / max(len(some), 1)) for block, some in self.of_blocks.items())
        return np.concatenate([*each])


def sample_of_table(storage: Storage, snapshot: Snapshot, leaves: Sequence[Leaf]) -> TableSample:
    """Return columns of some rows of a table, which has any. Reads at most `SAMPLED_PLACES` row groups of it."""
    schema = snapshot.schema
    metadata = block_metadata(storage, snapshot)
    metadata.fetch_statistics(leaves, ADDRESS_COLUMNS)
    offsets = sampled_offsets(metadata.row_count)
    addresses = metadata.addresses(np.array(list(offsets)), snapshot.column_ids)
    samples = in_parallel(
        lambda item: _sample(storage, *item, leaves, schema),
        list(zip(addresses, offsets.values(), strict=True)),
        threads=IO_THREADS,
    )
    return TableSample(of_blocks=dict(zip(offsets, samples, strict=True)), metadata=metadata)


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
    return ranges_of_columns((column.combine_chunks(), weights) for column in rows.columns)


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
    """Return the columns of a key, by number, in their statistic types."""
    try:
        columns = [leaf_values(rows, leaf.path).cast(statistic_type(leaf.type)) for leaf in leaves]
    except pa.ArrowInvalid as error:
        msg = f"the columns of a key cannot be taken from {name}: {error}"
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
