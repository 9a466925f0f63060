"""Several live sorts in one table, of several kinds: how they come, what they keep, and how they end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tblctl
from tblctl.maintain.request import Request, make_plan
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.round.round import merge_round
from tblctl.selector.draft import Draft
from tblctl.selector.policies.full import FullOptions
from tblctl.selector.policy import Decision
from tblctl.selector.registry import register, unregister
from tblctl.tableformat.errors import ConflictError, UnsupportedFormatError
from tblctl.tableformat.keys import kinds
from tblctl.tableformat.keys.order import is_sorted, key_table
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.native.log import snapshot_file
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


class ByB:
    """A policy that sorts all blocks by a sort of its own, which it brings along unless it is live."""

    name = "by_b"
    options = FullOptions

    def decide(self, view: Any, budget: Any, options: Any, **_: Any) -> Decision:
        live = [sort for sort in view.sorts.values() if sort.terms == BY_B.terms]
        sort = live[0] if live else replace(BY_B, id=view.next_sort_id)
        return Decision(drafts=(Draft(blocks=np.arange(len(view)), output_level=1, why="a test", sort=sort),))


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
