"""The simulator of workloads: rows stay, costs are those of the model, and bounds that papers prove hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.workload.boundary import Boundary
from benchmarks.workload.contenders import ByKey, Nothing, Ours
from benchmarks.workload.table import READ_SECONDS, SORT_SHARE, TrialTable
from benchmarks.workload.traces import TRACES, Batch, Question, Trace
from benchmarks.workload.trial import Setting, run
from benchmarks.workload.wair import Wair

ROWS = 8


def setting(name, batches):
    return Setting.of(TRACES[name], np.random.default_rng, block_rows=ROWS, most_batches=batches)


def trace_of(*batches):
    return Trace(
        name="given",
        columns=("a",),
        batches=lambda _rng, _rows: iter(batches),
        seed=0,
        watched=0,
        acted=0,
        counted=0,
        key=lambda _: (0,),
    )


@pytest.mark.parametrize("key", [(0,), (0, 1)])
def test_a_rewrite_keeps_rows_and_touches_no_other_block(key):
    rng = np.random.default_rng(1)
    rows = rng.random((2, 20 * ROWS))
    table = TrialTable(2, ROWS)
    table.append(rows)
    before = table._rows.copy()
    chosen = np.arange(3, 15)
    table.rewrite(chosen, key)
    others = np.setdiff1d(np.arange(20), chosen)
    assert (table._rows[:, others] == before[:, others]).all()
    assert sorted(map(tuple, table._rows.reshape(2, -1).T)) == sorted(map(tuple, rows.T))
    assert (table.low == table._rows.min(axis=2)).all()
    assert table.rewritten == 12


def test_costs_are_those_of_the_model():
    rows = np.arange(4.0 * ROWS)[None, :]
    question = Question(ranges={0: (0.0, 11.0)}, share=0.5)
    given = Setting.of(trace_of(Batch(rows=rows, questions=(question,))), lambda _: None, block_rows=ROWS)
    cost = run(given, Nothing())
    assert cost.reading == (2 * 0.5 * READ_SECONDS,)
    assert cost.matching == pytest.approx((0.015 * 1.5,))
    assert cost.rewriting == (0.0,)
    assert run(given, ByKey(given.trace)).rewriting == pytest.approx((SORT_SHARE * 4 * 1.6,))
    assert given.oracle() == pytest.approx(2.5 * 0.5 * READ_SECONDS + 0.015 * 1.5)


def test_boundary_rewrites_no_more_than_theorem_4_allows():
    rng = np.random.default_rng(2)
    blocks, queries = 150, 100
    questions = tuple(
        Question(ranges={0: (start, start + rng.random() / 4)}, share=1.0) for start in rng.random(queries)
    )
    trace = trace_of(Batch(rows=rng.random((1, blocks * ROWS)), questions=questions))
    given = Setting.of(trace, lambda _: None, block_rows=ROWS)
    cost = run(given, Boundary(trace=trace, most=None, start=None, skips_lone=False))
    assert 0 < cost.rewritten <= (blocks + queries) * math.log2(queries)


def test_the_warm_start_bounds_what_the_first_queries_rewrite():
    rng = np.random.default_rng(3)
    questions = (Question(ranges={0: (0.4, 0.5)}, share=1.0),) * 2
    trace = trace_of(Batch(rows=rng.random((1, 100 * ROWS)), questions=questions))
    given = Setting.of(trace, lambda _: None, block_rows=ROWS)
    assert run(given, Boundary(trace=trace, start=10)).rewritten == 20


def test_only_without_the_correction_is_a_sorted_table_rewritten():
    rows = np.arange(32.0 * ROWS)[None, :]
    questions = (Question(ranges={0: (ROWS / 2, 9.5 * ROWS)}, share=1.0),) * 40
    trace = trace_of(Batch(rows=rows, questions=questions))
    given = Setting.of(trace, lambda _: None, block_rows=ROWS)
    assert run(given, Wair(trace=trace)).rewritten == 0
    assert run(given, Wair(trace=trace, skips_lone=False)).rewritten > 0
    assert run(given, Ours(trace=trace)).rewritten == 0


def test_a_budget_of_wair_is_never_exceeded():
    given = setting("alternating", 8)
    bound = Wair(trace=given.trace, allowance=0.5)
    cost = run(given, bound)
    queries = 8 * 16
    saved = sum(run(given, Nothing()).reading) - sum(cost.reading)
    assert 0 < sum(cost.rewriting) <= saved + 0.5 * queries


def test_halves_that_are_asked_differently_are_rewritten_about_once():
    given = setting("split", 15)
    cost = run(given, Ours(trace=given.trace))
    assert sum(cost.reading[-3:]) < 0.15 * sum(run(given, Nothing()).reading[-3:])
    assert cost.rewritten <= 1.1 * given.blocks


def test_a_seed_gives_one_trace():
    one, other = setting("DSB", 3), setting("DSB", 3)
    assert all((a.rows == b.rows).all() for a, b in zip(one.batches, other.batches, strict=True))
    assert [batch.questions for batch in one.batches] == [batch.questions for batch in other.batches]
