"""What keeping a depth costs a day: arrivals from the history, times a simulated write amplification."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.advise import estimate as module
from tblctl.advise.estimate import append_rows, arrivals, simulate
from tblctl.cli.main import application
from tblctl.errors import InvalidKeyError, InvalidOptionError
from tblctl.policies import policy_of
from tblctl.tableformat.model.snapshot import Summary
from tblctl.tableformat.port import VersionEntry

SCHEMA = pa.schema([("k", pa.int64())])
DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


@pytest.fixture
def table(memory_url: str) -> tblctl.Table:
    made = tblctl.create(memory_url, SCHEMA, cluster_by=["k"], options={"block_rows": 4})
    for start in range(3):
        made.append(pa.table({"k": [start, start + 2, start + 4, start + 6]}, schema=SCHEMA))
    return made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate few appends."""
    monkeypatch.setattr(module, "_APPENDS", 8)


def entry(days_ago: float, operation: str, bytes_added: int) -> VersionEntry:
    summary = Summary(operation=operation, rows=1, blocks=1, data_bytes=1, bytes_added=bytes_added)
    return VersionEntry(
        id="1", parent=None, public_id=1, timestamp_ms=NOW_MS - int(days_ago * DAY_MS), summary=summary,
        is_readable=True, tags=(), cluster_by=None, options=None,
    )  # fmt: skip


def test_a_table_without_a_key_has_no_depth_to_keep_by_a_policy_that_needs_one(memory_url: str) -> None:
    table = tblctl.create(memory_url, SCHEMA)
    with pytest.raises(InvalidKeyError, match="no cluster key to recluster by"):
        table.estimate()
    assert table.estimate(policy="size").policy == "size"


# -- arrivals ------------------------------------------------------------------------------------------------------

HISTORY = (
    entry(1, "append", 100),
    entry(2, "recluster", 300),
    entry(3, "append", 200),
    entry(4, "tag", 0),
    entry(40, "append", 10**9),
)


def test_what_arrived_is_counted_from_the_days_asked_for() -> None:
    found = arrivals(HISTORY, now_ms=NOW_MS, days=30)
    assert (found.sizes_bytes, found.reclustered_bytes) == ((200, 100), 300)
    assert found.days == pytest.approx(30)
    assert found.bytes_per_day == pytest.approx(10)


def test_of_a_young_table_the_days_since_it_began_count() -> None:
    found = arrivals(HISTORY[:4], now_ms=NOW_MS, days=30)
    assert found.days == pytest.approx(4)
    assert found.bytes_per_day == pytest.approx(75)


def test_an_append_is_simulated_as_large_as_the_median_in_full_blocks() -> None:
    assert append_rows([100, 100, 900], full_bytes=50.0) == 32
    assert append_rows([1], full_bytes=1000.0) == 2
    assert append_rows([10**9], full_bytes=1.0) == 64
    assert append_rows([1], full_bytes=0.0) == 16


# -- the simulation ------------------------------------------------------------------------------------------------


def test_a_lower_depth_is_dearer_and_the_same_asked_twice_is_the_same(quick: None) -> None:
    low, high = (simulate(policy_of("full"), 16, depth) for depth in (1.0, 6.0))
    assert low[0] > high[0] > 0
    assert low[1] < high[1]
    assert simulate(policy_of("full"), 16, 6.0) == high


# -- the estimate --------------------------------------------------------------------------------------------------


def test_an_estimate_is_arrivals_times_amplification_at_the_rates_and_prices(
    table: tblctl.Table, quick: None
) -> None:
    found = table.estimate(target_depth=2.0, policy="full", price_per_hour=3600.0)
    assert (found.appends, found.policy, found.target_depth, found.measured_runs) == (3, "full", 2.0, 0)
    assert found.write_amplification is not None
    assert found.rewritten_bytes_per_day == pytest.approx(
        found.bytes_per_day * found.write_amplification, rel=1e-6
    )
    assert found.cost_per_day == pytest.approx(found.seconds_per_day)
    assert found.measured_amplification == 0.0
    table.recluster()
    after = table.estimate(target_depth=2.0, policy="full")
    assert after.measured_amplification is not None
    assert after.measured_amplification > 0
    assert (after.measured_runs, after.cost_per_day) == (1, None)
    assert json.loads(json.dumps(after.to_dict())) == after.to_dict()


def test_nothing_arrived_costs_nothing(memory_url: str) -> None:
    empty = tblctl.create(memory_url, SCHEMA, cluster_by=["k"])
    found = empty.estimate(price_per_gib=1.0)
    assert (found.write_amplification, found.rewritten_bytes_per_day, found.cost_per_day) == (None, 0, 0.0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"days": 0}, "days is 0, expected a number above 0"),
        ({"days": float("nan")}, "days is nan"),
        ({"days": True}, "days is True"),
        ({"target_depth": 0.5}, "target_depth: expected a number from 1 on"),
        ({"price_per_gib": -1.0}, "price_per_gib: expected a number above 0"),
        ({"price_per_hour": 0.0}, "price_per_hour: expected a number above 0"),
        ({"policy": "levles"}, "did you mean levels"),
    ],
)
def test_numbers_that_are_not_positive_and_unknown_policies_are_refused(
    table: tblctl.Table, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        table.estimate(**asked)


def test_the_command_prints_it_with_its_assumptions(tmp_path: Any, quick: None) -> None:
    location = str(tmp_path / "t")
    made = tblctl.create(location, SCHEMA, cluster_by=["k"], options={"block_rows": 4})
    run = lambda *words: CliRunner().invoke(application, ["estimate", location, *words])  # noqa: E731
    assert run().stdout.startswith("arrivals  none in ")
    made.append(pa.table({"k": [1, 2, 3]}, schema=SCHEMA))
    text = run("--days", "7", "--price-per-hour", "2").stdout
    names = [line.split("  ")[0] for line in text.splitlines()[:5]]
    assert names == ["arrivals", "rewriting", "depth", "a day", "cost"]
    assert text.count("(assumed: ") == 3
    assert "(the history looked at is " in text
    assert "does not keep the depth of" not in text
    assert (
        "(sort-one does not keep the depth of 1.5)"
        in run("--policy", "sort-one", "--target-depth", "1.5").stdout
    )
    stated = json.loads(run("--json").stdout)
    assert stated == replace(made.estimate(), days=stated["days"]).to_dict() | {
        name: stated[name] for name in ("bytes_per_day", "rewritten_bytes_per_day", "seconds_per_day")
    }
    refused = run("--days", "0")
    assert (refused.exit_code, "days is 0.0, expected a number above 0" in refused.stderr) == (2, True)
