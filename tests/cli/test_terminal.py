"""Tables on terminals of 80 columns and more, and in a pipe."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from terminal import on_terminal

import tblctl
from tblctl.cli.main import application

COMMANDS = {
    "policies": ("recluster", "--list-policies"),
    "plans": ("plan", "LOC", "--list"),
    "history": ("history", "LOC"),
    "plan": ("plan", "LOC", "--policy", "full", "--max-seconds", "0.0000001"),
}
NEEDED = {
    "policies": "levels newdata stitches --small-file-bytes --partition-column --every-range",
    "plans": "ID expires policy groups begun full",
    "history": "snapshot added rows blocks size recluster levels: (predicted default",
    "plan": "nothing limits: --max-seconds. cheapest",
}
"""Words that no width may leave out."""


@pytest.fixture
def located(overlapping: str) -> str:
    table = tblctl.open(overlapping)
    table.recluster(options={"threshold": 1, "max_blocks": 2})
    table.schedule("full", options={"max_blocks": 2})
    return overlapping


@pytest.mark.parametrize("columns", [80, 100, 200])
@pytest.mark.parametrize("shown", COMMANDS)
def test_no_line_is_wider_than_the_terminal_and_nothing_needed_is_missing(
    located: str, shown: str, columns: int
) -> None:
    text = on_terminal(*(located if word == "LOC" else word for word in COMMANDS[shown]), columns=columns)
    assert [line for line in text.splitlines() if len(line) > columns] == []
    plans = tblctl.open(located).pending_plans()
    for word in NEEDED[shown].replace("ID", plans[0].id if plans else "").split():
        assert word in text.split(), text
    assert "…" not in text.replace("  …  ", "")  # nothing is cut, but for columns that are named below


def test_in_a_pipe_every_policy_is_one_line(located: str) -> None:
    lines = CliRunner().invoke(application, ["recluster", "--list-policies"]).stdout.splitlines()
    assert len(lines) == 2 + len(tblctl.policies.listed())
