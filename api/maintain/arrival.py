"""The order of rows that arrive in a table of policy `workload`: the one that its queries would gain most by.

`selector/workload/arrive.py` has the test. Nothing here fails a write, and nothing is read for rows of one block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tblctl.conditions import resolved
from tblctl.maintain.experience import rates_at_hand
from tblctl.metrics.intervals import Integers
from tblctl.selector.checks import MOST_SORTS
from tblctl.selector.policies.workload import Workload, WorkloadOptions
from tblctl.selector.workload.arrive import SORT_SHARE, Rows, best_order, blocks_in_order
from tblctl.selector.workload.asked import HALF_LIFE, Asked, Ints
from tblctl.selector.workload.compiled import Compiled
from tblctl.selector.workload.replay import Blocks
from tblctl.tableformat.errors import InvalidKeyError
from tblctl.tableformat.keys.kinds import key_leaves
from tblctl.tableformat.keys.linear import leaf_values
from tblctl.tableformat.keys.order import key_table, sort_indices
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.curve import is_bare
from tblctl.tableformat.model.cut import cut_rows, most_rows
from tblctl.tableformat.model.schema.text_scanner import quote_name
from tblctl.tableformat.port import TablePort, Version
from tblctl.tableformat.predicate.boxes import Box, Place, boxes_of
from tblctl.workload.log import workload_for

LOG = logging.getLogger("tblctl")

MOST_ROWS = 1 << 16
"""Rows that stand for all: to put them into some orders takes 0.1 s."""

_MOST_CHARACTERS = 25_000
"""Of conditions that are read: some 0.3 s."""


def order_of_rows(
    port: TablePort[Any], version: Version, *, stored_row_bytes: float | None
) -> Callable[[Sequence[pa.Table]], Sort | None] | None:
    """Return what chooses the order of rows that are written for a version; None if its policy is another one.

    What is returned returns None for the table's own order; also if anything goes wrong, which is logged.

    Args:
        port: the table.
        version: of the table.
        stored_row_bytes: of a row in its blocks; None without rows. Nothing is chosen then.
    """
    if version.options.recluster_policy != Workload.name or stored_row_bytes is None:
        return None
    arrivals = _Arrivals(port, version, stored_row_bytes)

    def order_of(tables: Sequence[pa.Table]) -> Sort | None:
        try:
            return arrivals.order_of(tables)
        except Exception as error:  # noqa: BLE001 (whatever it is, rows can be written)
            LOG.warning("%s: rows are written in the table's own order: %s", port.location, error)
            return None

    return order_of


class _Arrivals:
    """The queries of a table, asked about one run of rows after another."""

    def __init__(self, port: TablePort[Any], version: Version, stored_row_bytes: float) -> None:
        self._port, self._version = port, version
        self._stored_row_bytes = stored_row_bytes
        self._queries: Sequence[Any] | None = None
        self._new: dict[str, Sort] = {}

    def order_of(self, tables: Sequence[pa.Table]) -> Sort | None:
        version, row_count = self._version, sum(table.num_rows for table in tables)
        size = sum(table.nbytes for table in tables)
        count = len(cut_rows(row_count, most_rows(version.options, max(size / max(row_count, 1), 1))))
        if count < 2:  # noqa: PLR2004 (one block is read whole in any order)
            return None
        if self._queries is None:
            found = workload_for(Workload(), self._port, version)
            self._queries = found.queries[-WorkloadOptions().window :] if found else ()
        if not self._queries:
            return None
        sample = _Sample(tables, row_count)
        rates = rates_at_hand(self._port, version)
        read = size * rates.seconds_per_decoded_byte
        stored = row_count * self._stored_row_bytes
        written = stored * rates.written_factor * rates.seconds_per_written_byte
        rows = self._rows(sample, size / len(sample), stored / len(sample))
        compiled = Compiled(view=rows)
        asked = compiled.asked(self._queries, half_life=HALF_LIFE, most_characters=_MOST_CHARACTERS)
        values = compiled.values()

        def blocks(sort: Sort | None) -> Blocks:
            order = self._order(sample, sort)
            return blocks_in_order(values, order, min(count, len(sample)), rows=row_count, read_seconds=read)

        sorts = [sort for sort in self._candidates(compiled.names, asked) if sort != version.sort]
        chosen = best_order(
            blocks(version.sort),
            [blocks(sort) for sort in sorts],
            asked,
            sort_seconds=SORT_SHARE * (read + written),
            alpha=WorkloadOptions().alpha,
        )
        return None if chosen is None else sorts[chosen]

    def _rows(self, sample: _Sample, decoded: float, stored: float) -> Rows:
        schema, count = self._version.schema, len(sample)

        def bounds_of(name: str) -> tuple[pa.Array, pa.Array, Integers]:
            leaf = schema.leaf(name)
            values = leaf_values(sample.table([leaf.path[0]]), leaf.path).combine_chunks()
            return values, values, np.full(1, values.null_count)

        def condition_boxes(where: str, place: Place) -> tuple[Box, ...]:
            return boxes_of(resolved(where, schema), place)

        return Rows(
            bounds_of=bounds_of,
            condition_boxes=condition_boxes,
            column_count=len(schema.leaves),
            row_count=np.ones(count),
            decoded_bytes=np.full(count, decoded),
            size_bytes=np.full(count, stored),
        )

    def _candidates(self, names: Sequence[str], asked: Asked) -> list[Sort]:
        """Return the sorts worth a try: single columns, and curves that are live. A new curve would read rows."""
        found = []
        for key in asked.candidate_keys():
            columns = ", ".join(quote_name(names[column]) for column in key)
            try:
                sort = self._sort(columns if len(key) == 1 else f"hilbert({columns})")
            except InvalidKeyError:  # rows cannot be sorted by it
                continue
            is_new = sort.id not in self._version.sorts
            may_be = len(self._version.sorts) + len(self._new) <= MOST_SORTS or not is_new
            if may_be and not (sort.is_curve and is_bare(sort.parameters)):
                found.append(sort)
        return found

    def _sort(self, terms: str) -> Sort:
        """Return the sort by some terms. New ones get ids that follow each other."""
        sort = self._version.sort_by(terms, reads_rows=False)
        if sort.id in self._version.sorts or sort.is_curve:
            return sort
        if terms not in self._new:
            self._new[terms] = replace(sort, id=sort.id + len(self._new))
        return self._new[terms]

    def _order(self, sample: _Sample, sort: Sort | None) -> Ints:
        """Return the places of the sample's rows in the order of a sort; as they come for None."""
        if sort is None:
            return np.arange(len(sample))
        schema = self._version.schema
        rows = sample.table(sorted({leaf.path[0] for leaf in key_leaves(sort, schema)}))
        found: Ints = sort_indices(key_table(rows, sort, schema), sort).to_numpy().astype(np.int64)
        return found


class _Sample:
    """Rows at even steps through all, which stand for these."""

    def __init__(self, tables: Sequence[pa.Table], row_count: int) -> None:
        self._tables = tables
        count = min(row_count, MOST_ROWS)
        places = np.arange(count) * row_count // count
        ends = np.cumsum([table.num_rows for table in tables])
        parts = np.split(places, np.searchsorted(places, ends[:-1]))
        self._places = [part - start for part, start in zip(parts, [0, *ends[:-1]], strict=True)]
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._count = count

    def __len__(self) -> int:
        return self._count

    def table(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of the rows."""
        for name in names:
            if name not in self._columns:
                taken = [
                    table.select([name]).take(pa.array(places))
                    for table, places in zip(self._tables, self._places, strict=True)
                ]
                self._columns[name] = pa.concat_tables(taken).combine_chunks().column(0)
        return pa.table({name: self._columns[name] for name in names})
