"""match and rows against a model that evaluates one row at a time with plain Python values."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from predicate_model import (
    COMPARE,
    KINDS,
    NAN,
    ORDERED,
    SCHEMA,
    Check,
    Tree,
    every_block,
    every_check,
    is_nan,
    kleene_and,
    negate,
)
from profiles import cases
from pyiceberg import expressions as ice
from pyiceberg.expressions.literals import DateLiteral

from tblctl.tableformat.errors import InvalidPredicateError
from tblctl.tableformat.model.schema.types import read_type, statistic_type
from tblctl.tableformat.model.statistics import ALL, NONE, SOME, ColumnStatistics
from tblctl.tableformat.predicate.expressions import Resolved
from tblctl.tableformat.predicate.match import match
from tblctl.tableformat.predicate.nodes import Truth
from tblctl.tableformat.predicate.resolve import resolve
from tblctl.tableformat.predicate.rows import filter_table, needed_columns
from tblctl.tableformat.predicate.sql.conditions import UNKNOWN, parse_where


@st.composite
def checks(draw, names=tuple(KINDS)):
    name = draw(st.sampled_from(names))
    kind = KINDS[name]
    shape = draw(st.sampled_from(("compare", "compare", "compare", "in", "null", "nan", "prefix", "pattern")))
    if shape == "pattern" and isinstance((*kind.prefixes, None)[0], str):
        return like(name, draw(st.lists(st.sampled_from(PIECES), max_size=4)), negated=draw(st.booleans()))
    if shape == "prefix" and kind.prefixes:
        prefix = draw(st.sampled_from(kind.prefixes))
        if draw(st.booleans()):
            return Check(ice.StartsWith(name, prefix), name, lambda value: value.startswith(prefix))
        return Check(ice.NotStartsWith(name, prefix), name, lambda value: not value.startswith(prefix))
    if shape == "null":
        if draw(st.booleans()):
            return Check(ice.IsNull(name), name, lambda _: False, of_null=True)
        return Check(ice.NotNull(name), name, lambda _: True, of_null=False)
    if shape == "nan":
        if draw(st.booleans()):
            return Check(ice.IsNaN(name), name, is_nan)
        return Check(ice.NotNaN(name), name, lambda value: not is_nan(value))
    if shape == "in":
        chosen = draw(st.lists(st.sampled_from(kind.literals), min_size=1, max_size=6))
        if isinstance(
            chosen[0][0], DateLiteral
        ):  # PyIceberg takes DateLiteral(1) and TimestampLiteral(1) for the same
            chosen = [pair for pair in chosen if isinstance(pair[0], DateLiteral)]
        else:
            chosen = [pair for pair in chosen if not isinstance(pair[0], DateLiteral)]
        listed = [model for _, model in chosen]
        literals = [literal for literal, _ in chosen]
        if draw(st.booleans()):
            return Check(ice.In(name, literals), name, lambda value: any(value == each for each in listed))
        return Check(ice.NotIn(name, literals), name, lambda value: not any(value == each for each in listed))
    operator = draw(st.sampled_from(tuple(COMPARE)))
    literal, model = draw(st.sampled_from(kind.literals))
    return Check(operator(name, literal), name, lambda value: COMPARE[operator](value, model))


PIECES = ("a", "b", "z", "é", "\0", "\U0010ffff", "_", "%", "!%", "!_", "!!", "%a")


def like(name, pieces, *, negated=False):
    """Return a LIKE whose wildcards are spelt out, and what a regular expression says of it."""
    wanted = re.compile(
        "".join(
            {"_": ".", "%": ".*", "%a": ".*a"}.get(piece, re.escape(piece.removeprefix("!")))
            for piece in pieces
        ),
        re.DOTALL,
    )
    no = "NOT " if negated else ""
    expression = parse_where(f"{name} {no}LIKE '{''.join(pieces)}' ESCAPE '!'", SCHEMA)
    return Check(expression, name, lambda value: (wanted.fullmatch(value) is not None) != negated)


CONSTANTS = (
    Tree(ice.AlwaysTrue(), lambda _: True),
    Tree(ice.AlwaysFalse(), lambda _: False),
    Tree(UNKNOWN, lambda _: None),
)


def truth(child, wanted):
    expression = Resolved(Truth(child=resolve(child.expression, SCHEMA), value=wanted))
    return Tree(expression, lambda row: child.evaluate(row) is wanted)


def both(left, right):
    return Tree(
        ice.And(left.expression, right.expression),
        lambda row: kleene_and([left.evaluate(row), right.evaluate(row)]),
    )


def either(left, right):
    return Tree(
        ice.Or(left.expression, right.expression),
        lambda row: negate(kleene_and([negate(left.evaluate(row)), negate(right.evaluate(row))])),
    )


def opposite(child):
    return Tree(ice.Not(child.expression), lambda row: negate(child.evaluate(row)))


trees = st.recursive(
    checks() | st.sampled_from(CONSTANTS),
    lambda child: (
        st.builds(both, child, child)
        | st.builds(either, child, child)
        | st.builds(opposite, child)
        | st.builds(truth, child, st.sampled_from((True, False, None)))
    ),
    max_leaves=8,
)


@st.composite
def tables(draw, names=tuple(KINDS), max_rows=12):
    count = draw(st.integers(0, max_rows))
    pools = {name: (*KINDS[name].values, (None, None)) for name in names}
    return {name: [draw(st.sampled_from(pool)) for _ in range(count)] for name, pool in pools.items()}


def arrow(rows):
    columns = {
        name: KINDS[name].build([raw for raw, _ in pairs], read_type(KINDS[name].type))
        for name, pairs in rows.items()
    }
    return pa.table(columns)


def models(rows):
    count = len(next(iter(rows.values())))
    return [{name: pairs[i][1] for name, pairs in rows.items()} for i in range(count)]


class Blocks:
    """Exact statistics of consecutive rows, by the model's order; `blur` makes some wider or unknown."""

    def __init__(self, rows, cuts, blur=None):
        self._rows, self._blur = rows, blur
        edges = [0, *cuts, len(next(iter(rows.values())))]
        self._slices = [slice(a, b) for a, b in pairwise(edges)]
        self.row_count = np.array([part.stop - part.start for part in self._slices], np.int64)

    def column(self, leaf):
        kind, pairs = KINDS[leaf.name], self._rows[leaf.name]
        lows, highs, nulls, nans = [], [], [], []
        for part in self._slices:
            block = pairs[part]
            numbers = sorted(
                (pair for pair in block if pair[1] is not None and pair[1] == pair[1]), key=lambda p: p[1]
            )
            nulls.append(sum(raw is None for raw, _ in block))
            nans.append(len(block) - nulls[-1] - len(numbers))
            lows.append(numbers[0][0] if numbers else None)
            highs.append(numbers[-1][0] if numbers else None)
            if self._blur is not None:
                self._widen(kind, lows, highs, nulls, nans)
        bounds = statistic_type(leaf.type)
        return ColumnStatistics(
            min=kind.build(lows, bounds),
            max=kind.build(highs, bounds),
            null_count=np.array(nulls, np.int64),
            nan_count=np.array(nans, np.int64) if pa.types.is_floating(bounds) else None,
        )

    def _widen(self, kind, lows, highs, nulls, nans):
        order = sorted((pair for pair in kind.values if pair[1] == pair[1]), key=lambda pair: pair[1])
        model = dict(kind.values)
        if lows[-1] is not None:
            below = [raw for raw, value in order if value <= model[lows[-1]]]
            above = [raw for raw, value in order if value >= model[highs[-1]]]
            nan = [NAN] if pa.types.is_floating(kind.type) else []
            lows[-1] = self._blur.choice([lows[-1], None, *nan, below[0], below[-1]])
            highs[-1] = self._blur.choice([highs[-1], None, *nan, above[0], above[-1]])
        nulls[-1] = self._blur.choice([nulls[-1], -1])
        nans[-1] = self._blur.choice([nans[-1], -1])


