"""Delete, update and overwrite, compared with rows in memory; blocks, levels and runs afterwards."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from arrow_rows import memory_table
from faults import storage_calls
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from profiles import cases

import tblctl
from tblctl.errors import InputError, InvalidOptionError, InvalidPredicateError, SchemaMismatchError

SCHEMA = pa.schema(
    [pa.field("n", pa.int64(), nullable=False), ("k", pa.int32()), ("s", pa.string()), ("f", pa.float64())]
)
KEYS = st.sampled_from([None, 0, 1, 2, 3, 4, 5, 6, 7])
TEXTS = st.sampled_from([None, "", "a", "b", "bb", "c"])
FLOATS = st.sampled_from([None, math.nan, -0.0, 1.5, math.inf])


def is_true(value) -> bool:
    return value is True


def both(one, other):
    return False if one is False or other is False else None if one is None or other is None else True


def inverse(value):
    return None if value is None else not value


def of(column, holds):
    """Return a condition on one column; NULL where the column is."""
    return lambda row: None if row[column] is None else holds(row[column])


K_IS_5, S_IS_A = of("k", lambda k: k == 5), of("s", lambda s: s == "a")
CONDITIONS = [
    ("k < 3", of("k", lambda k: k < 3)),
    ("not (k < 3)", of("k", lambda k: k >= 3)),
    ("k is null", lambda row: row["k"] is None),
    ("s = 'a'", S_IS_A),
    ("s <> 'a' and k = 5", lambda row: both(inverse(S_IS_A(row)), K_IS_5(row))),
    ("k not in (1, 2)", of("k", lambda k: k not in {1, 2})),
    ("f > 1", of("f", lambda f: f > 1)),
    ("f <> 1.5", of("f", lambda f: f != 1.5)),
    ("s like 'b%'", of("s", lambda s: s.startswith("b"))),
    ("true", lambda _: True),
    ("k = 100", of("k", lambda _: False)),
]
WHERE = st.sampled_from(CONDITIONS)


@st.composite
def some_rows(draw, first):
    count = draw(st.integers(0, 12))
    return [
        {"n": first + place, "k": draw(KEYS), "s": draw(TEXTS), "f": draw(FLOATS)} for place in range(count)
    ]


def comparable(rows):
    return sorted((row["n"], repr(row["k"]), repr(row["s"]), repr(row["f"])) for row in rows)


class Rows(RuleBasedStateMachine):
    """A table beside a list of rows; every operation does the same to both, and counts the same."""

    @initialize(
        key=st.sampled_from([[], ["k"], ["s desc nulls first", "k"], ["truncate(2, k)", "f"]]),
        block_rows=st.integers(1, 6),
        scope=st.sampled_from(["append", "block"]),
    )
    def create(self, key, block_rows, scope):
        options = {"block_rows": block_rows, "row_group_rows": 2, "sort_scope": scope}
        self.context = memory_table(SCHEMA, cluster_by=key, options=options)
        self.table = self.context.__enter__()
        self.rows = []
        self.history = {1: []}
        self.next = 0

    def fresh(self, data):
        rows = data.draw(some_rows(self.next))
        self.next += len(rows)
        return rows

    def done(self, outcome, added, removed, rows):
        assert (outcome.rows_added, outcome.rows_removed) == (added, removed)
        if added == removed == 0:
            assert outcome.snapshot is None
            assert "nothing was committed" in outcome.note
        else:
            self.history[outcome.snapshot] = rows
        self.rows = rows

    @rule(data=st.data())
    def append(self, data):
        rows = self.fresh(data)
        outcome = self.table.append(pa.Table.from_pylist(rows, SCHEMA))
        self.done(outcome, len(rows), 0, self.rows + rows)

    @rule(where=WHERE)
    def delete(self, where):
        text, holds = where
        left = [row for row in self.rows if not is_true(holds(row))]
        self.done(self.table.delete(text), 0, len(self.rows) - len(left), left)

    @rule(where=WHERE, k=KEYS, s=TEXTS, columns=st.sampled_from(["k", "s", "ks"]))
    def update(self, where, k, s, columns):
        text, holds = where
        values = {name: value for name, value in (("k", k), ("s", s)) if name in columns}
        concerned = [row for row in self.rows if is_true(holds(row))]
        changed = [{**row, **values} if is_true(holds(row)) else row for row in self.rows]
        self.done(self.table.update(values, text), len(concerned), len(concerned), changed)

    @rule(where=WHERE, data=st.data())
    def overwrite(self, where, data):
        text, holds = where
        rows = self.fresh(data)
        left = [row for row in self.rows if not is_true(holds(row))]
        outcome = self.table.overwrite(pa.Table.from_pylist(rows, SCHEMA), text)
        self.done(outcome, len(rows), len(self.rows) - len(left), left + rows)

    @rule(data=st.data())
    def overwrite_everything(self, data):
        rows = self.fresh(data)
        outcome = self.table.overwrite(pa.Table.from_pylist(rows, SCHEMA))
        self.done(outcome, len(rows), len(self.rows), rows)

    @rule(key=st.sampled_from([["k"], ["f", "s"], ["s"]]))
    def alter_the_key(self, key):
        self.history[self.table.set_cluster_key(key).snapshot] = self.rows

    @precondition(lambda self: len(self.history) > 2)
    @rule(data=st.data())
    def roll_back(self, data):
        sequence = data.draw(st.sampled_from(sorted(self.history)))
        self.rows = self.history[sequence]
        self.history[self.table.rollback(sequence).snapshot] = self.rows

    @invariant()
    def the_table_holds_the_rows(self):
        assert comparable(self.table.scan().to_arrow().to_pylist()) == comparable(self.rows)
        assert self.table.snapshot.rows == len(self.rows)

    def teardown(self):
        if not hasattr(self, "table"):
            return
        report = self.table.check(deep=True)
        assert report.ok, report.problems
        for sequence, rows in self.history.items():
            then = tblctl.open(self.table.location, as_of=sequence)
            assert comparable(then.scan().to_arrow().to_pylist()) == comparable(rows)
        assert comparable(self.table.to_dataset().to_table().to_pylist()) == comparable(self.rows)
        self.context.__exit__(None, None, None)


TestRowsFollowAModel = Rows.TestCase
TestRowsFollowAModel.settings = settings(
    max_examples=cases(12), stateful_step_count=12, suppress_health_check=list(HealthCheck)
)


# -- which blocks are read and written --------------------------------------------------------------------------------


@pytest.fixture
def table():
    """`k` is 0 to 39 in four blocks of ten; `v` is text."""
    data = pa.table({"k": pa.array(range(40), pa.int64()), "v": [f"v{i}" for i in range(40)]})
    with memory_table(data.schema, cluster_by="k", options={"block_rows": 10}) as table:
        table.append(data)
        yield table


def data_objects(action):
    return {
        call.name
        for call in storage_calls(action)
        if call.name.startswith("data/") and call.operation == "open"
    }


def by_start(table):
    return {block.min[0]: block for block in table.files()}


def test_a_block_that_matches_whole_is_dropped_unread(table):
    names = {start: block.path for start, block in by_start(table).items()}
    table._native.storage.delete([names[10]])  # reading it would fail
    outcome = table.delete("k between 10 and 19")
    assert (outcome.rows_removed, outcome.blocks_removed, outcome.blocks_added) == (10, 1, 0)
    assert set(by_start(table)) == {0, 20, 30}


def test_only_blocks_that_may_hold_matching_rows_are_read(table):
    names = {start: block.path for start, block in by_start(table).items()}
    assert data_objects(lambda: table.delete("k = 15")) == {names[10]}
    names = {start: block.path for start, block in by_start(table).items()}
    assert data_objects(lambda: table.update({"v": "x"}, "k in (3, 33)")) == {names[0], names[30]}
    assert data_objects(lambda: table.overwrite(pa.table({"k": [1], "v": ["y"]}), "k < 10")) == set()


def test_deleting_everything_reads_and_writes_no_data(table):
    calls = storage_calls(lambda: table.delete("true"))
    assert [call for call in calls if call.name.startswith("data/")] == []
    assert table.files() == []
    assert table.scan().to_arrow().num_rows == 0


def test_a_block_that_lost_rows_keeps_its_level_run_and_order(table):
    native = table._native
    before = by_start(table)
    relabel(native, before[10].path, level=3)
    outcome = table.delete("k = 15 or k = 10")
    after = by_start(table)
    assert (after[11].level, after[11].run, after[11].cluster_key_id) == (3, before[10].run, 1)
    assert (after[11].min, after[11].max, after[11].rows) == ((11,), (19,), 8)
    assert (outcome.rows_removed, outcome.rows_added, outcome.blocks_removed, outcome.blocks_added) == (
        2,
        0,
        1,
        1,
    )
    assert {start: after[start].path for start in (0, 20, 30)} == {
        start: before[start].path for start in (0, 20, 30)
    }
    assert table.check(deep=True).ok


def test_a_block_that_lost_rows_after_its_key_column_was_dropped_has_level_0(table):
    """Levels hold in the block's own sort only."""
    from tblctl.tableformat.native.read.metadata import block_metadata

    before = {block.path for block in table.files()}
    relabel(table._native, by_start(table)[10].path, level=3)
    (value,) = table.scan("k = 15").to_arrow()["v"].to_pylist()
    table.drop_cluster_key()
    table.drop_column("k")
    table.delete(f"v = '{value}'")
    metadata = block_metadata(table._native.storage, table._native.head())
    levels = dict(zip(metadata.values("path").to_pylist(), metadata.values("level").to_pylist(), strict=True))
    (rewritten,) = (path for path in levels if path not in before)
    assert levels[rewritten] == 0


