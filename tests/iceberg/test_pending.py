"""Pending plans of Iceberg tables lie where people say; if others delete them, nothing happens."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.table import Table
from pyiceberg.types import LongType

import tblctl
from tblctl.cli.main import application
from tblctl.errors import InvalidDataError, InvalidOptionError

from .lake import Lake, append, fields


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "plans of t"


@pytest.fixture
def table(lake: Lake, place: Path) -> Table:
    """Return a table of three files that overlap. Its properties say where plans are kept."""
    properties = {"tblctl.cluster-by": "id", "tblctl.plans": str(place)}
    made = lake.create("t", fields(id=LongType()), properties=properties)
    for first in range(3):
        append(made, id=list(range(first, 30, 3)))
    return made.refresh()


def files(place: Path) -> list[str]:
    return sorted(path.relative_to(place).parts[1] for path in place.rglob("*.json"))


def test_a_plan_is_kept_where_the_property_says_and_executed_from_there(table: Table, place: Path) -> None:
    ours = tblctl.from_iceberg(table)
    kept = ours.schedule("full")
    assert files(place) == ["plans"]
    assert [item.id for item in ours.pending_plans()] == [kept.id]
    assert ours.schedule("full").id is None
    outcome = tblctl.from_iceberg(table).recluster_pending()
    assert (outcome.committed_groups, outcome.blocks_in, outcome.note) == (1, 3, "")
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(30))
    assert (files(place), ours.pending_plans()) == ([], [])


def test_a_place_that_is_named_is_taken_instead(table: Table, place: Path, tmp_path: Path) -> None:
    ours, other = tblctl.from_iceberg(table), f"file://{tmp_path / 'elsewhere'}"
    kept = ours.schedule("full", plans_at=other)
    nothing = f"there is no pending plan of {ours.location} at {place}"
    assert (ours.pending_plans(), ours.recluster_pending().note) == ([], nothing)
    assert ours.cancel_plan(kept.id, plans_at=other).groups == 1
    ours.schedule("full", plans_at=other)
    assert ours.recluster_pending(plans_at=other).committed_groups == 1


def test_lost_plans_are_no_error_but_a_word(table: Table, place: Path) -> None:
    ours = tblctl.from_iceberg(table)
    kept = ours.schedule("full")
    shutil.rmtree(place)
    assert ours.pending_plans() == []
    assert "there is no pending plan" in ours.recluster_pending().note
    with pytest.raises(
        InvalidOptionError, match=f"has no pending plan {kept.id}.*--plans-at '{place}' --list"
    ):
        ours.recluster_pending(kept.id)
    assert len(ours.schedule("full").plan.groups) == 1


def test_plans_of_another_table_in_one_place_are_left_alone(lake: Lake, table: Table, place: Path) -> None:
    other = lake.create("other", fields(id=LongType()), properties={"tblctl.cluster-by": "id"})
    for _ in range(2):
        append(other, id=[1, 2, 3])
    theirs = tblctl.from_iceberg(other.refresh()).schedule("full", plans_at=str(place))
    ours = tblctl.from_iceberg(table)
    kept = ours.schedule("full")
    with pytest.raises(InvalidOptionError, match="the plan was made for another table"):
        ours.recluster_pending(theirs.id)
    with pytest.raises(InvalidOptionError, match=f"{theirs.id} is not of {ours.location}: .* another table"):
        ours.cancel_plan(theirs.id)
    outcome = ours.recluster_pending()
    assert outcome.committed_groups == 1
    assert "made for another table" in outcome.note
    assert [item.id for item in ours.pending_plans()] == [theirs.id]
    with pytest.raises(InvalidDataError, match=r"none of the pending plans of .* made for another table"):
        ours.recluster_pending()
    assert kept.id != theirs.id


def test_a_folder_that_somebody_names_has_to_be_there(table: Table, tmp_path: Path) -> None:
    ours, missing = tblctl.from_iceberg(table), str(tmp_path / "nowhere")
    for act in (ours.pending_plans, ours.recluster_pending, partial(ours.cancel_plan, "0" * 32)):
        with pytest.raises(InvalidDataError, match=f"there is no folder {missing}"):
            act(plans_at=missing)


def test_claims_of_a_plan_that_is_gone_go_when_the_next_one_is_kept(table: Table, place: Path) -> None:
    """No gc looks at this place: without that, they would stay for ever."""
    claims = place / "metadata" / "claims"
    claims.mkdir(parents=True)
    (claims / f"{'0' * 32}-00000001-0000.json").write_text("{}")
    tblctl.from_iceberg(table).schedule("full")
    assert files(place) == ["plans"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "does not say where to keep pending plans"),
        ("plans", "expected a URL, or a path that begins with /"),
    ],
)
def test_a_place_is_needed(lake: Lake, given: str | None, message: str) -> None:
    made = lake.create("t", fields(id=LongType()), properties={"tblctl.cluster-by": "id"})
    with pytest.raises(InvalidOptionError, match=message):
        tblctl.from_iceberg(made).schedule(plans_at=given)


def test_the_command_keeps_lists_and_carries_out(
    lake: Lake, table: Table, place: Path, tmp_path: Path
) -> None:
    options = [
        word for name, value in lake.options.items() for word in ("--catalog-option", f"{name}={value}")
    ]

    def invoke(name: str, *words: str) -> Any:
        done = CliRunner().invoke(application, [name, "iceberg://lake/db.t", "--json", *options, *words])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    there = ("--plans-at", str(tmp_path / "there"))
    words = [application, ["plan", "iceberg://lake/db.t", *options, "--policy", "full", "--schedule", *there]]
    said = CliRunner().invoke(*words).stdout.splitlines()[-1]
    (pending,) = invoke("plan", "--list", *there)
    again = f"`tblctl recluster iceberg://lake/db.t --plans-at {there[1]} --pending {pending['id']}`"
    assert again in said
    invoke("plan", "--cancel", pending["id"], *there)
    kept = invoke("plan", "--policy", "full", "--schedule", *there)
    assert [item["id"] for item in invoke("plan", "--list", *there)] == [kept["id"]]
    assert invoke("recluster", "--pending", kept["id"], *there)["committed_groups"] == 1
    assert (invoke("plan", "--list", *there), place.exists()) == ([], False)