NO_ROWS = pa.table({})
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
RELAXED = settings(max_examples=cases(30), deadline=None, suppress_health_check=SLOW)


@RELAXED
@given(rows=tables(), tree=trees)
def test_rows_follow_three_valued_logic(rows, tree):
    table, expected = arrow(rows), [tree.evaluate(row) for row in models(rows)]
    mask = filter_table(table, tree.expression, SCHEMA)
    assert mask.type == pa.bool_()
    assert mask.to_pylist() == expected
    needed = needed_columns(tree.expression, SCHEMA)
    assert filter_table(table.select(needed), tree.expression, SCHEMA).to_pylist() == expected or not needed


def test_constants_combine_with_columns_in_any_order():
    table = pa.table({"nothing": pa.nulls(2), "i8": pa.array([1, None], pa.int8())})
    never, known = ice.EqualTo("nothing", 1), ice.EqualTo("i8", 1)
    for expression in (ice.Or(never, known), ice.Or(known, never)):
        assert filter_table(table, expression, SCHEMA).to_pylist() == [True, None]
    for expression, rows in ((ice.AlwaysTrue(), 2), (ice.AlwaysFalse(), 0), (never, 0), (ice.Not(never), 0)):
        assert filter_table(table, expression, SCHEMA).to_pylist().count(True) == rows