def test_updating_other_columns_keeps_level_and_run(table):
    before = by_start(table)
    relabel(table._native, before[20].path, level=2)
    outcome = table.update({"v": None}, "k = 25")
    after = by_start(table)[20]
    assert (after.level, after.run, after.rows) == (2, before[20].run, 10)
    assert (outcome.rows_removed, outcome.rows_added) == (1, 1)
    assert table.scan("v is null").to_arrow()["k"].to_pylist() == [25]


def test_updating_the_key_takes_the_block_back_to_level_0_as_a_run_of_its_own(table):
    before = by_start(table)
    relabel(table._native, before[20].path, level=2)
    table.update({"k": 100}, "k = 20")
    after = by_start(table)[21]
    assert (after.level, after.max, after.rows) == (0, (100,), 10)
    assert after.run not in {block.run for block in before.values()}
    assert table.check(deep=True).ok


def test_a_constant_mark_that_is_no_longer_true_goes_back_to_0():
    for change in (lambda table: table.delete("n < 3"), lambda table: table.update({"k": 2}, "n = 1")):
        with memory_table("k: int64, n: int64", cluster_by="k", options={"block_rows": 10}) as table:
            table.append(pa.table({"k": [1] * 10, "n": range(10)}))
            assert [block.level for block in table.files()] == [-1]
            change(table)
            assert [block.level for block in table.files()] == [0]
            assert table.check(deep=True).ok


