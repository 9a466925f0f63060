"""Trees: keys of all types against a model that walks with plain values, bounds, growth, and wrong parameters."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from arrow_rows import arrays
from hypothesis import given
from hypothesis import strategies as st

from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.keys.linear import to_statistic
from tblctl.tableformat.keys.order import key_table
from tblctl.tableformat.keys.tree_growth import grow
from tblctl.tableformat.model import tree as trees
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import (
    can_widen,
    is_any_binary,
    is_any_string,
    read_type,
    statistic_type,
)
from tblctl.tableformat.model.tree import LEAF, MOST_LEAVES, Cut, Tree, columns_of, has_prefixes, tree_of
from tblctl.tableformat.predicate.cuts import cuts_of
from tblctl.tableformat.predicate.nodes import node_of
from tblctl.tableformat.predicate.sql.conditions import parse_where

from .test_curves import WIDENINGS, statistics_of
from .test_keys import ORDERABLE, model_values

TEXT = "qdtree(file:cuts.sql)"


def sort_of(cuts: list[Cut], nodes: tuple[int, ...], kinds: dict[int, pa.DataType]) -> Sort:
    """Return the sort of a tree over some cuts, without those that no node has."""
    used = list(dict.fromkeys(node for node in nodes if node != LEAF))
    kept = tuple(cuts[number] for number in used)
    numbers = tuple(node if node == LEAF else used.index(node) for node in nodes)
    tree = Tree(text=TEXT, columns=columns_of(kept, kinds), cuts=kept, nodes=numbers)
    terms = tuple(Term(column_id=column_id) for column_id, _ in tree.columns)
    return Sort(id=1, kind="qdtree", terms=terms, parameters=tree.to_parameters())


@st.composite
def nodes_of(draw: Any, cuts: int) -> tuple[int, ...]:
    """Return the nodes of a tree with one to six cuts in its nodes, of any shape."""
    nodes: list[int] = [LEAF]
    for _ in range(draw(st.integers(1, 6))):
        places = [place for place, node in enumerate(nodes) if node == LEAF]
        place = draw(st.sampled_from(places))
        nodes[place : place + 1] = [draw(st.integers(0, cuts - 1)), LEAF, LEAF]
    return tuple(nodes)


def cut_of(draw: Any, column_id: int, values: pa.Array) -> Cut:
    """Return a cut by values of a column."""
    kind = values.type
    present = values.filter(pa.array([value not in (None, (True, 0.0)) for value in model_values(values)]))
    if is_any_string(kind) or is_any_binary(kind):
        present = present.filter(pc.less_equal(pc.binary_length(present), trees.MOST_TEXT))
    operators = [trees.NULL]
    if len(present):
        operators += [trees.LESS, trees.LESS_EQUAL, trees.IN]
        operators += [trees.PREFIX] if has_prefixes(kind) and any(model_values(present)) else []
    operator = draw(st.sampled_from(operators))
    if operator == trees.NULL:
        return Cut(column_id=column_id, operator=operator, values=pa.array([], kind))
    picks = st.integers(0, len(present) - 1)
    if operator == trees.IN:
        listed = present.take(pa.array(draw(st.lists(picks, min_size=1, max_size=4))))
        return Cut(column_id=column_id, operator=operator, values=listed)
    if operator == trees.PREFIX:
        whole = draw(st.sampled_from([value for value in model_values(present) if value]))
        text = whole.decode("utf-8", "replace") if pa.types.is_string(kind) else ""
        prefix = (text[:1] or text).encode() if text else whole[:1]
        return Cut(column_id=column_id, operator=operator, values=pa.array([prefix], pa.binary()))
    return Cut(column_id=column_id, operator=operator, values=present.slice(draw(picks), 1))


@st.composite
def tree_rows(draw: Any) -> tuple[pa.Table, Sort, Schema]:
    """Rows of one to three columns of any orderable type, and a tree that cuts by values of these."""
    chosen = draw(st.lists(ORDERABLE, min_size=1, max_size=3))
    fields = [pa.field(f"c{place}", kind) for place, kind in enumerate(chosen)]
    schema = Schema.create(pa.schema(fields))
    count = draw(st.integers(1, 12))
    columns = {}
    for field in fields:
        values = draw(arrays(field, count))
        if pa.types.is_dictionary(values.type):
            values = values.dictionary.cast(read_type(values.dictionary.type)).take(values.indices)
        columns[field.name] = values.cast(read_type(values.type))
    rows = pa.table(columns)
    cuts = []
    for _ in range(draw(st.integers(1, 4))):
        leaf = draw(st.sampled_from(schema.leaves))
        cuts.append(cut_of(draw, leaf.id, to_statistic(rows.column(leaf.name)).combine_chunks()))
    kinds = {leaf.id: statistic_type(leaf.type) for leaf in schema.leaves}
    return rows, sort_of(cuts, draw(nodes_of(len(cuts))), kinds), schema


def is_true(cut: Cut, value: Any) -> bool:
    """Return whether the test of a cut is true for a model value."""
    if value is None or cut.operator == trees.NULL:
        return value is None and cut.operator == trees.NULL
    if value == (True, 0.0):
        return False  # NaN
    given = model_values(cut.values)
    if cut.operator == trees.PREFIX:
        return bool(value.startswith(given[0]))
    if cut.operator == trees.IN:
        return value in given
    return bool(value < given[0] or (cut.operator == trees.LESS_EQUAL and value == given[0]))


def leaf_of(tree: Tree, values: dict[int, Any]) -> int:
    """Return the leaf of a row, by the definition: from the root to the left if the test is true, else to the right."""

    def end(place: int) -> int:
        return place + 1 if tree.nodes[place] == LEAF else end(end(place + 1))

    place = 0
    while tree.nodes[place] != LEAF:
        cut = tree.cuts[tree.nodes[place]]
        place = place + 1 if is_true(cut, values[cut.column_id]) else end(place + 1)
    return tree.nodes[:place].count(LEAF)


@given(tree_rows())
def test_each_row_is_in_the_one_leaf_whose_tests_hold(case: tuple[pa.Table, Sort, Schema]) -> None:
    rows, sort, schema = case
    columns = {
        leaf.id: model_values(to_statistic(rows.column(leaf.name)).combine_chunks()) for leaf in schema.leaves
    }
    tree = tree_of(sort.parameters)
    expected = [
        leaf_of(tree, {column_id: values[row] for column_id, values in columns.items()})
        for row in range(rows.num_rows)
    ]
    keys = key_table(rows, sort, schema)
    assert keys.schema.field("0").type == pa.uint64()
    assert keys.column("0").to_pylist() == expected


def test_a_dictionary_of_bytes_of_one_length_is_cut_by_a_prefix() -> None:
    kind = pa.dictionary(pa.int8(), pa.binary(2))
    schema = Schema.create(pa.schema([("a", kind)]))
    cut = Cut(column_id=1, operator=trees.PREFIX, values=pa.array([b"a"]))
    rows = pa.table({"a": pa.array([b"ab", b"ba", None], pa.binary(2))})
    keys = key_table(rows, sort_of([cut], (0, LEAF, LEAF), {1: pa.binary(2)}), schema)
    assert keys.column("0").to_pylist() == [0, 1, 1]


@given(tree_rows(), st.data())
def test_bounds_from_statistics_contain_all_leaves(case: tuple[pa.Table, Sort, Schema], data: Any) -> None:
    rows, sort, schema = case
    cut = data.draw(st.integers(0, rows.num_rows))
    blocks = [part for part in (rows.slice(0, cut), rows.slice(cut)) if part.num_rows]
    found = key_maker(sort).bounds(statistics_of(blocks, schema, data.draw(st.booleans())), schema)
    for place, block in enumerate(blocks):
        keys = key_table(block, sort, schema).column("0").to_pylist()
        assert found.low[0][place].as_py() <= min(keys)
        assert found.high[0][place].as_py() >= max(keys)
        assert not found.exact[place] or len(set(keys)) == 1


@given(tree_rows())
def test_the_parameters_come_back_from_json_as_the_same_sort(case: tuple[pa.Table, Sort, Schema]) -> None:
    _, sort, _ = case
    assert Sort.from_json(json.loads(json.dumps(sort.to_json()))) == sort


def ages(nodes: tuple[int, ...] = (0, LEAF, 1, LEAF, LEAF)) -> Sort:
    """Return a tree that cuts a column a at 10 and at 20."""
    cuts = [Cut(column_id=1, operator=trees.LESS, values=pa.array([value])) for value in (10, 20)]
    return sort_of(cuts, nodes, {1: pa.int64()})


def test_bounds_are_those_of_the_leaves_that_a_range_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema.create(pa.schema([("a", pa.int64())]))
    blocks = [pa.table({"a": values}) for values in ([1, 9], [9, 10], [20, 30], [1, None], [None], [10])]
    for at_once in (1 << 16, 2):
        monkeypatch.setattr("tblctl.tableformat.keys.tree_keys._BLOCKS_AT_ONCE", at_once)
        found = key_maker(ages()).bounds(statistics_of(blocks, schema, counts_nan=True), schema)
        ends = list(zip(found.low[0].to_pylist(), found.high[0].to_pylist(), strict=True))
        assert ends == [(0, 0), (0, 1), (2, 2), (0, 2), (2, 2), (1, 1)]
        assert found.known.all()
        assert found.exact.tolist() == [True, False, True, False, True, True]


def test_a_block_without_statistics_of_a_column_has_unknown_bounds_of_leaves() -> None:
    schema = Schema.create(pa.schema([("a", pa.int64())]))
    nothing = SimpleNamespace(row_count=np.array([3, 4]), column=lambda _: None, is_exact=lambda _: None)
    found = key_maker(ages()).bounds(nothing, schema)
    assert (found.known.tolist(), len(found.low[0]), len(found.high[0])) == ([False, False], 2, 2)


@given(st.sampled_from(WIDENINGS), st.data())
def test_leaves_stay_when_a_column_gets_a_wider_type(
    kinds: tuple[pa.DataType, pa.DataType], data: Any
) -> None:
    narrow, wide = kinds
    assert can_widen(narrow, wide)
    values = data.draw(arrays(pa.field("a", narrow), 6)).cast(read_type(narrow))
    plain = to_statistic(pa.chunked_array([values])).combine_chunks()
    cuts = [cut_of(data.draw, 1, plain) for _ in range(3)]
    sort = sort_of(cuts, data.draw(nodes_of(3)), {1: statistic_type(narrow)})
    before, after = (Schema.create(pa.schema([("a", kind)])) for kind in (narrow, wide))
    maker = key_maker(sort)
    if maker.widening_problem(before.leaves[0], after.leaves[0]) is not None:
        return
    try:
        wider = pa.table({"a": values.cast(read_type(wide))})
    except pa.ArrowInvalid:
        return  # a date beyond the timestamps
    assert key_table(wider, sort, after) == key_table(pa.table({"a": values}), sort, before)


# -- growth -------------------------------------------------------------------------------------------------------


def grown(rows: pa.Table, conditions: list[str], min_rows: float) -> tuple[list[Cut], tuple[int, ...]]:
    schema = Schema.create(rows.schema)
    nodes = [node_of(parse_where(text, schema), schema) for text in conditions]
    cuts = cuts_of(nodes)
    weights = np.ones(len(rows))
    return cuts, grow(rows, weights, cuts, nodes, schema, min_rows=min_rows)


def leaf_sizes(rows: pa.Table, conditions: list[str], min_rows: float) -> list[int]:
    cuts, nodes = grown(rows, conditions, min_rows)
    schema = Schema.create(rows.schema)
    sort = sort_of(cuts, nodes, {leaf.id: statistic_type(leaf.type) for leaf in schema.leaves})
    keys = key_table(rows, sort, schema).column("0").to_numpy()
    return np.bincount(keys.astype(np.int64), minlength=nodes.count(LEAF)).tolist()


def test_the_first_cut_is_the_one_that_lets_conditions_skip_the_most_rows() -> None:
    rows = pa.table({"a": range(100), "b": [1] * 100})
    cuts, nodes = grown(rows, ["a < 40", "a < 10", "b = 1"], 1)
    # At 40 the first two skip 60 rows each, at 10 they skip none and 90.
    assert cuts[nodes[0]].to_json() == (1, "<", (40,))
    assert leaf_sizes(rows, ["a < 40", "a < 10", "b = 1"], 1) == [10, 30, 60]


def test_no_leaf_has_less_than_min_rows() -> None:
    rows = pa.table({"a": range(100)})
    conditions = [f"a < {value}" for value in range(1, 100)]
    for least in (1, 7, 30, 50):
        sizes = leaf_sizes(rows, conditions, least)
        assert min(sizes) >= least
        assert len(sizes) > 1
    assert grown(rows, conditions, 51)[1] == (LEAF,)


def test_a_tree_has_at_most_so_many_leaves() -> None:
    rows = pa.table({"a": range(600)})
    conditions = [" OR ".join(f"a = {value}" for value in range(start, 600, 100)) for start in range(100)]
    assert grown(rows, conditions, 1)[1].count(LEAF) <= MOST_LEAVES


def test_values_asked_for_get_leaves_of_their_own() -> None:
    rows = pa.table({"c": [f"c{number % 10}" for number in range(100)]})
    sizes = leaf_sizes(rows, ["c = 'c3'", "c IN ('c7', 'c8')"], 1)
    assert sorted(sizes) == [10, 20, 30, 40]  # c3; c7 and c8; what lies below c3; all else


def test_null_and_prefixes_are_cut_off() -> None:
    texts = ["ab1", "ab2", "x", "y", None] * 4
    sizes = leaf_sizes(pa.table({"c": texts}), ["c LIKE 'ab%'", "c IS NULL"], 1)
    assert sorted(sizes) == [4, 8, 8]


def test_a_condition_that_no_cut_helps_gives_no_tree() -> None:
    assert grown(pa.table({"a": [1, 1, 1]}), ["a = 1"], 1)[1] == (LEAF,)


# -- parameters that are wrong --------------------------------------------------------------------------------------


def changed(**changes: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((dict(ages().parameters) | changes).items())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"more": 1}, "expected columns, cuts, nodes, text"),
        ({"text": 5}, "key's text"),
        ({"text": "x" * 5000}, "key's text"),
        ({"nodes": (0, LEAF, 1, LEAF)}, "no end"),
        ({"nodes": (0, LEAF, 1, LEAF, LEAF, LEAF)}, "nodes of one tree"),
        ({"nodes": ()}, "nodes of a tree"),
        ({"nodes": (LEAF,)}, "nodes of a tree"),
        ({"nodes": (0, LEAF, 2, LEAF, LEAF)}, "nodes of a tree"),
        ({"nodes": (0, LEAF, LEAF)}, "each of its 2 cuts"),
        ({"nodes": (0, LEAF, 0.5, LEAF, LEAF)}, "numbers of cuts"),
        ({"nodes": (0, 1) * 300 + (LEAF,) * 601}, "601 leaves"),
        ({"nodes": "abc"}, "arrays"),
        ({"columns": ()}, "a column of the tree"),
        ({"columns": ((1, "int64"), (2, "int64"))}, "columns of a tree"),
        ({"columns": ((1, "list<int64>"),)}, "not a type of bounds"),
        ({"columns": ((1, "dictionary<int32, string>"),)}, "not a type of bounds"),
        ({"columns": (("1", "int64"),)}, "id of a column"),
        ({"columns": ((1, "nonsense"),)}, "nonsense"),
        ({"cuts": ((1, "<", (10,)), (1, "~", (20,)))}, "of the kind"),
        ({"cuts": ((1, "<", (10,)), (1, "<", ()))}, "0 values"),
        ({"cuts": ((1, "<", (10,)), (1, "<", (1, 2)))}, "2 values"),
        ({"cuts": ((1, "<", (10,)), (1, "null", (1,)))}, "1 values"),
        ({"cuts": ((1, "<", (10,)), (1, "<", (None,)))}, "no null"),
        ({"cuts": ((1, "<", (10,)), (1, "<", ("x",)))}, "JSON form of int64"),
        ({"cuts": ((1, "<", (10,)), (1, "in", tuple(range(40))))}, "at most 32"),
        ({"cuts": ((1, "<", (10,)), (1, "prefix", ("ab",)))}, "no prefixes"),
        ({"cuts": ((1, "<", (10,)), (9, "<", (20,)))}, "a column of the tree"),
        ({"cuts": ((1, "<", (10,)), 5)}, "a column of the tree"),
        ({"by": ()}, "terms in the order"),
        ({"by": "ab"}, "arrays"),
        ({"by": (5,)}, "terms in the order"),
        ({"by": ((1, "identity"),)}, "column_id, transform, descending, nulls_first"),
        ({"by": ((1, "identity", 0, False),)}, "by.descending: expected bool"),
        ({"by": ((1, "cube", False, False),)}, "not a transform"),
    ],
)
def test_parameters_of_no_tree_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Sort(id=1, kind="qdtree", terms=(Term(column_id=1),), parameters=changed(**changes))


def test_a_tree_of_other_columns_than_its_terms_is_refused() -> None:
    with pytest.raises(ValueError, match="other columns"):
        Sort(id=1, kind="qdtree", terms=(Term(column_id=2),), parameters=ages().parameters)
    with pytest.raises(ValueError, match="as they are"):
        Sort(id=1, kind="qdtree", terms=(Term(column_id=1, descending=True),), parameters=ages().parameters)


def test_a_deep_tree_is_walked() -> None:
    nodes = (0, 1) * 127 + (0,) + (LEAF,) * 256
    schema = Schema.create(pa.schema([("a", pa.int64())]))
    keys = key_table(pa.table({"a": [5, 15, 25]}), ages(nodes), schema)
    assert keys.column("0").to_pylist() == [0, 255, 255]
