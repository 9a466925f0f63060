"""Leaves of trees prune: against brute force, and in scans, splits, deletes and updates of tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

import tblctl
from tblctl.tableformat.keys import tree_keys
from tblctl.tableformat.keys.linear import to_statistic
from tblctl.tableformat.keys.order import key_table
from tblctl.tableformat.keys.tree_leaves import TreeLeaves
from tblctl.tableformat.model import tree as trees
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.statistics import ALL, NONE, SOME, Described
from tblctl.tableformat.model.tree import LEAF, Cut, tree_of
from tblctl.tableformat.native.read.input_splits import cut_into_splits
from tblctl.tableformat.native.read.metadata import BlockMetadata, block_metadata
from tblctl.tableformat.native.read.scan import select_blocks
from tblctl.tableformat.predicate import nodes
from tblctl.tableformat.predicate.match import match
from tblctl.tableformat.predicate.nodes import (
    AllOf,
    AnyOf,
    Constant,
    Negation,
    Node,
    Operator,
    Truth,
    node_of,
)
from tblctl.tableformat.predicate.outcomes import ANY, TRUE
from tblctl.tableformat.predicate.rows import filter_table
from tblctl.tableformat.predicate.sql.conditions import parse_where

from .test_curves import statistics_of
from .test_trees import cut_of, sort_of, tree_rows

COMPARISONS = (Operator.LESS, Operator.LESS_EQUAL, Operator.GREATER, Operator.GREATER_EQUAL, Operator.EQUAL)


@st.composite
def comparisons(draw: Any, leaf: Leaf, values: pa.Array) -> Node:
    """Return a test that compares a column with values of its own."""
    test = tree_keys.test_of_cut(cut_of(draw, leaf.id, values), leaf)
    if test.operator in COMPARISONS:
        test = replace(test, operator=draw(st.sampled_from(COMPARISONS)))
    if pa.types.is_string(values.type) and test.operator is Operator.PREFIX and draw(st.booleans()):
        assert test.value is not None
        test = replace(test, operator=Operator.PATTERN, pattern=f"^{_escaped(test.value.as_py())}.*a")
    if pa.types.is_floating(values.type) and draw(st.integers(0, 4)) == 0:
        test = nodes.Test(leaf=leaf, operator=Operator.NAN, text="")
    return replace(test, negated=draw(st.booleans()))


def _escaped(prefix: bytes) -> str:
    return "".join(f"\\x{{{ord(char):x}}}" for char in prefix.decode())


@st.composite
def conditions(draw: Any, rows: pa.Table, schema: Schema) -> Node:
    """Return a tree of AND, OR, NOT and IS over tests of the columns of some rows."""
    columns = [(leaf, to_statistic(rows.column(leaf.name)).combine_chunks()) for leaf in schema.leaves]

    def extended(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(
            several.map(lambda parts: AllOf(children=parts)),
            several.map(lambda parts: AnyOf(children=parts)),
            inner.map(lambda part: Negation(child=part)),
            st.tuples(inner, st.sampled_from([True, False, None])).map(
                lambda pair: Truth(child=pair[0], value=pair[1])
            ),
        )

    simple = st.one_of(*(comparisons(leaf, values) for leaf, values in columns))
    some = st.one_of(simple, simple, simple, st.sampled_from([Constant(value=None), Constant(value=True)]))
    return draw(st.recursive(some, extended, max_leaves=5))


class Blocks:
    """Statistics of blocks in the order of a tree, with what their leaves tell."""

    def __init__(self, blocks: Sequence[pa.Table], sort: Sort, schema: Schema, *, has_bounds: bool) -> None:
        self._sort, self._schema = sort, schema
        self._statistics: Any = statistics_of(blocks, schema, counts_nan=True)
        self._has_bounds = has_bounds
        self.row_count = self._statistics.row_count
        keys = [key_table(block, sort, schema).column("0").to_numpy().astype(np.int64) for block in blocks]
        self.first, self.last = (np.array([end(each) for each in keys]) for end in (min, max))

    def column(self, leaf: Leaf) -> Any:
        return self._statistics.column(leaf) if self._has_bounds else None

    def described(self, condition: Node) -> Callable[[Node], np.ndarray]:
        leaves = TreeLeaves(self._sort, condition, self._schema)
        assert leaves.known
        return lambda part: leaves.outcomes(part, self.first, self.last)


@settings(max_examples=cases(100))
@given(tree_rows(), st.data())
def test_pruning_by_leaves_never_loses_a_row(case: tuple[pa.Table, Sort, Schema], data: Any) -> None:
    rows, sort, schema = case
    condition = data.draw(conditions(rows, schema))
    keys = key_table(rows, sort, schema).column("0").combine_chunks()
    rows = rows.take(pc.sort_indices(keys))
    cut = data.draw(st.integers(0, rows.num_rows))
    parts = [part for part in (rows.slice(0, cut), rows.slice(cut)) if part.num_rows]
    blocks = Blocks(parts, sort, schema, has_bounds=data.draw(st.booleans()))
    assert isinstance(blocks, Described)
    outcome = match(condition, blocks, schema).outcome
    plain = pa.table({leaf.name: to_statistic(rows.column(leaf.name)) for leaf in schema.leaves})
    start = 0
    for place, part in enumerate(parts):
        found = filter_table(plain.slice(start, len(part)), condition, schema).to_pylist()
        assert outcome[place] != NONE or True not in found
        assert outcome[place] != ALL or set(found) == {True}
        start += len(part)


# -- tables ---------------------------------------------------------------------------------------------------------

COUNTRIES = ["AT", "CH", "DE", "FR", "IT", None]
SCHEMA = pa.schema([("country", pa.string()), ("x", pa.int64()), ("note", pa.string())])
CONDITIONS = "country = 'DE'\ncountry = 'DE' AND x < 5\nx < 5\ncountry IN ('AT', 'IT')\n"


def make_rows(start: int, count: int = 120) -> pa.Table:
    rng = np.random.default_rng(start)
    return pa.table(
        {
            "country": [COUNTRIES[place] for place in rng.integers(0, len(COUNTRIES), count)],
            "x": rng.integers(0, 10, count),
            "note": [f"n{place}" for place in range(count)],
        },
        schema=SCHEMA,
    )


def make_table(url: str, tmp_path: Path, nodes: str | None = None) -> tblctl.Table:
    """Return a table of blocks of 20 rows that are in the order of a tree."""
    (tmp_path / "cuts.sql").write_text(nodes or CONDITIONS)
    table = tblctl.create(
        url,
        SCHEMA,
        cluster_by=f"qdtree(file:{tmp_path}/cuts.sql, min_rows=20)",
        sample=make_rows(1000, 600),
        options={"block_rows": 20, "row_group_rows": 10},
    )
    for start in range(4):
        table.append(make_rows(start))
    table.recluster(policy="full")
    return table


def read_block(table: tblctl.Table, path: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(table._native.storage.read(path)))


def counted(table: tblctl.Table, where: str) -> tuple[int, int]:
    """Return how many blocks a scan reads, and how many it would by statistics alone; its rows are the right ones."""
    scan = table.scan(where=where)
    found = scan.to_arrow().sort_by("note").to_pylist()
    explained = scan.explain()
    assert explained.blocks_pruned + explained.blocks_read == explained.blocks_total
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tblctl.tableformat.keys.tree_leaves.leaves_for", lambda *_: [])
        plain = table.scan(where=where)
        assert sorted(map(repr, plain.to_arrow().to_pylist())) == sorted(map(repr, found))
        return explained.blocks_read, plain.explain().blocks_read


def in_one_list(url: str, tmp_path: Path) -> tblctl.Table:
    """Return a table whose first leaf holds the rows of AT and IT, and nothing else."""
    table = make_table(url, tmp_path, "country IN ('AT', 'IT')")
    assert tree_of(table._native.head().sort.parameters).leaf_count == 2
    return table


def test_a_block_is_skipped_by_not_equal_that_its_bounds_do_not_rule_out(
    memory_url: str, tmp_path: Path
) -> None:
    table = in_one_list(memory_url, tmp_path)
    first = min(table.files(), key=lambda block: block.max)
    rows = read_block(table, first.path)
    assert pc.min_max(rows["country"]).as_py() == {"min": "AT", "max": "IT"}, "CH, DE and FR lie between"
    read, by_bounds = counted(table, "country <> 'IT' AND country <> 'AT'")
    assert read < by_bounds
    for where in (
        "country NOT IN ('AT', 'IT', 'XX')",
        "NOT (country = 'AT' OR country = 'IT')",
        "country = 'DE'",
        "country IS NULL OR country LIKE 'D%'",
        "(country = 'CH' OR x > 100) AND note <> 'n5'",
    ):
        read, by_bounds = counted(table, where)
        assert read < by_bounds


def test_a_block_of_two_leaves_is_skipped_if_each_of_them_is(memory_url: str, tmp_path: Path) -> None:
    sort = two_columns()
    schema = Schema.create(pa.schema([("a", pa.string()), ("x", pa.int64())]))
    leaves = np.array([0]), np.array([1])
    condition = node_of(parse_where("a <> 'DE' AND x >= 5", schema), schema)
    [outcome] = TreeLeaves(sort, condition, schema).outcomes(condition, *leaves)
    assert not outcome & TRUE
    bounds = statistics_of([pa.table({"a": ["DE", "AT"], "x": [9, 1]})], schema, counts_nan=True)
    assert match(condition, bounds, schema).outcome.tolist() == [SOME]


def two_columns() -> Sort:
    """Return a tree: rows of DE; else those with x below 5; else the others."""
    cuts = [
        Cut(column_id=1, operator=trees.IN, values=pa.array(["DE"])),
        Cut(column_id=2, operator=trees.LESS, values=pa.array([5])),
    ]
    return sort_of(cuts, (0, LEAF, 1, LEAF, LEAF), {1: pa.string(), 2: pa.int64()})


def test_blocks_in_no_order_or_without_exact_leaves_are_judged_by_bounds(
    memory_url: str, tmp_path: Path
) -> None:
    table = in_one_list(memory_url, tmp_path)
    snapshot = table._native.head()
    where = node_of(parse_where("country NOT IN ('AT', 'IT')", snapshot.schema), snapshot.schema)

    def sure(change: Callable[[BlockMetadata], None]) -> int:
        metadata = block_metadata(table._native.storage, snapshot)
        metadata.fetch_for(where, snapshot.schema.leaves)
        change(metadata)
        outcomes = metadata.described(where)
        return 0 if outcomes is None else int((outcomes(where) != ANY).sum())

    def put(name: str, value: object) -> Callable[[BlockMetadata], None]:
        def change(metadata: BlockMetadata) -> None:
            kind = metadata.values(name).type
            metadata._columns[name] = pa.chunked_array([pa.array([value] * len(metadata), kind)])

        return change

    sort_id = snapshot.sort.id
    assert sure(lambda _: None) >= snapshot.block_count - 1  # one block may have rows of both leaves
    assert sure(put("cluster_key_id", None)) == sure(put("cluster_key_id", 99)) == 0
    assert sure(put(f"key_{sort_id}_exact", False)) == sure(put(f"key_{sort_id}_exact", None)) == 0
    assert sure(put(f"key_{sort_id}_max_0", 7)) == sure(put(f"key_{sort_id}_min_0", None)) == 0


def test_splits_and_deletes_use_leaves_too(memory_url: str, tmp_path: Path) -> None:
    table = in_one_list(memory_url, tmp_path)
    snapshot, storage = table._native.head(), table._native.storage
    where = node_of(parse_where("country IN ('IT', 'AT')", snapshot.schema), snapshot.schema)
    selection = select_blocks(storage, snapshot, where)
    blocks = [
        block for split in cut_into_splits(selection, least=1, most_bytes=1 << 30) for block in split.blocks
    ]
    wanted = table.scan(where="country IN ('IT', 'AT')").to_arrow().num_rows
    assert [filtered for _, filtered in blocks].count(False) == wanted // 20
    outcome = table.delete("country IN ('IT', 'AT')")
    assert outcome.blocks_removed == len(blocks)
    assert table.scan(where="country IN ('IT', 'AT')").to_arrow().num_rows == 0
    assert table.scan().to_arrow().num_rows == 480 - wanted


def test_rows_that_change_leave_the_description_right(memory_url: str, tmp_path: Path) -> None:
    table = in_one_list(memory_url, tmp_path)
    table.update({"country": "DE"}, where="country = 'AT' AND x < 5")
    table.update({"note": "same leaf"}, where="x = 3")
    table.delete("x = 7")
    table.overwrite(make_rows(9), where="country = 'FR'")
    table.append(make_rows(10))
    for where in (
        "country = 'DE'",
        "country <> 'IT' AND country <> 'AT'",
        "country IN ('AT', 'IT')",
        "x = 3",
    ):
        read, by_bounds = counted(table, where)
        assert read <= by_bounds
    assert table.check(deep=True).problems == ()
    assert counted(table, "country = 'DE'")[0] < counted(table, "country = 'DE'")[1]


def test_equalities_of_one_column_joined_by_or_lose_no_row(memory_url: str, tmp_path: Path) -> None:
    """They are tested as one list, which is none of the tests that places were made for."""
    numbers = np.arange(1_600)
    rows = pa.table({"x": numbers % 120, "y": (numbers * 7) % 40})
    cuts = tmp_path / "cuts.sql"
    cuts.write_text("x < 30; x < 60; x < 90; y < 20")
    table = tblctl.create(memory_url, rows.schema, options={"block_rows": 100})
    table.append(rows)
    table.set_cluster_key(f"qdtree(file:{cuts}, min_rows=50)")
    table.recluster(final=True, policy="full")
    for low in range(0, 120, 2):
        found = table.count(f"(x = {low} OR x = {(low + 61) % 120}) AND y >= 0")
        assert found == int(np.isin(numbers % 120, [low, (low + 61) % 120]).sum())
    kept = np.isin(numbers % 120, [0, 10]).sum()
    table.delete("NOT ((x = 0 OR x = 10) AND y >= 0)")
    assert table.count() == kept
