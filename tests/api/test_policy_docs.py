"""The example of docs/policies.md does what the page says, and the page has a section for each policy."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl import policies
from tblctl.cli.main import application

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
EXAMPLE = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]  # type: ignore[index]


@pytest.fixture
def youngest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("policy_of_the_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(EXAMPLE, "docs/policies.md", "exec"), vars(module))
    yield
    policies.unregister("youngest")


@pytest.fixture
def location(tmp_path: Path) -> str:
    table = tblctl.create(tmp_path / "t", "k: int64", cluster_by="k")
    for begin in range(5):
        table.append(pa.table({"k": range(begin, begin + 50)}))
    return str(tmp_path / "t")


def run(*words: str) -> str:
    result = CliRunner().invoke(application, words)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_the_example_has_30_lines_at_most() -> None:
    assert EXAMPLE.count("\n") <= 30


@pytest.mark.usefixtures("youngest")
def test_the_example_merges_the_blocks_that_were_merged_least(location: str) -> None:
    table = tblctl.open(location)
    outcome = table.recluster(policy="youngest", options={"most_young": 4})
    assert (outcome.policy, outcome.blocks_in, outcome.groups[0].why) == ("youngest", 4, "the youngest")
    plan = table.plan("youngest")
    assert [group.output_level for group in plan.groups] == [2]
    table.recluster(policy="youngest", final=True)
    assert not table.plan("youngest").groups
    assert table.info().rows == 250


@pytest.mark.usefixtures("youngest")
def test_the_command_lists_the_example_and_takes_its_flag(location: str) -> None:
    listed = json.loads(run("recluster", "--list-policies", "--json"))["policies"]
    (found,) = (item for item in listed if item["name"] == "youngest")
    assert (found["source"], found["summary"]) == ("program", "merges the blocks that were merged least")
    assert [item["name"] for item in found["options"]] == ["most_young"]
    words = ("recluster", location, "--policy", "youngest", "--most-young", "3", "--dry-run", "--json")
    assert [len(group["blocks"]) for group in json.loads(run(*words))["groups"]] == [3]


@pytest.mark.parametrize("name", ["size", "sort-one", "workload", "depth", "newdata"])
def test_each_policy_has_a_section_that_names_its_flags(name: str) -> None:
    (section,) = re.findall(rf"^## {name}\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE)
    (info,) = (item for item in policies.listed() if item.name == name)
    own = {option.name for option in info.options} - {"max_group_bytes", "most_blocks", "include_unclustered"}
    assert all(f"--{option.replace('_', '-')}" in section for option in own)
