"""Several live sorts in one table, of several kinds: how they come, what they keep, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tblctl
from tblctl.maintain.request import Request, make_plan
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.round.commit_every import CommitEvery
from tblctl.merger.round.round import merge_round
from tblctl.selector.draft import Draft, next_level
from tblctl.selector.policies.full import FullOptions
from tblctl.selector.policy import Decision
from tblctl.selector.registry import register, unregister
from tblctl.tableformat.errors import ConflictError, UnsupportedFormatError
from tblctl.tableformat.keys import kinds
from tblctl.tableformat.keys.order import is_sorted, key_table
from tblctl.tableformat.model.cluster_key import Sort, Term, parse_terms
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.native.log import alter, edit, edit_applier, snapshot_file
from tblctl.tableformat.native.log.names import snapshot_path
from tblctl.tableformat.port import Replacement

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64())])
BY_B = Sort(id=2, terms=(Term(column_id=2),))


class SumKeys:
    """Keys of a kind that tests add: the sum of two columns, which no statistics bound."""

    def __init__(self, sort: Sort) -> None:
        self.column_ids = tuple(term.column_id for term in sort.terms)
        self.orders = (Term(column_id=0, descending=True),)

    def types(self, schema: Any) -> list[pa.DataType | None]:
        known = all(schema.leaf_by_id(number) for number in self.column_ids)
        return [pa.int64() if known else None]

    def keys(self, rows: pa.Table, schema: Any) -> pa.Table:
        columns = [rows.column(schema.leaf_by_id(number).path[0]) for number in self.column_ids]
        return pa.table([pc.add(*columns)], ["0"])

    def bounds(self, statistics: Any, schema: Any) -> Any:
        count = len(statistics.row_count)
        nothing, nowhere = [pa.nulls(count, pa.int64())], np.zeros(count, bool)
        return kinds_bounds(nothing, nowhere)

    def sorting_columns(self, schema: Any) -> tuple[Any, ...]:
        return ()

    def texts(self, schema: Any) -> tuple[str, ...]:
        return ("sum",)

    def widening_problem(self, before: Any, after: Any) -> str:
        return "sums differ"


def kinds_bounds(nothing: Sequence[pa.Array], nowhere: np.ndarray) -> Any:
    from tblctl.tableformat.keys.linear import Bounds

    return Bounds(low=list(nothing), high=list(nothing), known=nowhere, exact=nowhere)


@pytest.fixture
def table(memory_url: str) -> tblctl.Table:
    table = tblctl.create(memory_url, SCHEMA, cluster_by="a", options={"block_rows": 4})
    for start in range(3):
        keys = range(start, 12, 3)
        table.append(pa.table({"a": list(keys), "b": [(7 * key) % 12 for key in keys]}, SCHEMA))
    return table


def port(table: tblctl.Table) -> Any:
    return table._port


def merge(table: tblctl.Table, sort_id: int, **more: Any) -> Any:
    """Merge all blocks into one run of a sort."""
    here = port(table)
    version = here.newest()
    plan = make_plan(
        version, Request.of(policy="full", condition=lambda _: None, options={"include_unclustered": True})
    )
    (group,) = plan.groups
    plan = replace(plan, groups=(replace(group, sort_id=sort_id),), **more)
    return merge_round(here, version, plan, LocalEngine())


def add_sort(table: tblctl.Table, *sorts: Sort) -> None:
    here = port(table)
    here.replace(here.newest(), Replacement(removed=frozenset(), added=(), sorts=sorts))


def head(table: tblctl.Table) -> Any:
    return table._native.head()


def document(table: tblctl.Table) -> dict[str, Any]:
    return json.loads(table._native.storage.read(snapshot_path(head(table).sequence)))


def in_order(table: tblctl.Table, sort: Sort) -> bool:
    """Return whether the blocks, in order of their keys, hold the rows in the order of a sort."""
    listing = port(table).newest().listing(sort, None)
    assert listing.own.all()
    order = np.argsort([value.as_py() for value in listing.low.column(0)])
    if kinds.key_maker(sort).orders[0].descending:
        order = order[::-1]
    schema = head(table).schema
    rows = [
        pa.parquet.read_table(pa.BufferReader(table._native.storage.read(listing.paths[int(at)].as_py())))
        for at in order
    ]
    return is_sorted(key_table(pa.concat_tables(rows), sort, schema), sort)


def test_a_replacement_adds_a_live_sort_and_later_commits_keep_it(table: tblctl.Table) -> None:
    assert head(table).live_sorts.keys() == {1}
    add_sort(table, BY_B)
    assert head(table).live_sorts.keys() == {1, 2}
    assert head(table).sort.id == 1
    table.append(pa.table({"a": [100], "b": [1]}, SCHEMA))
    table.delete("a = 100")
    table.gc(keep=1, older_than=0)
    assert head(table).live_sorts[2] == BY_B


def test_a_group_of_a_sort_that_is_live_but_not_current_is_no_conflict(table: tblctl.Table) -> None:
    rows = table.scan().to_arrow().sort_by("a")
    add_sort(table, BY_B)
    outcome = merge(table, 2)
    assert [group.status for group in outcome.groups] == ["committed"]
    assert in_order(table, BY_B)
    assert table.scan().to_arrow().sort_by("a") == rows
    assert table.check(deep=True).problems == ()
    assert set(port(table).newest().listing(BY_B, None).sort_id.tolist()) == {2}


def beside_the_key(table: tblctl.Table) -> tblctl.Table:
    """Return the table with its three blocks in the order of `BY_B`, and one from a = 100 on in that of the key."""
    add_sort(table, BY_B)
    merge(table, 2)
    table.append(pa.table({"a": [100, 101], "b": [1, 0]}, SCHEMA))
    return table


def test_a_sort_leaves_the_snapshot_with_its_last_block(table: tblctl.Table) -> None:
    beside_the_key(table)
    table.delete("a < 11")
    assert head(table).live_sorts.keys() == {1, 2}
    table.delete("a = 11")
    assert head(table).live_sorts.keys() == {1}
    assert document(table)["cluster_key_id"] == 1
    assert "live_sorts" not in document(table)
    assert table.check(deep=True).problems == ()
    table.rollback(head(table).sequence - 1)
    assert head(table).live_sorts.keys() == {1, 2}


def test_the_cluster_key_stays_though_no_block_names_it(table: tblctl.Table) -> None:
    beside_the_key(table).delete("a >= 100")
    assert head(table).live_sorts.keys() == {1, 2}
    table.delete("true")
    assert head(table).live_sorts.keys() == {1}


def test_a_sort_that_a_block_of_another_segment_names_stays(
    table: tblctl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edit, "folded", lambda entries: [(entry,) for entry in entries])
    monkeypatch.setattr(edit_applier, "folded", lambda entries: [(entry,) for entry in entries])
    monkeypatch.setattr(edit, "SEGMENT_BLOCKS", 1)
    beside_the_key(table)
    assert len(head(table).segments) == 4
    asked = []
    read = edit_applier.read_segment
    monkeypatch.setattr(edit_applier, "read_segment", lambda *words: asked.append(words[2:]) or read(*words))
    table.delete("a >= 100")
    assert asked == [()]  # a block of the key left: nothing was asked of other segments
    blocks = {block.path for block in table.files() if block.path}
    assert len(blocks) == 3
    asked.clear()
    table.delete("b < 4")
    assert head(table).live_sorts.keys() == {1, 2}
    assert asked.count((["cluster_key_id"],)) == 1


def test_a_curve_leaves_with_its_last_block_and_its_id_stays_taken(table: tblctl.Table) -> None:
    curve = port(table).newest().sort_by("zorder(a, b)")
    add_sort(table, curve)
    merge(table, curve.id)
    assert head(table).sorts[curve.id] == curve
    table.delete("true")
    assert head(table).sorts.keys() == {1}
    assert head(table).next_sort_id == curve.id + 1


def test_a_group_whose_sort_lost_its_last_block_meanwhile_conflicts(table: tblctl.Table) -> None:
    here = port(beside_the_key(table))
    base = here.newest()
    table.delete("a < 100")
    with pytest.raises(ConflictError, match="sort 2 cannot be added: it has ended"):
        here.replace(base, Replacement(removed=frozenset(), added=(), sorts=(BY_B,)))


def test_info_has_the_depth_of_each_live_sort(table: tblctl.Table) -> None:
    assert beside_the_key(table).info("a").live_sorts == ()
    (found,) = table.info().live_sorts
    assert (found.cluster_by_keys, found.total_block_count, found.rows) == (("b",), 3, 12)
    assert (found.average_depth, found.unclustered_block_count) == (1.0, 0)
    assert table.info().unclustered_block_count == 3
    assert table.info().to_dict()["live_sorts"] == [found.to_dict()]
    assert [item.total_block_count for item in table.info(where="a >= 100").live_sorts] == [0]


class ByB:
    """A policy that sorts all blocks by a sort of its own, which it brings along unless it is live."""

    name = "by_b"
    options = FullOptions

    def decide(self, view: Any, budget: Any, options: Any, **_: Any) -> Decision:
        live = [sort for sort in view.sorts.values() if sort.terms == BY_B.terms]
        sort = live[0] if live else replace(BY_B, id=view.next_sort_id)
        blocks = np.arange(len(view))
        level = next_level(view, blocks)
        return Decision(drafts=(Draft(blocks=blocks, output_level=level, why="a test", sort=sort),))


def test_a_policy_brings_a_sort_of_its_own(table: tblctl.Table) -> None:
    register(ByB())
    try:
        rows = table.scan().to_arrow().sort_by("a")
        plan = table.plan("by_b")
        assert plan.sorts == (BY_B,)
        assert table.recluster(tblctl.Plan.from_json(plan.to_json())).committed_groups == 1
        assert head(table).live_sorts.keys() == {1, 2}
        assert in_order(table, BY_B)
        assert table.scan().to_arrow().sort_by("a") == rows
        again = table.plan("by_b")
        assert (again.sorts, again.groups[0].sort_id) == ((), 2)
    finally:
        unregister("by_b")


def test_a_group_of_a_sort_that_is_not_live_conflicts(table: tblctl.Table) -> None:
    outcome = merge(table, 2)
    assert [group.status for group in outcome.groups] == ["conflicted"]


def test_a_kind_that_is_added_makes_keys_blocks_and_bounds(
    table: tblctl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kinds.KINDS, "sum", SumKeys)
    by_sum = Sort(id=2, kind="sum", terms=(Term(column_id=1), Term(column_id=2)))
    add_sort(table, by_sum)
    rows = table.scan().to_arrow().sort_by("a")
    assert [group.status for group in merge(table, 2).groups] == ["committed"]
    assert in_order(table, by_sum)
    assert table.scan().to_arrow().sort_by("a") == rows
    assert table.check(deep=True).problems == ()
    table.delete("a = 3")
    assert port(table).newest().listing(by_sum, None).own.all()
    table.update({"b": 50}, where="a = 4")
    assert sorted(port(table).newest().listing(by_sum, None).own.tolist()).count(False) == 1
    table.append(pa.table({"a": [5], "b": [5]}, SCHEMA))
    assert not port(table).newest().listing(by_sum, None).known.all()


def test_a_cluster_key_ends_the_sorts_beside_it(table: tblctl.Table) -> None:
    add_sort(table, BY_B)
    table.set_cluster_key("a desc")
    assert head(table).live_sorts.keys() == {3}
    assert head(table).sorts.keys() == {1, 2, 3}


def test_dropping_the_key_ends_the_sorts_beside_it_and_a_rollback_brings_them_back(
    table: tblctl.Table,
) -> None:
    add_sort(table, BY_B)
    before = head(table).sequence
    table.drop_cluster_key()
    assert head(table).live_sorts == {}
    table.rollback(before)
    assert head(table).live_sorts.keys() == {1, 2}


def test_a_sort_whose_column_goes_is_no_longer_live(table: tblctl.Table) -> None:
    add_sort(table, BY_B)
    table.drop_column("b")
    assert head(table).live_sorts.keys() == {1}


class Beside(LocalEngine):
    """Something else happens to the table once the first task is done, and its group committed if that is due."""

    def __init__(self, happens: Callable[[], Any]) -> None:
        super().__init__()
        self._happens = [happens]

    def run(self, io: Any, tasks: Any, done: Callable[[Any], None], **words: Any) -> None:
        def then(item: Any) -> None:
            done(item)
            while self._happens:
                self._happens.pop()()

        super().run(io, tasks, then, **words)


def by_month(url: str) -> tblctl.Table:
    """Return a table of two pairs of overlapping blocks with a column `d` of dates."""
    schema = pa.schema([("a", pa.int32()), ("d", pa.date32()), ("b", pa.int64())])
    table = tblctl.create(url, schema, cluster_by="a", options={"block_rows": 40})
    for start in (0, 0, 100, 100):
        keys = pa.array(range(start, start + 40), pa.int32())
        table.append(pa.table({"a": keys, "d": keys.cast(pa.date32()), "b": keys.cast(pa.int64())}, schema))
    return table


BY_BUCKET = Sort(
    id=2, terms=parse_terms("bucket(16, d)", Schema.create(pa.schema([("x", "int8"), ("d", "date32")])))
)


def merge_pairs(
    table: tblctl.Table, happens: Callable[[], Any], *sorts: Sort, commit_every: int | None = None
) -> list[tuple[str, int]]:
    """Merge the pairs of overlapping blocks while something happens; return the end and the sort of each group."""
    here = port(table)
    version = here.newest()
    request = Request.of(policy="full", condition=lambda _: None, options={"max_group_bytes": 1500})
    plan = make_plan(version, request)
    groups = tuple(replace(group, sort_id=sort.id) for group, sort in zip(plan.groups, sorts, strict=True))
    brought = {sort.id: sort for sort in sorts if sort.id not in version.sorts}
    outcome = merge_round(
        here,
        version,
        replace(plan, groups=groups, sorts=tuple(brought.values())),
        Beside(happens),
        commit_every=CommitEvery.of(commit_every),
    )
    table.check(deep=True)
    return [(group.status, at.sort_id) for group, at in zip(outcome.groups, groups, strict=True)]


CHANGES = {
    "a column of it is widened": lambda table: table.widen_column("d", "timestamp[us]"),
    "a column of it is dropped": lambda table: table.drop_column("d"),
    "a new key": lambda table: table.set_cluster_key("b"),
    "an older key": lambda table: (table.set_cluster_key("b"), table.set_cluster_key("a desc")),
    "no key": lambda table: table.drop_cluster_key(),
}


@pytest.mark.parametrize("commit_every", [None, 1])
@pytest.mark.parametrize("change", CHANGES)
def test_a_commit_does_not_bring_back_a_sort_that_others_ended(
    memory_url: str, change: str, commit_every: int | None
) -> None:
    table = by_month(memory_url)
    key, rows = head(table).sort, table.scan().to_arrow().sort_by("a")
    ends = merge_pairs(table, lambda: CHANGES[change](table), BY_BUCKET, BY_BUCKET, commit_every=commit_every)
    statuses = sorted(status for status, _ in ends)
    assert statuses == (["committed", "conflicted"] if commit_every else ["conflicted"] * 2)
    assert BY_BUCKET not in head(table).live_sorts.values()
    assert table.check(deep=True).problems == ()
    left = table.scan().to_arrow().sort_by("a")
    assert left.select(["a", "b"]) == rows.select(["a", "b"])
    assert (head(table).sort == key) == ("key" not in change)


@pytest.mark.parametrize("change", CHANGES)
def test_groups_of_the_key_are_committed_beside_one_whose_sort_ended(memory_url: str, change: str) -> None:
    table = by_month(memory_url)
    key = head(table).sort
    ends = merge_pairs(table, lambda: CHANGES[change](table), key, BY_BUCKET)
    assert sorted(ends) == [("committed", 1), ("conflicted", 2)]
    assert table.check(deep=True).problems == ()


def test_the_same_sort_that_another_process_added_meanwhile_is_no_conflict(memory_url: str) -> None:
    table = by_month(memory_url)
    ends = merge_pairs(table, lambda: add_sort(table, BY_BUCKET), BY_BUCKET, BY_BUCKET)
    assert ends == [("committed", 2)] * 2
    assert head(table).live_sorts[2] == BY_BUCKET


def test_a_sort_that_became_the_key_meanwhile_is_no_conflict(memory_url: str) -> None:
    table = by_month(memory_url)
    ends = merge_pairs(table, lambda: table.set_cluster_key("bucket(16, d)"), BY_BUCKET, BY_BUCKET)
    assert ends == [("committed", 2)] * 2
    assert (head(table).sort, head(table).live_beside) == (BY_BUCKET, ())
    assert port(table).newest().listing(BY_BUCKET, None).own.all()


def test_a_sort_that_became_the_key_after_its_column_was_widened_is_a_conflict(memory_url: str) -> None:
    table = by_month(memory_url)

    def happens() -> None:
        table.widen_column("d", "timestamp[us]")
        table.set_cluster_key("bucket(16, d)")
        assert head(table).sort == BY_BUCKET

    assert merge_pairs(table, happens, BY_BUCKET, BY_BUCKET) == [("conflicted", 2)] * 2
    assert table.check(deep=True).problems == ()


@pytest.mark.parametrize("taken", [True, False], ids=["its id was taken", "it ended"])
def test_a_group_whose_sort_is_another_one_by_now_is_not_merged(table: tblctl.Table, taken: bool) -> None:
    plan = make_plan(port(table).newest(), Request.of(policy="full", condition=lambda _: None, options=None))
    plan = replace(plan, groups=(replace(plan.groups[0], sort_id=2),), sorts=(BY_B,))
    if taken:
        add_sort(table, replace(BY_B, terms=(Term(column_id=2, descending=True),)))
    else:
        add_sort(table, BY_B)
        table.set_cluster_key("a desc")

    class Idle(LocalEngine):
        def run(self, *_: Any, **__: Any) -> None:
            raise AssertionError("nothing is to be merged")

    version = port(table).newest()
    outcome = merge_round(port(table), version, plan, Idle())
    assert [group.status for group in outcome.groups] == ["conflicted"]
    assert port(table).newest().id == version.id


def test_a_deep_check_finds_blocks_that_left_the_order_of_a_live_sort(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = by_month(memory_url)
    monkeypatch.setattr(alter, "_problem_of_adding", lambda *_: None)
    changes = CHANGES["a column of it is widened"]
    assert merge_pairs(table, lambda: changes(table), BY_BUCKET, BY_BUCKET) == [("committed", 2)] * 2
    problems = table.check(deep=True).problems
    assert len(problems) == 4
    assert all("sort 2 is live, but its rows are no longer in that order" in problem for problem in problems)
    table.delete("a >= 0")
    assert table.check(deep=True).problems == (), "only older snapshots have the blocks"


def test_a_key_column_that_was_widened_in_order_is_no_problem(memory_url: str) -> None:
    table = by_month(memory_url)
    table.widen_column("a", "int64")
    assert table.check(deep=True).problems == ()


def test_only_tables_with_several_sorts_ask_for_a_newer_writer(
    table: tblctl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (document(table)["min_writer_version"], "live_sorts" in document(table)) == (2, False)
    add_sort(table, BY_B)
    assert (document(table)["min_writer_version"], document(table)["live_sorts"]) == (3, [2])
    monkeypatch.setattr(snapshot_file, "WRITER_VERSION", 2)
    with pytest.raises(UnsupportedFormatError, match="newer tblctl"):
        table.append(pa.table({"a": [1], "b": [1]}, SCHEMA))


def test_a_sort_whose_id_was_taken_meanwhile_is_a_conflict(table: tblctl.Table) -> None:
    here = port(table)
    base = here.newest()
    table.set_cluster_key("b desc")
    with pytest.raises(ConflictError, match="another sort has its id"):
        here.replace(base, Replacement(removed=frozenset(), added=(), sorts=(BY_B,)))


def test_a_sort_of_a_column_that_was_dropped_meanwhile_is_a_conflict(table: tblctl.Table) -> None:
    here = port(table)
    base = here.newest()
    table.drop_column("b")
    with pytest.raises(ConflictError, match="a column of it was dropped"):
        here.replace(base, Replacement(removed=frozenset(), added=(), sorts=(BY_B,)))
