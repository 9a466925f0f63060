"""What a recluster costs, before and after: plans, outcomes and histories of real tables, and budgets of whole runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from profiles import cases

import tblctl
from tblctl.cli.main import application
from tblctl.maintain.experience import rates_at_hand, rates_of, runs_of, starting_rates
from tblctl.maintain.recluster import recluster
from tblctl.maintain.request import Request
from tblctl.maintain.spending import Spent, left_of
from tblctl.merger.engines.local import LocalEngine
from tblctl.policies import Budget
from tblctl.selector.policy import Decision
from tblctl.selector.pricing.rates import DEFAULT_RATES
from tblctl.selector.registry import policy_named
from tblctl.tableformat.environment import Environment
from tblctl.tableformat.native.port import NativePort
from tblctl.tableformat.native.table import NativeTable
from tblctl.tableformat.storage import Storage

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])


def table_of(url: str, pairs: int = 3) -> tblctl.Table:
    """Make a table of pairs of blocks that overlap, far from each other: as many groups."""
    table = tblctl.create(url, SCHEMA, cluster_by=["k"], options={"block_rows": 4})
    for place in range(2 * pairs):
        start = 100 * (place // 2) + place % 2
        keys = [start + 2 * step for step in range(4)]
        table.append(pa.table({"k": keys, "n": range(4 * place, 4 * place + 4)}, schema=SCHEMA))
    return table


def decoded(outcome: tblctl.Outcome) -> int:
    return sum(group.bytes_read - group.bytes_copied for group in outcome.groups)


def port_of(table: tblctl.Table) -> NativePort:
    return NativePort(NativeTable(Storage(table.location), Environment()))


def in_command(*words: str) -> str:
    done = CliRunner().invoke(application, [*words], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


# -- before --------------------------------------------------------------------------------------------------------


def test_a_dry_run_prints_what_the_plan_costs_and_brings(tmp_path: Any) -> None:
    location = str(tmp_path / "t")
    table = table_of(location)
    text = in_command("recluster", location, "--dry-run", "--price-per-gib", "2", "--price-per-hour", "1")
    bill = json.loads(
        in_command("plan", location, "--json", "--price-per-gib", "2", "--price-per-hour", "1")
    )["bill"]
    total = bill["total"]
    assert (total["blocks"], total["rows"], total["bytes_read"]) == (6, 24, table.snapshot.bytes)
    assert total["cost"] == pytest.approx(2 * total["bytes_read"] / 2**30 + total["seconds"] / 3600)
    assert bill["measured_runs"] == 0
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert any(line.startswith("read for a key ") for line in lines)
    (price,) = [line for line in lines if line.startswith("price: ")]
    assert f"{total['requests']} requests, " in price
    assert price.endswith("(rates: defaults, for 2 processors)")
    assert f"cost {total['cost']:.4g}" in price
    assert f"Pays off after {bill['payback_queries']} queries of one key." in lines


def test_a_plan_without_work_has_no_price_to_print(memory_url: str) -> None:
    table = table_of(memory_url, pairs=1)
    table.recluster(final=True)
    plan = table.plan()
    assert plan.bill is not None
    assert (plan.bill.total.blocks, plan.bill.payback_queries) == (0, None)


# -- after ---------------------------------------------------------------------------------------------------------


def test_a_given_plan_is_priced_by_the_rates_that_it_was_made_with(memory_url: str) -> None:
    table = table_of(memory_url)
    table.recluster(options={"max_groups": 1})
    table.append(pa.table({"k": [1], "n": [0]}, schema=SCHEMA))  # the newest version tells of no run
    plan = table.plan()
    assert plan.bill is not None
    assert plan.bill.measured_runs == 1
    assert table.recluster(plan).predicted == plan.bill.total


def test_outcome_and_history_have_what_was_predicted_and_what_it_took(tmp_path: Any) -> None:
    location = str(tmp_path / "t")
    table = table_of(location)
    plan = table.plan()
    outcome = table.recluster(plan)
    assert plan.bill is not None
    assert outcome.predicted == plan.bill.total
    assert outcome.predicted_depth_after == plan.predicted.average_depth_after == outcome.depth_after == 1.0
    assert [group.predicted for group in outcome.groups] == [group.price for group in plan.groups]
    told = outcome.to_dict()
    assert json.loads(json.dumps(told)) == told
    kept = table.history(1)[0].detail["recluster"]
    assert kept["predicted"] == told["predicted"]
    assert kept["predicted_depth_after"] == 1.0
    assert kept["merge_seconds"] > 0
    note = next(line for line in in_command("history", location).splitlines() if "recluster" in line)
    assert "(predicted " in note
    assert "depth 1.00)" in note


def test_the_next_plan_uses_the_rates_of_the_last_runs(memory_url: str) -> None:
    table = table_of(memory_url, pairs=2)
    assert rates_of(port_of(table), port_of(table).newest()) == DEFAULT_RATES
    table.recluster(options={"max_groups": 1})
    table.recluster(options={"max_groups": 1})
    port = port_of(table)
    runs = runs_of(port.history())
    assert [run.groups for run in runs] == [1, 1]
    rates = rates_of(port, port.newest())
    assert rates.runs == 2
    assert rates.seconds_per_group != DEFAULT_RATES.seconds_per_group
    plan = table.plan("full")
    assert plan.bill is not None
    assert plan.bill.measured_runs == 2


class ByQueries:
    """Keeps the rates that it was handed."""

    name, options, wants_workload = "by-queries", policy_named("full").options, True

    def __init__(self) -> None:
        self.got: list[Any] = []

    def decide(self, *_: Any, rates: Any, **__: Any) -> Decision:
        self.got.append(rates)
        return Decision()


def test_a_policy_that_chooses_by_queries_knows_the_same_rates_in_a_plan_and_in_a_run(
    memory_url: str,
) -> None:
    table = table_of(memory_url, pairs=2)
    table.recluster(options={"max_groups": 1})
    table.append(table.scan().to_arrow().slice(0, 1))  # its version tells of no recluster
    policy = ByQueries()
    table.plan(policy)
    table.recluster(policy=policy)
    first, second = policy.got
    assert first == second
    assert first.runs == 1


@pytest.mark.parametrize(
    "change",
    [
        {"merge_seconds": None},
        {"merge_seconds": -1.0},
        {"bytes_read": "many"},
        {"memory_bytes": float("nan")},
        {"committed_groups": True},
    ],
)
def test_a_summary_that_says_too_little_or_what_cannot_be_is_passed_over(
    memory_url: str, change: Any
) -> None:
    table = table_of(memory_url, pairs=1)
    table.recluster()
    (entry,) = port_of(table).history(1)
    assert len(runs_of([entry])) == 1
    stated = {**entry.summary.detail["recluster"], **change}
    assert runs_of([replace(entry, summary=replace(entry.summary, detail={"recluster": stated}))]) == []
    older = replace(entry, summary=replace(entry.summary, detail={"recluster": "by hand"}))
    assert runs_of([older]) == []


def test_requests_take_time_where_they_cross_a_network() -> None:
    assert starting_rates("s3://bucket/t").seconds_per_request > 0
    for location in ("/data/t", "file:///data/t", "memory://t", "iceberg://prod/sales.orders"):
        assert starting_rates(location) == DEFAULT_RATES


def test_runs_of_an_engine_say_nothing_of_another(memory_url: str) -> None:
    table = table_of(memory_url, pairs=2)
    table.recluster(options={"max_groups": 1})
    port = port_of(table)
    assert (rates_of(port, port.newest()).runs, rates_of(port, port.newest(), "local").runs) == (1, 1)
    assert rates_of(port, port.newest(), "spark") == DEFAULT_RATES
    assert rates_at_hand(port, port.newest(), "spark") == DEFAULT_RATES


def one_round(table: tblctl.Table) -> Any:
    """Run a round of one group, and return what its commit recorded."""
    table.recluster(options={"max_groups": 1})
    return table.history(1)[0].detail["recluster"]


def test_a_recluster_without_a_limit_predicts_by_what_costs_no_request_and_records_by_how_many_runs(
    memory_url: str,
) -> None:
    """A snapshot of the native format tells of its own commit alone."""
    table = table_of(memory_url)
    assert one_round(table)["predicted_by_runs"] == 0
    second = one_round(table)
    assert second["predicted_by_runs"] == 1
    table.append(pa.table({"k": [1], "n": [99]}, schema=SCHEMA))
    assert one_round(table)["predicted_by_runs"] == 0
    table.append(pa.table({"k": [1], "n": [100]}, schema=SCHEMA))
    table.recluster(options={"max_groups": 1, "max_seconds": 900.0})
    assert table.history(1)[0].detail["recluster"]["predicted_by_runs"] == 3


def test_what_is_written_of_small_files_is_predicted_by_whole_files(memory_url: str) -> None:
    """Their footers are most of them, and merge tasks do not count these as read."""
    table = table_of(memory_url)
    first = one_round(table)
    assert first["bytes_read"] < 0.5 * first["predicted"]["bytes_read"]
    bill = table.plan().bill
    assert bill is not None
    assert bill.measured_runs == 1
    assert bill.total.bytes_written == pytest.approx(bill.total.bytes_read, rel=0.1)


def test_history_says_which_predictions_are_by_default_rates(tmp_path: Any) -> None:
    location = str(tmp_path / "t")
    table = table_of(location)
    one_round(table)
    one_round(table)
    lines = [line for line in in_command("history", location).splitlines() if "(predicted " in line]
    assert ["by default rates" in line for line in lines] == [False, True]


# -- budgets of whole runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["max_bytes", "max_cost"])
def test_final_stops_at_the_budget_and_says_what_is_left(memory_url: str, limit: str) -> None:
    table = table_of(memory_url)
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["n"])
    price = table.plan(options={"price_per_gib": 1.0}).groups[0].price
    assert price is not None
    assert price.cost is not None
    one_group = {"max_bytes": price.bytes_read + 1, "max_cost": price.cost * 1.5}
    outcome = table.recluster(final=True, options={limit: one_group[limit], "price_per_gib": 1.0})
    assert outcome.committed_groups == 1
    assert outcome.note.startswith(f"the rest of the budget ({limit}, ")
    assert "holds no further group: it leaves out 4 blocks of " in outcome.note
    assert outcome.note.endswith(" KiB")
    assert limit in {item.rule for item in outcome.rejected}
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["n"]) == rows


def test_final_stops_when_its_seconds_have_passed(memory_url: str) -> None:
    """The clock stands still but for a thousand seconds at the end of each group."""
    passed = [0.0]

    def progress(_done: int, _total: int | None, unit: str) -> None:
        passed[0] += 1000.0 * (unit == "groups")

    table = table_of(memory_url)
    port = NativePort(NativeTable(Storage(table.location), Environment(elapsed=lambda: passed[0])))
    request = Request.of(
        policy=None,
        condition=lambda _schema: None,
        options={"max_seconds": 900.0, "max_groups": 1},
        final=True,
        progress=progress,
    )
    outcome = recluster(port, request, lambda _plan: LocalEngine())
    assert (outcome.rounds, outcome.committed_groups) == (1, 1)
    assert outcome.note.startswith(
        "the rest of the budget (max_seconds, 900.0) holds no further group: it leaves out 4 blocks of "
    )


def test_a_first_round_in_which_nothing_fits_names_the_limit_that_was_asked_for(memory_url: str) -> None:
    """Not what is left of it after the time that opening the table took."""
    outcome = table_of(memory_url).recluster(final=True, options={"max_seconds": 1e-6})
    assert (outcome.rounds, outcome.snapshot) == (0, None)
    assert "Raise max_seconds, now 1e-06" in outcome.note


def test_a_round_that_leaves_groups_says_so(memory_url: str) -> None:
    table = table_of(memory_url)
    plan = table.plan()
    short = replace(plan.options, budget=Budget(max_seconds=1e-6))
    outcome = table.recluster(replace(plan, options=short))
    assert (outcome.committed_groups, outcome.left_groups, outcome.snapshot) == (0, 3, None)
    assert outcome.note == "3 groups of 6 blocks did not begin, to keep to the budget"


def test_final_goes_on_beyond_the_size_of_a_round(memory_url: str) -> None:
    outcome = table_of(memory_url).recluster(final=True, options={"max_groups": 1})
    assert (outcome.rounds, outcome.committed_groups) == (3, 3)


@settings(max_examples=cases(8), deadline=None)
@given(max_bytes=st.integers(1, 12_000), final=st.booleans(), policy=st.sampled_from(["levels", "full"]))
def test_no_run_decodes_more_than_max_bytes(max_bytes: int, final: bool, policy: str) -> None:
    table = table_of(f"memory://price/{max_bytes}-{final}-{policy}")
    try:
        outcome = table.recluster(policy=policy, final=final, options={"max_bytes": max_bytes})
        assert decoded(outcome) <= max_bytes
    finally:
        tblctl.drop(table.location)


def test_what_is_copied_undecoded_does_not_count() -> None:
    spent = Spent(decoded_bytes=30, read_bytes=100)
    budget = Budget(max_bytes=50, max_blocks=7, price_per_gib=1.0, max_cost=1.0, max_seconds=9.0)
    left = left_of(budget, spent, 4.0)
    assert (left.max_bytes, left.max_blocks, left.max_seconds) == (20, 7, 5.0)
    assert left.max_cost == pytest.approx(1.0 - 100 / 2**30)


def test_a_budget_that_is_used_up_holds_no_group() -> None:
    left = left_of(Budget(max_bytes=50, max_seconds=1.0), Spent(decoded_bytes=80, read_bytes=80), 4.0)
    assert (left.max_bytes, left.max_seconds) == (1, 1e-9)