def test_a_constant_mark_stays_while_it_is_true():
    with memory_table("k: int64, n: int64", cluster_by="k", options={"block_rows": 10}) as table:
        table.append(pa.table({"k": [1] * 10, "n": range(10)}))
        table.delete("n = 9")
        table.update({"n": 0}, "n = 1")
        assert [(block.level, block.rows) for block in table.files()] == [(-1, 9)]


def test_blocks_of_another_key_keep_their_own_order_when_they_lose_rows(table):
    table.set_cluster_key("v")
    table.delete("k = 12")
    assert {block.cluster_key_id for block in table.files()} == {1}
    table.update({"v": "z"}, "k = 2")  # v is not a term of the blocks' own key
    assert {block.cluster_key_id for block in table.files()} == {1}
    table.update({"k": 77}, "k = 3")
    assert sorted(block.cluster_key_id for block in table.files()) == [1, 1, 1, 2]
    assert table.check(deep=True).ok


def test_rows_without_order_are_sorted_when_an_update_rewrites_them():
    with memory_table("k: int64, n: int64", options={"block_rows": 10}) as table:
        table.append(pa.table({"k": [3, 1, 2], "n": [1, 2, 3]}))
        table.set_cluster_key("k")
        table.delete("n = 1")
        assert [block.cluster_key_id for block in table.files()] == [None]
        table.update({"n": 9}, "n = 2")
        assert [(block.cluster_key_id, block.min, block.max) for block in table.files()] == [(1, (1,), (2,))]


