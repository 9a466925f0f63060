"""Traces, and what policies do on them: the figures are those of real tables."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import tblctl
from tblctl.selector.draft import Draft
from tblctl.selector.traces.curve import Curve, floor, floor_curve
from tblctl.selector.traces.events import BLOCK_ROWS, TRACES, Event
from tblctl.selector.traces.replay import Replayed, by_policy, replayed
from tblctl.selector.traces.rivals import Binomial, RewriteAll, digits_of, dremio, hudi
from tblctl.selector.traces.table import KeyTable, as_tables_cut, equal_parts


def first(name, count, **more):
    """Return the first events of a trace."""
    return list(itertools.islice(TRACES[name].events(np.random.default_rng(7), **more), count))


def nothing(_view):
    return ()


def everything(view):
    """Merge all that is not one run."""
    return (
        (Draft(blocks=np.arange(len(view)), output_level=1, why=""),)
        if len(set(view.run.tolist())) > 1
        else ()
    )


@pytest.mark.parametrize("name", TRACES)
def test_a_seed_gives_one_trace(name):
    for one, other in zip(first(name, 40), first(name, 40), strict=True):
        assert one.delete_below == other.delete_below
        assert [keys.tolist() for keys in one.runs] == [keys.tolist() for keys in other.runs]


@pytest.mark.parametrize(
    ("name", "events"), [("uniform", 256), ("burst, then silence", 768), ("small batches", 512)]
)
def test_a_trace_has_its_events(name, events):
    found = list(TRACES[name].events(np.random.default_rng(0)))
    assert len(found) == events
    assert sum(event.is_measured for event in found) == events // 8


def test_blocks_sorted_alone_are_runs_of_their_own():
    assert [len(event.runs) for event in first("uniform", 2)] == [1, 1]
    assert [len(event.runs) for event in first("uniform", 2, sorted_whole=False)] == [4, 4]


def test_rows_are_rewritten_as_often_as_they_are_merged():
    found = replayed(first("uniform", 4), everything)
    rows = 4 * BLOCK_ROWS
    assert found.ingested_rows == (rows,) * 4
    assert found.rewritten_rows == (0, 2 * rows, 3 * rows, 4 * rows)
    assert found.rounds == 3
    assert found.rewritten == (5 / 3 + 9 / 4) / 2


def test_measures_of_a_table_that_is_never_merged_count_its_runs():
    found = replayed(first("uniform", 16), nothing)
    (_, last) = found.measured
    assert (last.event, last.p99_depth) == (15, 16)
    assert last.depth == pytest.approx(16, abs=0.5)
    assert last.point_blocks == pytest.approx(16, abs=0.7)
    assert last.range_share > 16
    assert replayed(first("uniform", 16), everything).measured[-1].range_share < 3


def test_deleted_rows_vanish_without_a_rewrite():
    table = KeyTable()
    table.ingest(Event(runs=(np.arange(1000.0),)))
    assert table.ingest(Event(delete_below=300.5)) == 0
    assert (table.low.min(), int(table.rows.sum())) == (301.0, 699)
    assert table.rows.tolist() == [199, 250, 250]


def test_full_blocks_of_one_key_are_not_measured():
    table = KeyTable()
    table.ingest(Event(runs=(np.full(600, 0.5), np.arange(100.0))))
    assert table.rows.tolist() == [200, 200, 200, 100]
    assert table.is_measured.tolist() == [True, True, True, True]
    table = KeyTable()
    table.ingest(Event(runs=(np.full(512, 0.5), np.arange(100.0))))
    assert table.is_measured.tolist() == [False, False, True]


def test_merges_cut_rows_into_equal_parts():
    assert equal_parts(600) == (200, 200, 200)
    assert equal_parts(256) == (256,)
    assert as_tables_cut(256 * 2 + 250) == (256, 256, 250)


def test_a_policy_that_never_stops_is_an_error():
    with pytest.raises(RuntimeError, match="event 0: there is still something to merge"):
        replayed(
            first("uniform", 1), lambda view: (Draft(blocks=np.arange(len(view)), output_level=1, why=""),)
        )


@pytest.mark.parametrize(
    ("policy", "options", "below"), [("runs", {"max_groups": 1}, 0.1), ("levels", {"threshold": 2}, None)]
)
def test_a_real_table_has_the_figures_of_the_simulation(policy, options, below, tmp_path):
    events = first("uniform", 12)
    events[6] = replace(events[6], delete_below=below)
    table = tblctl.create(
        str(tmp_path / "t"), "k: double", cluster_by="k", options={"block_rows": BLOCK_ROWS}
    )
    rewritten, depths = [], []
    for event in events:
        if event.delete_below is not None:
            table.delete(f"k < {event.delete_below!r}")
        for keys in event.runs:
            table.append(pa.table({"k": keys}))
        rewritten.append(0)
        while (plan := table.plan(policy, options=options)).groups:
            rewritten[-1] += sum(group.rows for group in plan.groups)
            table.recluster(plan)
        depths.append(table.info().average_depth)
    found = replayed(events, by_policy(policy, **options), cut=as_tables_cut)
    assert found.rewritten_rows == tuple(rewritten)
    assert sum(rewritten) > 0
    assert found.measured[0].depth == pytest.approx(depths[7], abs=1e-4)


def test_runs_rewrites_less_than_levels_at_equal_depth():
    def curve(policy, knobs, name):
        runs = [replayed(first("uniform", 96), by_policy(policy, **{name: knob})) for knob in knobs]
        return Curve(points=tuple((run.depth, run.rewritten) for run in runs))

    ours = curve("runs", (3, 4, 5, 6, 7), "target_depth").at(4)
    assert ours < 0.8 * curve("levels", (1, 2, 3), "threshold").at(4)
    assert ours > floor_curve(96, (0.1, 0.5, 1, 2, 4, 8)).at(4)


def test_dremios_rule_merges_until_the_target():
    found = replayed(first("uniform", 16), dremio(4))
    assert max(item.depth for item in found.measured) <= 4
    assert replayed(first("uniform", 3), dremio(4)).rounds == 0


@pytest.mark.parametrize(
    ("number", "weights"), [(1, [1]), (3, [1, 1, 1]), (4, [4]), (5, [4, 1]), (7, [4, 3])]
)
def test_numbers_have_binomial_digits(number, weights):
    assert digits_of(number, 3) == weights


def test_binomial_runs_are_never_more_than_the_digits():
    for digits in (3, 5):
        found = replayed(first("uniform", 40), Binomial(digits))
        assert max(item.p99_depth for item in found.measured) <= digits
    assert (
        replayed(first("uniform", 40), Binomial(5)).rewritten
        < replayed(first("uniform", 40), Binomial(3)).rewritten
    )


def test_a_curve_is_read_between_its_knobs():
    curve = Curve(points=((2.0, 6.0), (4.0, 4.0), (8.0, 2.0)))
    assert (curve.at(3), curve.at(6), curve.at(9), curve.at(1)) == (5.0, 3.0, None, None)
    assert Curve(points=()).at(3) is None


def test_the_floor_is_what_trying_all_merges_finds():
    """Runs of n appends, oldest first; after an append, any suffix may be merged into one."""

    def best(appends, price):
        states = {(): 0.0}
        for _ in range(appends):
            following = {}
            for runs, cost in states.items():
                for kept in range(len(runs) + 1):
                    rest = sum(runs[kept:]) + 1
                    state = (*runs[:kept], rest)
                    total = cost + (rest if kept < len(runs) else 0) + price * len(state)
                    following[state] = min(following.get(state, math.inf), total)
            states = following
        return min(states.values())

    for appends, price in itertools.product((1, 2, 5, 9), (0.3, 1.0, 4.0)):
        depth, rewritten = floor(appends, price)
        ends = range(max(appends // 2, 1), appends + 1)
        wanted = np.mean([best(end, price) / end for end in ends])
        assert rewritten + price * depth == pytest.approx(wanted)


def test_figures_are_of_the_last_three_quarters():
    found = replayed(first("uniform", 32), nothing)
    assert isinstance(found, Replayed)
    assert [item.event for item in found.measured] == [7, 15, 23, 31]
    assert found.depth == pytest.approx(np.mean([item.depth for item in found.measured[1:]]))


def test_new_blocks_are_sorted_together_once_by_hudis_rule():
    found = replayed(first("uniform", 10), hudi(16))
    rows = 4 * BLOCK_ROWS
    assert found.rewritten_rows == (0, 0, 0, 4 * rows, 0, 0, 0, 4 * rows, 0, 0)


def test_the_whole_table_is_sorted_after_every_so_many_appends():
    found = replayed(first("uniform", 7), RewriteAll(3))
    rows = 4 * BLOCK_ROWS
    assert found.rewritten_rows == (0, 0, 3 * rows, 0, 0, 6 * rows, 0)


@pytest.mark.parametrize(
    ("policy", "options"),
    [("levels", {"threshold": 2}), ("runs", {"target_depth": 3}), ("depth", {"clustering_depth": 3})],
)
def test_no_rows_are_rewritten_without_fewer_overlaps(policy, options):
    """Counts the rows of merges after which as many pairs of blocks overlap as before."""
    for name in ("uniform", "time-correlated", "hot key"):
        table, choose = KeyTable(), by_policy(policy, **options)
        rewritten = in_vain = 0
        for event in first(name, 40):
            table.ingest(event)
            while drafts := choose(table.view()):
                for draft in drafts[:1]:  # the next ones are chosen anew
                    before = overlapping_pairs(table)
                    rows = table.merge([draft])
                    rewritten += rows
                    in_vain += rows * (overlapping_pairs(table) >= before)
        assert rewritten > 0
        assert in_vain == 0, name


def overlapping_pairs(table):
    mask = table.is_measured
    low, high = table.low[mask], table.high[mask]
    return int(((low[:, None] <= high) & (low <= high[:, None])).sum() - low.size) // 2
