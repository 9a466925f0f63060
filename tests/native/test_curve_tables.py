"""Tables along a curve: created, altered, written, reclustered, rolled back, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tblctl
from tblctl.tableformat.errors import (
    ConflictError,
    InvalidDataError,
    InvalidKeyError,
    TableNotFoundError,
    UnsupportedFormatError,
)
from tblctl.tableformat.keys.order import is_sorted, key_table
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.curve import CURVES, ranges_of
from tblctl.tableformat.native.log import snapshot_file
from tblctl.tableformat.native.log.names import snapshot_path
from tblctl.tableformat.native.read import key_sample, layouts
from tblctl.tableformat.port import Replacement

SCHEMA = pa.schema(
    [("ts", pa.timestamp("us")), ("customer", pa.string()), ("x", pa.float64()), ("n", pa.int32())]
)
KEY = "hilbert(ts, customer)"


def rows(start: int, count: int = 40, seed: int = 1) -> pa.Table:
    """Return rows of rising times, with customers, numbers, NULL and NaN in no order."""
    rng = np.random.default_rng(seed + start)
    customers = [
        None if number == 9 else f"customer {number}" for number in rng.integers(0, 10, count).tolist()
    ]
    numbers = np.where(rng.random(count) < 0.1, np.nan, rng.normal(size=count))
    return pa.table(
        {
            "ts": pa.array(range(start, start + count)).cast(pa.timestamp("us")),
            "customer": customers,
            "x": pa.array(numbers, mask=rng.random(count) < 0.1),
            "n": pa.array(rng.integers(0, 5, count).astype(np.int32)),
        },
        schema=SCHEMA,
    )


def make(url: str, key: str = KEY, appends: int = 5, step: int = 40, **options: Any) -> tblctl.Table:
    """Return a table along a curve with blocks of 10 rows that overlap; each append is `step` later than the last."""
    table = tblctl.create(
        url,
        SCHEMA,
        cluster_by=key,
        sample=rows(0, 200),
        options={"block_rows": 10, "row_group_rows": 4, **options},
    )
    for number in range(appends):
        table.append(rows(step * number, seed=1 if step else number))
    return table


def head(table: tblctl.Table) -> Any:
    return table._native.head()


def every_row(table: tblctl.Table) -> list[str]:
    return sorted(map(repr, table.scan().to_arrow().to_pylist()))


def in_order(table: tblctl.Table) -> bool:
    """Return whether the blocks, by their first keys, hold the rows along the curve."""
    snapshot = head(table)
    listing = table._port.newest().listing(snapshot.sort, None)
    assert listing.own.all()
    order = np.argsort(listing.low.column(0).to_numpy(), kind="stable")
    storage = table._native.storage
    blocks = [pq.read_table(pa.BufferReader(storage.read(listing.paths[int(at)].as_py()))) for at in order]
    return is_sorted(key_table(pa.concat_tables(blocks), snapshot.sort, snapshot.schema), snapshot.sort)


@pytest.mark.parametrize(
    "key", [KEY, "zorder(ts, customer)", "zorder(n, x, customer)", "hilbert(x, n, ts, customer)"]
)
def test_a_recluster_puts_all_rows_along_the_curve(memory_url: str, key: str) -> None:
    table = make(memory_url, key)
    assert table.info().average_depth > 1
    before = every_row(table)
    outcome = table.recluster(policy="full", final=True)
    assert outcome.committed_groups
    assert table.info().average_depth == pytest.approx(1, abs=0.2)
    assert in_order(table)
    assert every_row(table) == before
    assert table.check(deep=True).problems == ()
    assert table.recluster(final=True).commits == 0


def test_the_statement_reclusters_along_the_curve(memory_url: str) -> None:
    table = make(memory_url, step=0)
    outcome = tblctl.execute(f"OPTIMIZE TABLE '{memory_url}' RECLUSTER")
    assert outcome is not None
    assert outcome.committed_groups
    assert in_order(table)


def test_what_is_shown_of_any_table_is_shown_of_one_along_a_curve(memory_url: str, tmp_path: Any) -> None:
    table = make(memory_url, step=0)
    table.recluster(final=True)
    table.append(rows(90))
    assert table.suggest(["n = 1"]).cluster_by == (KEY,)
    assert [point.average_depth for point in table.depth_history(2)] == [pytest.approx(1.5, abs=0.5)] * 2
    table.picture(tmp_path / "t.svg")
    assert KEY in (tmp_path / "t.svg").read_text()
    assert table.estimate(days=1)
    before, after = table.compare(str(table.snapshot.sequence - 1), str(table.snapshot.sequence))
    assert before.info.average_depth < after.info.average_depth


def test_blocks_keep_the_curve_through_deletes_and_updates(memory_url: str) -> None:
    table = make(memory_url)
    table.delete("n = 3")
    table.update({"x": 1.5}, where="n = 2")
    assert table.info().unclustered_block_count == 0
    table.update({"customer": "customer 0"}, where="n = 1")
    table.append(rows(10_000))
    table.recluster(final=True)
    assert in_order(table)
    assert table.check(deep=True).problems == ()


def test_blocks_do_not_depend_on_the_number_of_tasks(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def contents(url: str, memory_bytes: int | None) -> list[list[str]]:
        table = make(url, "zorder(customer, n)")
        options = {} if memory_bytes is None else {"memory_bytes": memory_bytes}
        table.recluster(policy="full", options=options)
        listing = table._port.newest().listing(head(table).sort, None)
        read = table._native.storage.read
        blocks = [
            pq.read_table(pa.BufferReader(read(path))).to_pylist() for path in listing.paths.to_pylist()
        ]
        return sorted([[repr(row) for row in block] for block in blocks])

    assert contents(memory_url, None) == contents(memory_url + "/b", 4_000)


def test_row_groups_that_nothing_interleaves_with_are_copied(memory_url: str) -> None:
    table = make(memory_url, appends=4)
    table.recluster(final=True)
    table.append(rows(0, 3))
    before = every_row(table)
    outcome = table.recluster(policy="full")
    assert outcome.bytes_copied > 0
    assert every_row(table) == before
    assert in_order(table)
    assert table.check(deep=True).problems == ()


# -- altering the key ----------------------------------------------------------------------------------------------


def test_a_curve_is_set_on_a_table_with_rows_and_old_blocks_stay(memory_url: str) -> None:
    table = make(memory_url, "ts")
    paths = [block.path for block in table.files()]
    outcome = table.set_cluster_key("ZOrder( ts,customer )")
    assert (outcome.blocks_added, outcome.blocks_removed) == (0, 0)
    assert [block.path for block in table.files()] == paths
    assert table.cluster_by == ("zorder(ts, customer)",)
    assert table.info().unclustered_block_count == len(paths)
    before = every_row(table)
    table.recluster(final=True, options={"include_unclustered": True})
    assert in_order(table)
    assert every_row(table) == before


def test_history_says_the_key_as_it_is_typed(memory_url: str) -> None:
    table = make(memory_url, "ts", appends=1)
    table.set_cluster_key(KEY)
    newest, *_, first = table.history()
    assert newest.cluster_by == (KEY,)
    assert newest.detail["cluster_by"] == [KEY]
    assert first.cluster_by == ("ts",)


def test_same_makes_boundaries_from_the_rows_of_now_and_writes_no_block(memory_url: str) -> None:
    table = make(memory_url)
    old = head(table).sort
    table.append(rows(10_000, 400))
    paths = {block.path for block in table.files()}
    table.set_cluster_key(" SAME")
    new = head(table).sort
    assert (new.kind, new.terms) == (old.kind, old.terms)
    assert new.id == old.id + 1
    last_boundary = ranges_of(new.parameters).boundaries[0][-1].value
    assert last_boundary > 10_000 > ranges_of(old.parameters).boundaries[0][-1].value
    assert {block.path for block in table.files()} == paths
    assert table.info().unclustered_block_count == len(paths)
    table.recluster(policy="full", options={"include_unclustered": True})
    assert in_order(table)
    assert table.check(deep=True).problems == ()


def test_the_same_text_keeps_the_boundaries(memory_url: str) -> None:
    table = make(memory_url)
    before = head(table).sort
    table.append(rows(10_000))
    table.set_cluster_key("hilbert(ts,customer)")
    assert head(table).sort == before
    assert table.info().unclustered_block_count == 0


def test_a_column_called_same_is_still_a_key(memory_url: str) -> None:
    table = tblctl.create(memory_url, "same: int64, b: int64")
    table.append(pa.table({"same": [1, 2], "b": [3, 4]}))
    table.set_cluster_key("same")
    assert table.cluster_by == ("same",)
    table.set_cluster_key("hilbert(same, b)")
    table.set_cluster_key("same")
    assert (table.cluster_by, head(table).sort.id) == (("hilbert(same, b)",), 3)
    table.set_cluster_key('"same"')
    assert table.cluster_by == ("same",)


def test_a_curve_that_ended_leaves_the_snapshot_and_its_id_stays_taken(memory_url: str) -> None:
    table = make(memory_url)
    at_curve = head(table).sequence
    table.set_cluster_key("same")
    assert head(table).sorts.keys() == {2}
    table.set_cluster_key("ts")
    assert head(table).sorts.keys() == {3}
    table.drop_cluster_key()
    table.set_cluster_key(KEY)
    assert head(table).sorts.keys() == {3, 4}
    table.set_cluster_key("ts")
    assert (head(table).sort.id, head(table).next_sort_id) == (3, 5)
    assert table.check(deep=True).problems == ()
    document = json.loads(table._native.storage.read(snapshot_path(head(table).sequence)))
    assert (document["last_sort_id"], document["min_writer_version"]) == (4, 5)
    table.rollback(at_curve)
    assert head(table).sorts.keys() == {1, 3}
    assert table.info().unclustered_block_count == 0
    assert in_order_of_blocks(table)
    assert table.check(deep=True).problems == ()


def in_order_of_blocks(table: tblctl.Table) -> bool:
    """Return whether a recluster of all blocks, which believes their keys, leaves the rows along the curve."""
    table.recluster(policy="full")
    return in_order(table)


def test_a_sort_that_ended_and_left_is_not_brought_back_by_a_recluster(memory_url: str) -> None:
    table = make(memory_url, "ts", appends=1)
    here = table._port
    beside = here.newest().sort_by(KEY)
    here.replace(here.newest(), Replacement(removed=frozenset(), added=(), sorts=(beside,)))
    base = here.newest()
    assert base.sorts.keys() == {1, beside.id}
    table.set_cluster_key("n")
    table.set_cluster_key("ts")
    assert beside.id not in head(table).sorts
    with pytest.raises(ConflictError, match="it has ended"):
        here.replace(base, Replacement(removed=frozenset(), added=(), sorts=(beside,)))


def test_a_live_curve_beside_the_key_is_taken_as_the_key(memory_url: str) -> None:
    table = make(memory_url, "ts", appends=1)
    here = table._port
    beside = here.newest().sort_by(KEY)
    here.replace(here.newest(), Replacement(removed=frozenset(), added=(), sorts=(beside,)))
    assert here.newest().sort_by(KEY) == beside
    table.set_cluster_key(KEY)
    assert (head(table).sort, head(table).live_beside) == (beside, ())


# -- snapshots ------------------------------------------------------------------------------------------------------


def test_only_tables_with_a_curve_ask_for_a_newer_writer(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(memory_url, "ts", appends=1)
    document = json.loads(table._native.storage.read(snapshot_path(head(table).sequence)))
    assert (document["min_writer_version"], "last_sort_id" in document) == (2, False)
    table.set_cluster_key(KEY)
    document = json.loads(table._native.storage.read(snapshot_path(head(table).sequence)))
    assert document["min_writer_version"] == 5
    assert document["sorts"]["2"]["parameters"].keys() == {"bits", "types", "boundaries", "places"}
    monkeypatch.setattr(snapshot_file, "WRITER_VERSION", 4)
    with pytest.raises(UnsupportedFormatError, match="newer tblctl"):
        table.append(rows(0))


def test_a_snapshot_comes_back_as_it_was(memory_url: str) -> None:
    table = make(memory_url, "hilbert(x, customer, n)")
    snapshot = head(table)
    table.set_cluster_key("same")
    for each in (snapshot, head(table)):
        assert snapshot_file.decode(snapshot_file.encode_snapshot(each), each.sequence) == each


def test_the_largest_boundaries_take_40_kb_of_a_snapshot(memory_url: str) -> None:
    numbers = np.random.default_rng(1).integers(-(2**62), 2**62, (2, 5000))
    sample = pa.table({"a": numbers[0], "b": numbers[1]})
    table = tblctl.create(memory_url, sample.schema, cluster_by="hilbert(a, b)", sample=sample)
    assert 40_000 < len(table._native.storage.read(snapshot_path(1))) < 50_000


# -- the sample -----------------------------------------------------------------------------------------------------


def test_of_many_blocks_some_are_read_and_the_others_count_by_their_bounds(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_sample.sampling, "SAMPLED_PLACES", 4)
    table = make(memory_url, "ts", appends=10)
    opened = []
    real = key_sample.BlockFile
    monkeypatch.setattr(key_sample, "BlockFile", lambda *words: opened.append(words[1].path) or real(*words))
    table.set_cluster_key(KEY)
    assert len(opened) == 4
    times = ranges_of(head(table).sort.parameters).boundaries[0]
    assert (times[0].value, times[-1].value) == (0, 400)
    gaps = np.diff(times.cast(pa.int64()).to_numpy())
    assert gaps.max() <= 20, "blocks that were not read have boundaries too"


def test_rows_are_sampled_once_although_others_commit_meanwhile(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = make(memory_url, "ts"), tblctl.open(memory_url)
    real, sampled = layouts.ranges_of_table, []

    def beside_an_append(*words: Any) -> Any:
        sampled.append(other.append(rows(500)).snapshot)
        return real(*words)

    monkeypatch.setattr(layouts, "ranges_of_table", beside_an_append)
    outcome = table.set_cluster_key(KEY)
    assert (outcome.attempts, outcome.snapshot, len(sampled)) == (2, sampled[0] + 1, 1)
    assert table.cluster_by == (KEY,)


def test_a_file_is_sampled_by_row_groups(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sample.sampling, "SAMPLED_ROWS", 100)
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"a": range(3000), "b": range(3000)}), path, row_group_size=10)
    table = tblctl.create(tmp_path / "t", tblctl.read_schema(path), cluster_by="zorder(a, b)", sample=path)
    values = ranges_of(head(table).sort.parameters).boundaries[0].to_pylist()
    assert 40 <= len(values) <= 201
    assert values[0] < 200
    assert values[-1] > 2800


def test_an_arrow_file_and_rows_in_memory_are_samples_too(tmp_path: Any, memory_url: str) -> None:
    path = tmp_path / "e.arrow"
    with pa.ipc.new_file(path, SCHEMA) as file:
        file.write_table(rows(0))
    found = [
        head(tblctl.create(f"{memory_url}/{number}", SCHEMA, cluster_by=KEY, sample=sample)).sort
        for number, sample in enumerate([path, rows(0), rows(0).to_reader()])
    ]
    assert found[0] == found[1] == found[2]


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("hilbert(ts)", "2 to 4 columns, not 1"),
        ("hilbert(ts, customer, x, n, l)", "2 to 4 columns, not 5|has no order"),
        ("zorder(ts, l)", "'l' of type list<int8> has no order"),
        ("zorder(ts, s)", "struct"),
        ("zorder(ts, ts)", "column ts is given twice"),
        ("zorder(day(ts), n)", "plain columns, without transforms"),
        ("zorder(ts desc, n)", "plain columns, without directions"),
        ("zorder(ts, n) desc", "nothing beside it"),
        ("zorder(ts, n), x", "nothing beside it"),
        ("x, zorder(ts, n)", "whole cluster key"),
        ("hilbert(zorder(ts, n), x)", "plain columns"),
        ("zorder(ts, gone)", "no column 'gone'"),
        ("zorder(ts, n", "expected"),
        ("zorder()", "column's name"),
    ],
)
def test_a_wrong_curve_is_refused_and_nothing_changes(memory_url: str, key: str, words: str) -> None:
    schema = SCHEMA.append(pa.field("l", pa.list_(pa.int8()))).append(
        pa.field("s", pa.struct([("a", pa.int8())]))
    )
    with pytest.raises(InvalidKeyError, match=words):
        tblctl.create(memory_url, schema, cluster_by=key)
    with pytest.raises(TableNotFoundError):
        tblctl.open(memory_url)
    table = tblctl.create(memory_url, schema, cluster_by="n")
    with pytest.raises(InvalidKeyError, match=words):
        table.set_cluster_key(key)
    assert (table.snapshot.sequence, table.cluster_by) == (1, ("n",))


def test_five_columns_are_too_many(memory_url: str) -> None:
    with pytest.raises(InvalidKeyError, match="2 to 4 columns, not 5"):
        tblctl.create(
            memory_url, "a: int8, b: int8, c: int8, d: int8, e: int8", cluster_by="zorder(a, b, c, d, e)"
        )


def test_a_curve_needs_rows(memory_url: str) -> None:
    with pytest.raises(InvalidKeyError, match=r"a new table has none: create the table `--like` a file"):
        tblctl.create(memory_url, SCHEMA, cluster_by=KEY)
    with pytest.raises(InvalidKeyError, match="the table given has none"):
        tblctl.create(memory_url, SCHEMA, cluster_by=KEY, sample=rows(0, 0))
    table = tblctl.create(memory_url, SCHEMA)
    with pytest.raises(InvalidKeyError, match="append rows first"):
        table.set_cluster_key(KEY)
    with pytest.raises(InvalidKeyError, match="append rows first"):
        table.info(columns=KEY)
    assert table.snapshot.sequence == 1


def test_a_sample_without_a_column_of_the_curve_is_refused(memory_url: str) -> None:
    with pytest.raises(InvalidDataError, match="the table given has no column customer"):
        tblctl.create(memory_url, SCHEMA, cluster_by=KEY, sample=rows(0).drop(["customer"]))
    strange = rows(0).set_column(0, "ts", pa.array(["no time"] * 40))
    with pytest.raises(InvalidDataError, match="cannot be taken from the table given"):
        tblctl.create(memory_url, SCHEMA, cluster_by=KEY, sample=strange)
    assert not tblctl.exists(memory_url)


@pytest.mark.parametrize("key", [None, "ts"])
def test_same_without_a_curve_is_refused(memory_url: str, key: str | None) -> None:
    table = tblctl.create(memory_url, SCHEMA, cluster_by=key or ())
    with pytest.raises(InvalidKeyError, match=f"the cluster key is {'ts' if key else 'not set'}"):
        table.set_cluster_key("same")
    assert table.snapshot.sequence == 1


def test_a_column_of_the_curve_is_renamed_and_widened_but_not_dropped(memory_url: str) -> None:
    table = make(memory_url, "hilbert(n, ts)")
    table.rename_column("n", 'a "number"')
    assert table.cluster_by == ('hilbert("a ""number""", ts)',)
    table.widen_column('a "number"', "int64")
    assert table.info().unclustered_block_count == 0
    with pytest.raises(InvalidKeyError, match="cannot be dropped: the cluster key"):
        table.drop_column("ts")
    table.append(rows(0).rename_columns(["ts", "customer", "x", 'a "number"']))
    table.recluster(policy="full")
    assert in_order(table)
    assert table.check(deep=True).problems == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bits": 17}, "17 bits"),
        ({"bits": "4"}, "number of bits"),
        ({"bits": 2}, "boundaries of a column, 2 bits hold 1"),
        ({"types": ["int64"]}, "types of 1 columns"),
        ({"types": ["int64", "list<int8>"]}, "not a type of bounds"),
        ({"types": ["int64", "dictionary<int8, string>"]}, "type"),
        ({"boundaries": [[1, 2], [3, 3]]}, "do not ascend"),
        ({"boundaries": [[1, 2], [3, None]]}, "array of boundaries"),
        ({"boundaries": [[1, 2], ["a"]]}, "JSON form of int64"),
        ({"boundaries": [[1, 2], 5]}, "array of boundaries"),
        ({"boundaries": [[1, 2], [{}]]}, "expected numbers and texts"),
        ({"boundaries": [[1, 2]], "types": ["int64"], "places": [[]]}, "curve of 1 columns"),
        ({"places": [[]]}, "places of 1 columns"),
        ({"places": [[], [0, 1]]}, "2 places for the 3 ranges"),
        ({"places": [[], [0, 1, 1.0]]}, "as many whole numbers"),
        ({"places": [[], [0, 1, True]]}, "as many whole numbers"),
        ({"places": [[], [0, 2, 1]]}, "places of a column do not ascend"),
        ({"places": [[], [-1, 2, 3]]}, "places of a column do not ascend"),
        ({"places": [[], [0, 2, 14]]}, "to at most 13"),
        ({"places": [[], 5]}, "arrays of types, boundaries and places"),
        ({"more": 1}, "expected bits, types, boundaries and places"),
    ],
)
def test_boundaries_that_no_curve_has_are_refused(change: dict[str, Any], words: str) -> None:
    parameters = {
        "bits": 4,
        "types": ["int64", "int64"],
        "boundaries": [[1, 2], [3, 4]],
        "places": [[], []],
    } | change
    terms = [dataclasses.asdict(Term(column_id=number)) for number in (1, 2)]
    stored = {"id": 1, "kind": "hilbert", "terms": terms, "parameters": parameters}
    with pytest.raises(ValueError, match=words):
        Sort.from_json(json.loads(json.dumps(stored)))


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ((Term(column_id=1), Term(column_id=1)), "named twice"),
        ((Term(column_id=1), Term(column_id=2, descending=True)), "as they are"),
        ((Term(column_id=1), Term(column_id=2), Term(column_id=3)), "boundaries of 2 columns for 3"),
    ],
)
def test_terms_that_no_curve_has_are_refused(terms: tuple[Term, ...], words: str) -> None:
    parameters = (
        ("bits", 4),
        ("types", ("int64", "int64")),
        ("boundaries", ((1,), (2,))),
        ("places", ((), (3, 9))),
    )
    with pytest.raises(ValueError, match=words):
        Sort(id=1, kind="zorder", terms=terms, parameters=parameters)