def test_an_update_that_makes_rows_huge_cuts_the_block():
    with memory_table("n: int64, s: string", cluster_by="n", options={"block_bytes": 10_000}) as table:
        table.append(pa.table({"n": range(100), "s": ["x"] * 100}))
        assert len(table.files()) == 1
        table.update({"s": "y" * 1_000}, "true")
        blocks = table.files()
        assert len(blocks) >= 10
        assert all(block.decoded_bytes <= 10_000 for block in blocks)
        assert len({block.run for block in blocks}) == 1


def test_several_batches_of_an_overwrite_replace_the_old_rows_in_one_commit(table):
    outcome = table.overwrite(pa.table({"k": [5, 500], "v": ["a", "b"]}), "k < 12")
    assert (outcome.rows_removed, outcome.rows_added) == (12, 2)
    assert outcome.snapshot == 3
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == [5, *range(12, 40), 500]


def relabel(native, path, level):
    """Give a block another level, as a merge would."""
    from tblctl.tableformat.native.log.commit import publish
    from tblctl.tableformat.native.log.edit import Edit
    from tblctl.tableformat.native.log.edit_applier import EditApplier
    from tblctl.tableformat.native.read.metadata import block_metadata
    from tblctl.tableformat.port import Label

    head = native.head()
    metadata = block_metadata(native.storage, head)
    place = metadata.values("path").to_pylist().index(path)
    label = Label(level=level, run_id=metadata.values("run_id")[place].as_py())
    edit = Edit(operation="recluster", relabelled={metadata.segment_of(place).path: {path: label}})
    applier = EditApplier(native.storage, native.env)
    assert publish(native.storage, native.env, lambda head: applier.propose(edit, head), head)


def test_a_relabelled_block_is_not_rewritten(table):
    before = by_start(table)
    relabel(table._native, before[10].path, level=5)
    from tblctl.tableformat.native.read.metadata import block_metadata

    assert table.check(deep=True).ok
    same = block_metadata(table._native.storage, table._native.head()).values("same_key_rows")
    assert same.to_pylist() == [1] * 4, "what is known of it stays known"
    after = by_start(table)
    assert {start: block.path for start, block in after.items()} == {
        start: block.path for start, block in before.items()
    }
    assert {start: block.level for start, block in after.items()} == {0: 0, 10: 5, 20: 0, 30: 0}
    last = table.history(1)[0]
    assert (last.rows_added, last.rows_removed, last.blocks_added, last.blocks_removed) == (0, 0, 0, 0)


# -- values of updates ------------------------------------------------------------------------------------------------

DAY = datetime.date(2020, 1, 1)
NOON = datetime.datetime(2020, 1, 1, 12)
VALUES = [
    *((pa.int8(), 5), (pa.uint64(), 2**64 - 1), (pa.bool_(), True)),
    *((pa.float16(), 1.5), (pa.float32(), math.nan), (pa.float64(), -0.0)),
    *((pa.decimal32(5, 2), Decimal("1.50")), (pa.decimal256(60, 2), Decimal("-1.50"))),
    *((pa.string(), "é"), (pa.string_view(), "x"), (pa.large_string(), "")),
    *((pa.binary(), b"\xff"), (pa.binary_view(), b""), (pa.binary(2), b"ab")),
    *((pa.date32(), datetime.date(1969, 1, 1)), (pa.date64(), DAY)),
    *((pa.time32("s"), datetime.time(1, 2, 3)), (pa.time64("ns"), datetime.time(1, 2, 3))),
    *((pa.timestamp("s"), NOON), (pa.timestamp("us", "UTC"), NOON.replace(tzinfo=datetime.UTC))),
    *((pa.dictionary(pa.int8(), pa.string()), "w"), (pa.dictionary(pa.int8(), pa.int64()), 7)),
    (pa.dictionary(pa.int32(), pa.date32()), DAY),
    *((pa.list_(pa.int64()), [1, None]), (pa.map_(pa.string(), pa.int64()), [("a", 1)])),
]


