"""A program adds a policy of its own: tables plan and merge by it, and the command takes its options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl import policies
from tblctl.cli.main import application


@dataclass(frozen=True, kw_only=True)
class SmallestOptions:
    """The options of `smallest`."""

    most_together: int = policies.option(default=2, unit="blocks", help="Blocks to merge at once.", least=2)
    largest_bytes: int | None = policies.option(default=None, unit="bytes", help="Leave larger blocks.")
    ascending: bool = policies.option(default=True, unit="flag", help="The smallest blocks first.")


class Smallest:
    """Merges the smallest blocks, whatever their keys are."""

    name = "smallest"
    options = SmallestOptions
    summary = "merges the smallest blocks"

    def decide(
        self, view: policies.TableView, budget: policies.Budget, options: SmallestOptions, **_: Any
    ) -> policies.Decision:
        chosen = np.flatnonzero(view.selectable)
        if options.largest_bytes is not None:
            chosen = chosen[view.size_bytes[chosen] <= options.largest_bytes]
        order = np.argsort(view.row_count[chosen] * (1 if options.ascending else -1), kind="stable")
        blocks = chosen[order][: options.most_together]
        if blocks.size < 2:
            return policies.Decision()
        return policies.Decision(
            drafts=(
                policies.Draft(blocks=blocks, output_level=1 + int(view.level[blocks].max()), why="small"),
            )
        )


@pytest.fixture(autouse=True)
def smallest() -> Iterator[None]:
    policies.register(Smallest())
    yield
    policies.unregister("smallest")


@pytest.fixture
def location(tmp_path: Path) -> str:
    table = tblctl.create(tmp_path / "t", "k: int64", cluster_by="k")
    for rows in (50, 10, 40, 20, 30):
        table.append(pa.table({"k": range(rows)}))
    return str(tmp_path / "t")


def run(*words: str) -> Result:
    return CliRunner().invoke(application, words)


def test_a_table_plans_and_merges_by_it(location: str) -> None:
    table = tblctl.open(location)
    plan = table.plan("smallest", options={"most_together": 3})
    assert [(group.rows, group.why) for group in plan.groups] == [(60, "small")]
    assert plan.options.policy == {"most_together": 3, "largest_bytes": None, "ascending": True}
    assert table.recluster(plan).committed_groups == 1
    assert sorted(block.rows for block in table.files()) == [40, 50, 60]
    outcome = table.recluster(policy="smallest", options={"ascending": False, "max_bytes": "1GiB"})
    assert (outcome.policy, sorted(block.rows for block in table.files())) == ("smallest", [40, 110])


def test_a_policy_that_nobody_registered_is_handed_in(location: str) -> None:
    policies.unregister("smallest")
    policy = Smallest()
    table = tblctl.open(location)
    plan = table.plan(policy, options={"most_together": 3})
    assert (plan.policy, plan.groups[0].rows) == ("smallest", 60)
    outcome = table.recluster(policy=policy, options={"max_bytes": "1GiB"})
    assert (outcome.policy, outcome.rows) == ("smallest", 30)
    outcome = tblctl.execute(f"OPTIMIZE TABLE '{location}' RECLUSTER", policy=policy)
    assert outcome is not None
    assert len(list(table.files())) == 1
    with pytest.raises(tblctl.errors.InvalidOptionError, match="unknown policy 'smallest'"):
        table.plan("smallest")
    policies.register(Smallest())


@pytest.mark.parametrize("wrong", [Smallest, 7, object(), ["smallest"]])
def test_what_is_handed_in_and_is_no_policy_is_refused(location: str, wrong: Any) -> None:
    table = tblctl.open(location)
    for ask in (lambda: table.plan(wrong), lambda: table.recluster(policy=wrong)):
        with pytest.raises(tblctl.errors.InvalidOptionError, match="policy"):
            ask()


def test_its_rounds_repeat_until_it_finds_nothing(location: str) -> None:
    outcome = tblctl.open(location).recluster(policy="smallest", final=True)
    assert (outcome.rounds, outcome.rows) == (4, 30 + 60 + 90 + 150)


def test_the_planner_holds_it_to_the_budget(location: str) -> None:
    plan = tblctl.open(location).plan("smallest", options={"most_together": 5, "max_blocks": 2})
    assert [len(group.blocks) for group in plan.groups] == [2]
    assert [(item.rule, item.blocks) for item in plan.rejected] == [("max_blocks", 3)]


def test_wrong_options_of_it_are_refused(location: str) -> None:
    table = tblctl.open(location)
    with pytest.raises(tblctl.errors.InvalidOptionError, match="did you mean most_together"):
        table.plan("smallest", options={"most_togther": 3})
    with pytest.raises(tblctl.errors.InvalidOptionError, match="unknown option 'most_together'"):
        table.plan("levels", options={"most_together": 3})


def test_the_command_takes_its_options(location: str) -> None:
    words = ["recluster", location, "--policy", "smallest", "--most-together", "4"]
    plan = json.loads(run(*words, "--dry-run", "--json").stdout)
    assert (plan["policy"], len(plan["groups"][0]["blocks"])) == ("smallest", 4)
    assert json.loads(run(*words, "--largest-bytes", "1B", "--dry-run", "--json").stdout)["groups"] == []
    assert "100 rows" in run(*words).stdout
    backwards = run(
        "recluster", location, "--policy", "smallest", "--no-ascending", "--dry-run", "--json"
    ).stdout
    assert json.loads(backwards)["options"]["policy"]["ascending"] is False


def test_the_help_of_the_command_names_it_and_its_options_as_long_as_it_is_registered() -> None:
    text = " ".join(run("recluster", "--help").stdout.split())
    assert "levels (default), full, which sorts everything that overlaps, " in text
    assert ", or smallest, which merges the" in text
    assert "--most-together N Blocks to merge at once." in text
    assert "--largest-bytes SIZE Leave larger blocks." in text
    policies.unregister("smallest")
    assert "most-together" not in run("recluster", "--help").stdout
    policies.register(Smallest())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--most-together", "3"], "policy levels (by default) does not take --most-together"),
        (["--policy", "smallest", "--threshold", "3"], "--policy smallest does not take --threshold"),
        (["--policy", "smallest", "--most-together", "1"], "1 is not in the range x>=2"),
        (["--policy", "smalest"], "unknown policy 'smalest'; did you mean smallest?"),
    ],
)
def test_wrong_words_for_it_are_refused(location: str, words: list[str], message: str) -> None:
    result = run("recluster", location, *words)
    assert result.exit_code == 2
    assert message in result.stderr