# -- figures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CURVES)
def test_info_measures_a_curve_that_the_table_does_not_have(memory_url: str, kind: str) -> None:
    table = make(memory_url, "ts")
    before = head(table)
    found = table.info(columns=f"{kind}(ts, customer)")
    assert found.cluster_by_keys == (f"{kind}(ts, customer)",)
    assert found.average_depth > 1
    assert (found.unclustered_block_count, found.unknown_block_count) == (0, 0)
    assert head(table) == before


def test_info_says_how_many_rows_lie_beyond_the_boundaries(memory_url: str) -> None:
    table = make(memory_url)
    assert table.info().outside == (("ts", 0.0), ("customer", 0.0))
    table.append(rows(10_000, 200))
    assert table.info().outside == (("ts", 0.5), ("customer", 0.0))
    assert table.info().to_dict()["outside"] == {"ts": 0.5, "customer": 0.0}
    assert dict(table.info(where="ts < '1970-01-01T00:00:00.005'").outside)["ts"] == 0.0
    table.set_cluster_key("same")
    assert table.info().outside == (("ts", 0.0), ("customer", 0.0))
    assert "outside" not in table.info(columns="ts").to_dict()


def test_a_plan_of_a_curve_is_kept_as_text_and_carried_out(memory_url: str) -> None:
    table = make(memory_url, "ts", block_rows=1000)
    plan = table.plan("size", options={"sort_columns": "zorder(customer, n)"})
    (beside,) = plan.sorts
    assert beside.kind == "zorder"
    before = every_row(table)
    outcome = table.recluster(tblctl.Plan.from_json(plan.to_json()))
    assert outcome.committed_groups == 1
    assert head(table).live_sorts[beside.id] == beside
    assert every_row(table) == before
    assert table.check(deep=True).problems == ()