def alike(found, expected):
    floats = any(isinstance(value, float) for value in expected)
    return repr(found) == repr(expected) if floats else found == expected


@pytest.mark.parametrize(
    ("kind", "value"), VALUES, ids=lambda item: str(item) if isinstance(item, pa.DataType) else ""
)
def test_a_column_of_this_type_takes_a_value_and_null(kind, value):
    with memory_table(pa.schema([("c", kind), ("n", pa.int64())])) as table:
        table.append(pa.table({"c": pa.nulls(4).cast(kind), "n": range(4)}, schema=table.schema))
        table.update({"c": value}, "n < 3")
        found = table.scan().to_arrow().sort_by("n")["c"].to_pylist()
        assert alike(found, [value] * 3 + [None])
        table.update({"c": None}, "n > 0")
        assert alike(table.scan().to_arrow().sort_by("n")["c"].to_pylist(), [value] + [None] * 3)
        assert table.check(deep=True).ok


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": 1}, "x"),
        ({"n": None}, "not nullable"),
        ({"n": "one"}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": 2**70}, "n"),
        ({"s": 5}, "s"),
        ({"d": "2020-13-01"}, "d"),
        ({"m": Decimal("1.005")}, "m"),
        ({"st.a": 1}, "field of a struct"),
        ({}, "at least one column"),
        ("n = n + 1", "column 5.*arithmetic"),
        ("n = ", "column 3"),
        ("n 1", "column 3"),
    ],
)
def test_a_wrong_value_is_refused_by_name_and_nothing_changes(change, words):
    with memory_table(
        "n: int64 not null, s: string, d: date, m: decimal(5, 2), st: struct<a: int64>"
    ) as table:
        table.append(
            pa.table({"n": [1], "s": ["a"], "d": [None], "m": [None], "st": [None]}, schema=table.schema)
        )
        with pytest.raises(InputError, match=words):
            table.update(change, "n = 1")
        assert table.snapshot.sequence == 2
        assert len(list(table._native.storage.list("data/"))) == 1


@pytest.mark.parametrize("where", ["x = 1", "n = 'one'", "n = ", "n + 1", "n = 1 or"])
def test_a_wrong_condition_is_refused_before_anything_is_written(where):
    with memory_table("n: int64") as table:
        table.append(pa.table({"n": [1]}))
        for action in (
            lambda: table.delete(where),
            lambda: table.update({"n": 1}, where),
            lambda: table.overwrite(pa.table({"n": [1]}), where),
            lambda: table.scan(where),
        ):
            with pytest.raises((InvalidPredicateError, tblctl.errors.UnknownColumnError)):
                action()
        assert table.snapshot.sequence == 2
        assert len(list(table._native.storage.list("data/"))) == 1


def test_an_overwrite_with_data_that_does_not_fit_changes_nothing(table):
    with pytest.raises(SchemaMismatchError):
        table.overwrite(pa.table({"k": ["text"]}), "k < 10")
    assert table.snapshot.sequence == 2


def test_a_delete_without_a_condition_is_refused(table):
    with pytest.raises(InvalidOptionError, match="true"):
        table.delete(None)


def test_nothing_is_left_behind_when_no_row_matches(table):
    before = {item.name for item in table._native.storage.list("")}
    assert table.update({"v": "x"}, "v = 'nobody'").snapshot is None
    assert table.delete("v = 'nobody'").snapshot is None
    assert table.overwrite(table.scan("k < 0").to_arrow(), "k < 0").snapshot is None
    assert {item.name for item in table._native.storage.list("")} == before
