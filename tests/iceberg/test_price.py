"""What a recluster of an Iceberg table costs, before and after, from the summaries of its snapshots."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.table import Table
from pyiceberg.types import LongType

from tblctl.cli.main import application
from tblctl.tableformat.iceberg.publish.summary import DETAIL

from .lake import Lake, append, fields


@pytest.fixture
def table(lake: Lake) -> Table:
    """Return a table of two files that overlap."""
    made = lake.create("t", fields(id=LongType()))
    for parity in range(2):
        append(made, id=list(range(parity, 40, 2)))
    return made.refresh()


def run(lake: Lake, *words: str) -> Any:
    options = [
        word for name, value in lake.options.items() for word in ("--catalog-option", f"{name}={value}")
    ]
    done = CliRunner().invoke(application, [*words, *options, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_plan_outcome_and_summary_have_the_price_and_the_next_plan_is_corrected(
    lake: Lake, table: Table
) -> None:
    keyed = ("iceberg://lake/db.t", "--cluster-by", "id", "--policy", "full")
    plan = run(lake, "plan", *keyed, "--price-per-hour", "1")
    total = plan["bill"]["total"]
    assert (total["blocks"], total["rows"], total["bytes_copied"], plan["bill"]["measured_runs"]) == (
        2,
        40,
        0,
        0,
    )
    assert total["cost"] == pytest.approx(total["seconds"] / 3600)
    outcome = run(lake, "recluster", *keyed, "--price-per-hour", "1")
    assert outcome["predicted"] == total
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    stated = json.loads(snapshot.summary[DETAIL])["recluster"]
    assert stated["predicted"] == total
    assert stated["merge_seconds"] > 0
    append(table, id=list(range(0, 40, 3)))
    assert run(lake, "plan", *keyed)["bill"]["measured_runs"] == 1
    assert (
        run(lake, "recluster", *keyed)["committed_groups"] == 1
    )  # the metadata tells of all runs: no request
    snapshot = table.refresh().current_snapshot()
    assert json.loads(snapshot.summary[DETAIL])["recluster"]["predicted_by_runs"] == 1


def test_what_keeping_a_depth_costs_a_day_is_estimated_from_the_snapshots(lake: Lake, table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"tblctl.cluster-by": "id"})
    found = run(lake, "estimate", "iceberg://lake/db.t", "--policy", "full", "--price-per-gib", "1")
    assert (found["appends"], found["measured_runs"]) == (2, 0)
    assert found["rewritten_bytes_per_day"] > 0
    assert found["cost_per_day"] == pytest.approx(found["rewritten_bytes_per_day"] / 2**30, rel=1e-6)