@RELAXED
@given(rows=tables(max_rows=16), tree=trees, data=st.data())
def test_match_never_prunes_a_true_row_and_never_takes_another_for_true(rows, tree, data):
    count = len(rows["i8"])
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=5)))
    expected = [tree.evaluate(row) for row in models(rows)]
    for blur in (None, data.draw(st.randoms(use_true_random=False))):
        blocks = Blocks(rows, cuts, blur)
        result = match(tree.expression, blocks, SCHEMA)
        assert result.outcome.dtype == np.int8
        for outcome, part in zip(result.outcome, blocks._slices, strict=True):
            if outcome == NONE:
                assert True not in expected[part]
            if outcome == ALL:
                assert expected[part].count(True) == part.stop - part.start > 0
        assert all(len(term.outcome) == len(result.outcome) for term in result.terms)


@RELAXED
@given(rows=tables(max_rows=6), check=checks(), repeat=st.integers(1, 3))
def test_one_predicate_on_blocks_of_one_value_is_exact(rows, check, repeat):
    rows = {name: [pair for pair in pairs for _ in range(repeat)] for name, pairs in rows.items()}
    cuts = list(range(repeat, len(rows["i8"]), repeat))
    blocks = Blocks(rows, cuts)
    expected = [check.evaluate(row) for row in models(rows)]
    outcome = match(check.expression, blocks, SCHEMA).outcome
    for i, part in enumerate(blocks._slices):
        assert outcome[i] == (ALL if expected[part] and expected[part][0] else NONE)


@RELAXED
@given(rows=tables(max_rows=12), check=checks(), data=st.data())
def test_comparisons_and_null_tests_are_exact_with_exact_bounds(rows, check, data):
    if not isinstance(check.expression, (*ORDERED, ice.IsNull, ice.NotNull, ice.IsNaN, ice.NotNaN)):
        return
    blocks = Blocks(rows, sorted(data.draw(st.lists(st.integers(0, len(rows["i8"])), max_size=4))))
    expected = [check.evaluate(row) for row in models(rows)]
    outcome = match(check.expression, blocks, SCHEMA).outcome
    for i, part in enumerate(blocks._slices):
        found = set(expected[part])
        assert outcome[i] == (ALL if found == {True} else SOME if True in found else NONE)


