"""Curves and trees for the rows of a table, or for those of a sample: columns and parameters of a new sort."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from tblctl.tableformat.conditions import conditions_of
from tblctl.tableformat.errors import InvalidDataError
from tblctl.tableformat.keys.tree_making import Layout, TreeMaker
from tblctl.tableformat.model.cluster_key import Key
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.model.tree import TreeSource
from tblctl.tableformat.native.read.key_sample import (
    no_rows,
    ranges_of_rows,
    ranges_of_table,
    sample_of_rows,
    sample_of_table,
)
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.workload.place import FOLDER, LogPlace
from tblctl.tableformat.workload.reader import ReadLog, read_log
from tblctl.tableformat.workload.typical import MOST_TYPICAL

_TREE = "a tree takes its cuts"


class Sample(Protocol):
    """Rows like those to come: `InputRows`."""

    @property
    def schema(self) -> pa.Schema:
        """Of all rows."""

    @property
    def name(self) -> str:
        """For messages."""

    def sample(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of the rows, or of some of them."""


def layout_of_table(storage: Storage, snapshot: Snapshot, key: Key) -> Layout:
    """Return a curve or a tree for the rows of a snapshot. Reads at most `SAMPLED_PLACES` row groups of them.

    Raises:
        InvalidKeyError: the table has no rows; or the file of conditions cannot be used, see `read_conditions`.
        InvalidPredicateError: a condition of the file is wrong.
    """
    if key.tree is None:
        return Layout(key.terms, ranges_of_table(storage, snapshot, key.terms).to_parameters())

    def log() -> ReadLog:
        return read_log(LogPlace(storage=storage, folder=FOLDER), snapshot.table_id, limit=MOST_TYPICAL)

    work = _tree_maker(key, key.tree, storage.elsewhere, snapshot.schema, log)
    if not snapshot.row_count:
        raise no_rows(_TREE, f"{storage.url} has none")
    sample = sample_of_table(storage, snapshot, work.leaves)
    weights = sample.weights * (snapshot.row_count / sample.weights.sum())
    return work.layout(sample.rows, weights, snapshot.options.block_rows)


def layout_of_rows(
    key: Key,
    schema: Schema,
    open_sample: Callable[[], Sample | None],
    *,
    reach: Callable[[str], Storage],
    block_rows: int,
) -> Layout:
    """Return a curve or a tree for the rows of a sample.

    Raises:
        InvalidKeyError: there are no rows; or as for `layout_of_table`.
        InvalidDataError: the sample lacks a column, or has values of another type.
        InvalidPredicateError: a condition of the file is wrong.
    """
    work = None if key.tree is None else _tree_maker(key, key.tree, reach, schema, None)
    leaves = (
        work.leaves if work else [leaf for term in key.terms if (leaf := schema.leaf_by_id(term.column_id))]
    )
    what = (
        _TREE if work else f"a curve through {', '.join(leaf.name for leaf in leaves)} takes its boundaries"
    )
    sample = open_sample()
    if sample is None:
        raise no_rows(what, "a new table has none")
    names = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
    missing = [name for name in names if name not in sample.schema.names]
    if missing:
        msg = f"{sample.name} has no column {', '.join(missing)}: {what} from it"
        raise InvalidDataError(msg)
    if work is None:
        return Layout(
            key.terms, ranges_of_rows(sample.sample(names), schema, key.terms, sample.name).to_parameters()
        )
    rows = sample_of_rows(sample.sample(names), leaves, sample.name)
    if rows is None:
        raise no_rows(what, f"{sample.name} has none")
    return work.layout(rows, np.ones(len(rows)), block_rows)


def _tree_maker(
    key: Key,
    source: TreeSource,
    reach: Callable[[str], Storage],
    schema: Schema,
    log: Callable[[], ReadLog] | None,
) -> TreeMaker:
    return TreeMaker(source, key.terms, conditions_of(source, reach, schema, log), schema)
