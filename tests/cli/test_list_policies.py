"""`tblctl recluster --list-policies`, and wrong words about policies."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl.cli.main import application

NAMES = ("levels", "full", "size", "sort-one", "depth", "newdata")


def run(*words: str) -> Result:
    return CliRunner().invoke(application, words)


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("policies") / "t"
    table = tblctl.create(folder, "k: int64", cluster_by="k")
    for rows in (40, 50, 45):
        table.append(pa.table({"k": range(rows)}))
    return str(folder)


def test_every_policy_is_a_line_with_its_source_what_it_does_and_its_flags() -> None:
    lines = run("recluster", "--list-policies").stdout.splitlines()
    assert lines[0].split() == ["policy", "from", "what", "it", "does", "options"]
    found = {line.split()[0]: " ".join(line.split()) for line in lines[2:]}
    assert set(NAMES) <= set(found)
    assert found[tblctl.policies.DEFAULT_POLICY].split()[1:3] == ["(default)", "tblctl"]
    assert "tblctl merges the deepest ranges, level by level --threshold" in found["levels"]
    assert found["newdata"].endswith("that are not written again --cube-bytes --include-unclustered")


def test_json_has_every_option_with_its_type_default_unit_and_bounds() -> None:
    result = run("recluster", "--list-policies", "--json")
    found = {item["name"]: item for item in json.loads(result.stdout)["policies"]}
    assert [name for name, item in found.items() if item["is_default"]] == [tblctl.policies.DEFAULT_POLICY]
    assert {key: found["sort-one"][key] for key in ("source", "options", "problem")} == {
        "source": "tblctl",
        "options": [],
        "problem": None,
    }
    depth = found["depth"]["options"][0]
    assert {key: depth[key] for key in depth if key != "help"} == {
        "name": "clustering_depth",
        "type": "float",
        "default": 3.0,
        "unit": "depth",
        "least": 1,
        "most": None,
    }


def test_the_list_takes_no_table() -> None:
    result = run("recluster", "/nowhere", "--list-policies")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--list-policies takes no table" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "sise"], "unknown policy 'sise'; did you mean size?"),
        (["--policy", "sort_one"], "unknown policy 'sort_one'; did you mean sort-one?"),
        (["--policy", "size", "--threshold", "3"], "--policy size does not take --threshold"),
        (["--policy", "depth", "--cube-bytes", "1GiB"], "leave --cube-bytes out, or choose newdata"),
        (
            ["--policy", "size", "--small-file-bytes", "2MiB", "--target-file-bytes", "1MiB"],
            "--small-file-bytes 2097152 is above --target-file-bytes 1048576: what is stitched would stay small",
        ),
        (["--policy", "size", "--min-input-files", "1"], "1 is not in the range x>=2"),
        (
            ["--policy", "depth", "--clustering-depth", "0.5"],
            "--clustering-depth: expected a number from 1 on, got 0.5",
        ),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_changed(
    location: str, words: list[str], message: str
) -> None:
    result = run("recluster", location, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert tblctl.open(location).snapshot.sequence == 4


@pytest.mark.parametrize(
    ("policy", "option"),
    [
        ("size", ()),
        ("depth", ("--clustering-depth", "1")),
        ("newdata", ("--cube-bytes", "1KiB")),
        ("sort-one", ()),
    ],
)
def test_a_dry_run_by_each_policy_says_what_it_would_do_and_why(
    location: str, policy: str, option: tuple[str, ...]
) -> None:
    result = run("recluster", location, "--policy", policy, *option, "--dry-run", "--json")
    plan = json.loads(result.stdout)
    assert plan["policy"] == policy
    if policy == "sort-one":
        assert (plan["groups"], [item["rule"] for item in plan["rejected"]]) == ([], ["sorted"])
    else:
        assert sum(len(group["blocks"]) for group in plan["groups"]) >= 2