@pytest.mark.parametrize("name", KINDS)
def test_every_predicate_on_every_value(name):
    kind = KINDS[name]
    pairs = (*kind.values, (None, None))
    table = pa.table({name: kind.build([raw for raw, _ in pairs], read_type(kind.type))})
    for check in every_check(name):
        expected = [check.evaluate({name: model}) for _, model in pairs]
        assert filter_table(table, check.expression, SCHEMA).to_pylist() == expected, check.expression
        inverse = [negate(value) for value in expected]
        assert filter_table(table, ice.Not(check.expression), SCHEMA).to_pylist() == inverse, check.expression


@pytest.mark.parametrize("name", [name for name in KINDS if name != "nothing"])
def test_every_predicate_on_every_kind_of_block(name):
    kind, blocks = KINDS[name], list(every_block(KINDS[name]))
    bounds = statistic_type(kind.type)
    column = ColumnStatistics(
        min=kind.build([block.min for block in blocks], bounds),
        max=kind.build([block.max for block in blocks], bounds),
        null_count=np.array([block.nulls for block in blocks]),
        nan_count=np.array([block.nans for block in blocks]) if pa.types.is_floating(bounds) else None,
    )
    statistics = Given([len(block.rows) for block in blocks], **{name: column})
    for check in every_check(name):
        results = match(check.expression, statistics, SCHEMA).outcome
        ordered = isinstance(check.expression, (*ORDERED, ice.IsNull, ice.NotNull, ice.IsNaN, ice.NotNaN))
        answers = {model: check.evaluate({name: model}) for _, model in (*kind.values, (None, None))}
        answers[NAN] = check.evaluate({name: NAN}) if pa.types.is_floating(kind.type) else None
        for block, outcome in zip(blocks, results, strict=True):
            found = {answers[model] for model in block.rows}
            truth = ALL if found == {True} else SOME if True in found else NONE
            assert outcome in (truth, SOME), (check.expression, block)
            values = {model for model in block.rows if model is not None and not is_nan(model)}
            if block.exact and (ordered or len(values) < 2):
                assert outcome == truth, (check.expression, block)


class Given:
    def __init__(self, rows, **columns):
        self.row_count, self._columns = np.asarray(rows), columns

    def column(self, leaf):
        return self._columns.get(leaf.name)


def ranges(low, high, *, nulls=0, kind=None, rows=10):
    low, high = pa.array(low, kind), pa.array(high, kind)
    null_count = np.broadcast_to(np.int64(nulls), len(low)).copy()
    return Given(np.full(len(low), rows), i64=ColumnStatistics(min=low, max=high, null_count=null_count))


def test_a_column_without_statistics_matches_some():
    unknown = Given([3, 0])
    assert match(ice.EqualTo("i64", 1), unknown, SCHEMA).outcome.tolist() == [SOME, NONE]
    assert match(ice.IsNull("many"), unknown, SCHEMA).outcome.tolist() == [SOME, NONE]


def text_blocks(low, high, *, nulls=0):
    zeros = np.full(len(low), nulls, np.int64)
    return Given(
        [10] * len(low), text=ColumnStatistics(min=pa.array(low), max=pa.array(high), null_count=zeros)
    )


def test_a_pattern_prunes_by_what_it_begins_with_and_decides_blocks_of_one_value():
    blocks = text_blocks(["a", "ab", "abc", "abx", "abxc"], ["aa", "az", "abd", "abx", "abxc"])
    found = match(parse_where("text LIKE 'ab_c%'", SCHEMA), blocks, SCHEMA).outcome.tolist()
    assert found == [NONE, SOME, SOME, NONE, ALL]
    found = match(parse_where("text NOT LIKE 'ab_c%'", SCHEMA), blocks, SCHEMA).outcome.tolist()
    assert found == [ALL, SOME, SOME, ALL, NONE]
    assert match(parse_where("text LIKE '%c'", SCHEMA), blocks, SCHEMA).outcome.tolist()[:3] == [SOME] * 3


