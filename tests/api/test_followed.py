"""`RollingAverages` over several rounds: its figures always equal those of a new measurement."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tblctl
import tblctl.maintain.averages as averages_module
import tblctl.maintain.view as view_module
from tblctl.maintain.averages import Indexing, NumberedBlocks, RollingAverages
from tblctl.maintain.recluster import Committed, Done, ReclusterJob, outcome_of, step
from tblctl.maintain.request import Request
from tblctl.maintain.view import Averages, View
from tblctl.merger.engines.local import LocalEngine
from tblctl.tableformat.formats import open_port
from tblctl.tableformat.keys.order import key_places, sort_indices
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.port import Listing

KEYS = pa.schema([("0", pa.string()), ("1", pa.float64())])
SORT = Sort(id=1, terms=(Term(column_id=1, descending=True), Term(column_id=2, nulls_first=True)))
VALUES = (["a", "ab", "b", "ba", "c", None], [-1.0, -0.0, 0.0, 0.5, 2.0, float("nan"), None])


ALWAYS = Indexing(least_blocks=0, least_unchanged=0, bulk_share=0)


def random_ranges(rng: np.random.Generator, count: int) -> tuple[pa.Table, pa.Table]:
    """Return least and greatest keys of blocks, in order of SORT within each pair."""
    every = pa.Table.from_pylist([{"0": a, "1": b} for a, b in itertools.product(*VALUES)], KEYS)
    every = every.take(sort_indices(every, SORT))
    ends = np.sort(rng.integers(0, every.num_rows, (2, count)), axis=0)
    return every.take(ends[0]), every.take(ends[1])


def view_of(rng: np.random.Generator, count: int) -> View:
    low, high = random_ranges(rng, count)
    ones = np.ones(count, np.int64)
    listing = Listing(
        paths=pa.array([f"first-{number}" for number in range(count)], pa.string()),
        low=low,
        high=high,
        own=rng.random(count) < 0.8,
        sort_id=ones,
        known=rng.random(count) < 0.8,
        exact=ones == 1,
        level=ones,
        stored_rows=ones,
        size_bytes=ones,
        decoded_bytes=ones,
        same_key_rows=ones,
        matched=None,
    )
    return View(
        schema=Schema.create(pa.schema([("s", pa.string()), ("f", pa.float64())])), sort=SORT, listing=listing
    )


def in_another_sort(records: list[BlockRecord], sort_id: int = 2) -> list[BlockRecord]:
    """Return blocks in the order of a sort whose keys have another type, and are one column wide."""
    key = (pa.scalar(7, pa.int64()),)
    return [replace(record, cluster_key_id=sort_id, key_min=key, key_max=key) for record in records]


def records_of(rng: np.random.Generator, count: int, name: str) -> list[BlockRecord]:
    low, high = random_ranges(rng, count)
    return [
        BlockRecord(
            path=f"{name}-{number}",
            row_count=1,
            size_bytes=1,
            uncompressed_bytes=1,
            decoded_bytes=1,
            schema_id=1,
            level=2,
            run_id=None,
            cluster_key_id=1,
            key_min=tuple(column[number] for column in low.columns),
            key_max=tuple(column[number] for column in high.columns),
        )
        for number in range(count)
    ]


def some_paths(rng: np.random.Generator, view: View, share: float) -> frozenset[str]:
    return frozenset(path for path in view.listing.paths.to_pylist() if rng.random() < share)


@pytest.mark.parametrize("seed", range(12))
def test_numbered_blocks_have_the_figures_of_the_view(seed):
    print(f"seed {seed}")
    # Every other time numbers are so few that they run out now and then.
    indexing = replace(ALWAYS, last_number=2**10) if seed % 2 else ALWAYS
    rng = np.random.default_rng(seed)
    view = view_of(rng, 12)
    blocks, used_up = NumberedBlocks(view, indexing), 0
    for number in range(8):
        removed = some_paths(rng, view, 0.2)
        added = records_of(rng, int(rng.integers(0, 6)), f"step-{number}")
        view = view.replaced(removed, added)
        if not blocks.replace(removed, added):
            blocks, used_up = NumberedBlocks(view, indexing), used_up + 1
        blocks._index._check()
        assert blocks.averages() == view.averages
    assert used_up == 0 or seed % 2


@pytest.mark.parametrize("seed", range(6))
def test_blocks_of_another_sort_are_not_measured_when_they_come_nor_when_they_go(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    view = view_of(rng, 12)
    blocks = NumberedBlocks(view, ALWAYS)
    for number in range(6):
        removed = some_paths(rng, view, 0.3)
        ours, theirs = records_of(rng, 2, f"ours-{number}"), records_of(rng, 3, f"theirs-{number}")
        added = [*ours[:1], *in_another_sort(theirs), *ours[1:]]
        view = view.replaced(removed, added)
        assert blocks.replace(removed, added)
        blocks._index._check()
        assert blocks.averages() == view.averages
    listing = view.listing
    assert 2 in listing.sort_id
    assert not (listing.own | listing.known | listing.exact)[listing.sort_id == 2].any()
    assert set(listing.same_key_rows[listing.sort_id == 2].tolist()) <= {-1}
    everything = frozenset(listing.paths.to_pylist())
    for added in ([], in_another_sort(records_of(rng, 2, "last"))):
        emptied = NumberedBlocks(view, ALWAYS)
        assert emptied.replace(everything, added)
        assert emptied.averages() == view.replaced(everything, added).averages


@pytest.mark.parametrize("indexed", [True, False])
def test_each_commit_of_a_round_converts_only_its_own_blocks(indexed, monkeypatch):
    converted = []
    whole = view_module.listed
    for module in (view_module, averages_module):
        monkeypatch.setattr(
            module, "listed", lambda records, *more: converted.extend(records) or whole(records, *more)
        )
    rng = np.random.default_rng(7)
    view = view_of(rng, 300)
    paths = view.listing.paths.to_pylist()
    found = followed_at(view, indexing=ALWAYS if indexed else Indexing())
    for number in range(60):
        removed, added = frozenset(paths[5 * number : 5 * number + 5]), records_of(rng, 2, f"c{number}")
        found.replaced(removed, added)
        found.keep(str(6 + number), str(5 + number))
    assert len(converted) == 2 * 60


def test_an_index_that_runs_out_of_numbers_goes_on_from_all_that_was_committed():
    rng = np.random.default_rng(8)
    view = view_of(rng, 18)
    paths = view.listing.paths.to_pylist()
    found = followed_at(view, indexing=replace(ALWAYS, last_number=60))
    lost = 0
    for number in range(6):
        removed, added = frozenset(paths[3 * number : 3 * number + 3]), records_of(rng, 6, f"c{number}")
        view = view.replaced(removed, added)
        assert found.replaced(removed, added) == view.averages
        lost += found._blocks is None
        found.keep(str(6 + number), str(5 + number))
    assert 0 < lost < 6


def test_an_edit_without_room_for_its_keys_is_refused_and_changes_nothing():
    rng = np.random.default_rng(3)
    view = view_of(rng, 30)
    blocks = NumberedBlocks(view, replace(ALWAYS, last_number=30))
    before = blocks.averages()
    removed, added = some_paths(rng, view, 0.5), records_of(rng, 40, "new")
    assert not blocks.replace(removed, added)
    assert blocks.averages() == before == view.averages
    assert RollingAverages(several=True).begin("5", view) == before


def followed_at(view: View, version: str = "5", indexing: Indexing = ALWAYS) -> RollingAverages:
    found = RollingAverages(several=True, indexing=indexing)
    assert found.begin(version, view) == view.averages
    return found


@pytest.fixture
def measured(monkeypatch):
    """Every time a whole view is measured."""
    calls = []
    whole = View.__dict__["averages"].func

    def averages(self: View) -> Averages:
        calls.append(self)
        return whole(self)

    counted = cached_property(averages)
    counted.__set_name__(View, "averages")
    monkeypatch.setattr(View, "averages", counted)
    return calls


def test_a_table_that_only_we_change_is_measured_once(measured):
    rng = np.random.default_rng(1)
    view = view_of(rng, 20)
    found = RollingAverages(several=True, indexing=ALWAYS)
    found.begin("5", view)
    for sequence in range(6, 10):
        removed, added = some_paths(rng, view, 0.2), records_of(rng, 3, f"v{sequence}")
        figures = found.replaced(removed, added)
        found.keep(str(sequence), str(sequence - 1))
        view = view.replaced(removed, added)
        assert found.begin(str(sequence), view) == figures
    assert len(measured) == 1
    assert figures == view.averages


@pytest.mark.parametrize("parent", [None, "6"], ids=["it was not committed", "another writer was first"])
@pytest.mark.parametrize("newest", ["5", "7"])
def test_what_did_not_become_of_the_table_is_forgotten(parent, newest):
    rng = np.random.default_rng(2)
    view = view_of(rng, 20)
    found = followed_at(view)
    found.replaced(some_paths(rng, view, 0.5), records_of(rng, 3, "lost"))
    if parent:
        found.keep("7", parent)
    other = view.replaced(some_paths(rng, view, 0.3), records_of(rng, 2, "other"))
    assert found.begin(newest, other) == other.averages
    removed, added = some_paths(rng, other, 0.3), records_of(rng, 2, "next")
    assert found.replaced(removed, added) == other.replaced(removed, added).averages


def test_a_round_that_loses_groups_to_a_conflict_is_measured_without_them():
    rng = np.random.default_rng(4)
    view = view_of(rng, 20)
    found = followed_at(view)
    found.replaced(some_paths(rng, view, 0.5), records_of(rng, 6, "all"))
    removed, added = some_paths(rng, view, 0.2), records_of(rng, 2, "salvaged")
    after = view.replaced(removed, added)
    assert found.replaced(removed, added) == after.averages
    found.keep("6", "5")
    assert found.begin("6", after) == after.averages
    removed, added = some_paths(rng, after, 0.2), records_of(rng, 2, "next")
    assert found.replaced(removed, added) == after.replaced(removed, added).averages


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(
    "lost", [None, 0, 2], ids=["no conflict", "the first conflicts", "the last conflicts"]
)
def test_a_round_of_several_commits_is_measured_after_each(indexed, lost, measured):
    rng = np.random.default_rng(6)
    view = view_of(rng, 30)
    paths = view.listing.paths.to_pylist()
    found = followed_at(view, indexing=ALWAYS if indexed else Indexing())
    for number in range(3):
        removed, added = frozenset(paths[5 * number : 5 * number + 5]), records_of(rng, 4, f"c{number}")
        if number == lost:
            found.replaced(removed | set(paths[20:25]), records_of(rng, 8, "lost"))
        view = view.replaced(removed, added)
        assert found.replaced(removed, added) == view.averages
        found.keep(str(6 + number), str(5 + number))
    counted = len(measured)
    assert found.begin("8", view) == view.averages
    assert len(measured) == counted, "known without measuring"


@pytest.mark.parametrize(
    ("several", "blocks", "share", "indexed"),
    [(True, 20, 20, True), (True, 20, 21, False), (True, 21, 20, False), (False, 20, 20, False)],
    ids=["worth it", "too large an edit", "too small a table", "one round"],
)
def test_an_index_is_made_only_where_it_is_worth_it(several, blocks, share, indexed, measured):
    view = view_of(np.random.default_rng(5), 20)
    indexing = Indexing(least_blocks=blocks, least_unchanged=share, bulk_share=0)
    found = RollingAverages(several=several, indexing=indexing)
    found.begin("5", view)
    found.replaced(frozenset(["first-3"]), [])
    assert len(measured) == (1 if indexed else 2)


def final_figures(url: str, indexing: Indexing) -> tuple[Any, ...]:
    """Recluster a table in many small rounds; return the figures reported in between."""
    schema = pa.schema([("k", pa.int64())])
    table = tblctl.create(url, schema, cluster_by=["k"], options={"block_rows": 4})
    for start in range(24):
        table.append(pa.table({"k": [start, start + 10, start + 20, start + 30]}, schema=schema))
    request = Request.of(policy=None, condition=lambda _: None, options={"max_blocks": 6}, final=True)
    job = ReclusterJob(port=open_port(url), request=request, engine=lambda _: LocalEngine())
    taken = Committed(
        state=replace(job.start(), averages=RollingAverages(several=True, indexing=indexing)), more=True
    )
    while not isinstance(taken, Done):
        taken = step(job, taken.state)
    outcome = outcome_of(job, taken.state, 0.0)
    info = table.info()
    assert (outcome.depth_after, outcome.overlaps_after) == (info.average_depth, info.average_overlaps)
    names = ("depth_before", "depth_after", "overlaps_before", "overlaps_after")
    runs = [found.detail["recluster"] for found in table.history() if found.operation == "recluster"]
    history = [{name: run[name] for name in names} for run in runs]
    return outcome.rounds, outcome.depth_before, outcome.overlaps_before, history


def test_final_says_the_same_with_an_index_as_without(memory_url, measured):
    without = final_figures(f"{memory_url}/without", Indexing())
    rounds = without[0]
    assert rounds > 3
    assert len(measured) == rounds + 1
    measured.clear()
    assert final_figures(f"{memory_url}/with", ALWAYS) == without
    assert len(measured) == 1


@pytest.mark.parametrize("seed", range(5))
def test_places_are_those_of_sorting_keys_in(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    every = pa.concat_tables(random_ranges(rng, 40)).combine_chunks()
    every = every.take(sort_indices(every, SORT))
    keys = random_ranges(rng, 30)[0]
    for count in (0, 1, 2, 33, 80):
        ordered = every.slice(0, count)
        places, equal = key_places(keys, ordered, SORT)
        for number, (place, is_known) in enumerate(zip(places.tolist(), equal.tolist(), strict=True)):
            key = keys.slice(number, 1)
            # Stable: among equal keys, the key given last comes last.
            behind = sort_indices(pa.concat_tables([ordered, key]), SORT).to_pylist().index(count)
            before = sort_indices(pa.concat_tables([key, ordered]), SORT).to_pylist().index(0)
            assert (place, is_known) == (before, behind > before)