def test_truth_tests_prune_by_what_is_null():
    some, none = text_blocks(["a"], ["b"], nulls=3), text_blocks(["a"], ["b"])
    for text, expected in {
        "(text = 'x') IS UNKNOWN": (SOME, NONE),
        "(text = 'x') IS NOT UNKNOWN": (SOME, ALL),
        "(text = 'x') IS NOT TRUE": (ALL, ALL),
        "(text = 'x') IS FALSE": (SOME, ALL),
        "(text < 'x') IS TRUE": (SOME, ALL),
        "NULL IS NULL": (ALL, ALL),
        "NULL": (NONE, NONE),
        "text NOT BETWEEN 'c' AND NULL": (SOME, ALL),
    }.items():
        condition = parse_where(text, SCHEMA)
        assert tuple(match(condition, blocks, SCHEMA).outcome[0] for blocks in (some, none)) == expected, text


def test_statistics_are_asked_for_a_column_once_however_often_it_is_tested():
    asked = []
    blocks = ranges([0], [9])
    blocks.column = lambda leaf: asked.append(leaf.name) or blocks._columns[leaf.name]
    match(parse_where(" OR ".join(f"i64 = {i}" for i in range(50)), SCHEMA), blocks, SCHEMA)
    assert asked == ["i64"]


@pytest.mark.parametrize("name", ["i8", "i64", "u64", "text", "large", "dict", "dict_i", "in.side"])
@RELAXED
@given(data=st.data())
def test_equalities_joined_by_or_prune_as_a_list_does(name, data):
    kind = KINDS[name]
    chosen = data.draw(st.lists(st.sampled_from(kind.literals[:5]), min_size=2, max_size=5))
    rows = data.draw(tables(names=(name,), max_rows=8))
    blocks = Blocks(rows, list(range(1, len(rows[name]))))
    expressions = [ice.EqualTo(name, literal) for literal, _ in chosen]
    others = [ice.IsNull(name)] if data.draw(st.booleans()) else []
    found = match(ice.Or(*expressions, *others, ice.AlwaysFalse()), blocks, SCHEMA)
    listed = match(
        ice.Or(ice.In(name, [literal for literal, _ in chosen]), *others, ice.AlwaysFalse()), blocks, SCHEMA
    )
    assert found.outcome.tolist() == listed.outcome.tolist()


def test_terms_report_each_predicate_alone():
    blocks = ranges([0, 5, 10], [4, 9, 14])
    result = match(ice.And(ice.GreaterThan("i64", 4), ice.LessThan("i64", 12)), blocks, SCHEMA)
    assert result.outcome.tolist() == [NONE, ALL, SOME]
    assert [(term.text, term.column_id, term.outcome.tolist()) for term in result.terms] == [
        ("i64 > 4", SCHEMA.leaf("i64").id, [NONE, ALL, ALL]),
        ("i64 < 12", SCHEMA.leaf("i64").id, [ALL, ALL, SOME]),
    ]


def test_a_long_list_prunes_between_its_values():
    blocks = ranges([0, 101, 150, 99_950], [100, 149, 200, 99_999])
    expression = ice.In("i64", [100 * i for i in range(1000)])
    assert match(expression, blocks, SCHEMA).outcome.tolist() == [SOME, NONE, SOME, NONE]
    assert match(ice.Not(expression), blocks, SCHEMA).outcome.tolist() == [SOME, ALL, SOME, ALL]


def test_bounds_may_come_in_chunks():
    whole = ranges([0, 5, 10], [4, 9, 14])
    column = whole._columns["i64"]
    chunked = replace(
        column,
        min=pa.chunked_array([column.min[:1], column.min[1:]]),
        max=pa.chunked_array([column.max[:2], column.max[2:]]),
    )
    for expression in (ice.In("i64", [3, 12]), ice.EqualTo("i64", 7), ice.LessThan("i64", 6)):
        expected = match(expression, whole, SCHEMA).outcome.tolist()
        assert match(expression, Given(whole.row_count, i64=chunked), SCHEMA).outcome.tolist() == expected


def test_negation_is_exact_for_nan():
    column = ColumnStatistics(
        min=pa.array([1.0, 1.0]),
        max=pa.array([2.0, 2.0]),
        null_count=np.zeros(2, int),
        nan_count=np.array([0, 1]),
    )
    blocks = Given([5, 5], f64=column)
    over = ice.GreaterThan("f64", 5)
    assert match(over, blocks, SCHEMA).outcome.tolist() == [NONE, NONE]
    assert match(ice.Not(over), blocks, SCHEMA).outcome.tolist() == [ALL, ALL]
    assert match(ice.LessThanOrEqual("f64", 5), blocks, SCHEMA).outcome.tolist() == [ALL, SOME]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (ice.EqualTo("nope", 1), "nope"),
        (ice.EqualTo("in", 1), "struct"),
        (ice.EqualTo("i64", "x"), "takes a number"),
        (ice.EqualTo("text", 1), "takes a string"),
        (ice.EqualTo("many", 1), "no order"),
        (ice.StartsWith("i64", "1"), "no prefixes"),
        (ice.EqualTo("day", 1), "date"),
        ("i64 = 1", "PyIceberg expression"),
        (None, "PyIceberg expression"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused(expression, words):
    for use in (
        lambda: filter_table(NO_ROWS, expression, SCHEMA),
        lambda: match(expression, Given([1]), SCHEMA),
    ):
        with pytest.raises(InvalidPredicateError, match=words):
            use()


def test_bound_expressions_are_refused():
    from pyiceberg import schema as ice_schema
    from pyiceberg import types as ice_types

    columns = ice_schema.Schema(ice_types.NestedField(1, "i64", ice_types.LongType()))
    with pytest.raises(InvalidPredicateError, match="bound"):
        filter_table(NO_ROWS, ice.EqualTo("i64", 1).bind(columns), SCHEMA)


def test_long_chains_work_and_deep_nesting_is_refused():
    leaning = ice.EqualTo("i64", 0)
    deep = leaning
    for i in range(10_000):
        leaning = ice.Or(leaning, ice.EqualTo("i64", i))
        deep = ice.Not(ice.And(deep, ice.EqualTo("i64", i)))
    table = pa.table({"i64": [5, 20_000, None]})
    assert filter_table(table, leaning, SCHEMA).to_pylist() == [True, False, None]
    assert match(leaning, ranges([5, 20_000], [5, 20_001]), SCHEMA).outcome.tolist() == [ALL, NONE]
    with pytest.raises(InvalidPredicateError, match="deep"):
        filter_table(table, deep, SCHEMA)


BLOCKS = 100_000  # benchmarks/metadata.py prunes a million


@pytest.mark.parametrize(
    "expression",
    [
        ice.GreaterThan("i64", 50_000),
        ice.In("i64", list(range(0, BLOCKS, 100))),
        ice.NotEqualTo("large", "key000050000"),
        ice.StartsWith("large", "key00005"),
        ice.In("large", [f"key{i:09d}" for i in range(0, BLOCKS, 100)]),
        ice.LessThan("dec128", Decimal("500.5")),
    ],
    ids=lambda expression: f"{type(expression).__name__}-{expression.term.name}",
)
def test_a_hundred_thousand_blocks_match_at_once(expression):
    low = pa.array(np.arange(BLOCKS))
    keys = pa.array([f"key{i:09d}" for i in range(BLOCKS)], pa.large_string())
    name, kind = expression.term.name, {"i64": low, "large": keys}.get(expression.term.name)
    bounds = kind if kind is not None else pc.cast(low, pa.decimal128(38, 3))
    zeros = np.zeros(BLOCKS, np.int64)
    blocks = Given(np.full(BLOCKS, 10), **{name: ColumnStatistics(min=bounds, max=bounds, null_count=zeros)})
    outcome = match(expression, blocks, SCHEMA).outcome
    assert outcome.shape == (BLOCKS,)
    assert 0 < np.count_nonzero(outcome) <= BLOCKS
