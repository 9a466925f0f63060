"""A table whose groups get sorts beside the cluster key: figures, plans and rounds that tell these sorts apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl import policies
from tblctl.cli.main import application
from tblctl.tableformat.model.cluster_key import Sort, parse_terms
from tblctl.tableformat.model.schema.schema import Schema

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string())])


@dataclass(frozen=True, kw_only=True)
class BesideOptions:
    """What may be asked of `beside`."""

    terms: str = policies.option(default="b", unit="terms", help="The sort that blocks get.")
    most_together: int = policies.option(default=2, unit="blocks", help="Blocks to merge at once.", least=1)


class Beside:
    """Gives the first blocks in the order of the cluster key a sort beside it, as one group."""

    name = "beside"
    options = BesideOptions

    def decide(
        self, view: policies.TableView, budget: policies.Budget, options: BesideOptions, **_: Any
    ) -> policies.Decision:
        terms = parse_terms(options.terms, Schema.create(SCHEMA))
        live = [sort for sort in view.sorts.values() if sort.terms == terms]
        sort = live[0] if live else Sort(id=view.next_sort_id, terms=terms)
        blocks = np.flatnonzero(~view.unclustered)[: options.most_together]
        drafts = (policies.Draft(blocks=blocks, output_level=1, why="a test", sort=sort),)
        return policies.Decision(drafts=drafts if blocks.size else ())


@pytest.fixture(autouse=True)
def beside() -> Iterator[None]:
    policies.register(Beside())
    yield
    policies.unregister("beside")


def table_by(url: str, cluster_by: str, blocks: int = 5) -> tblctl.Table:
    table = tblctl.create(url, SCHEMA, cluster_by=cluster_by, options={"block_rows": 6})
    for number in range(blocks):
        keys = [number + 7 * step for step in range(6)]
        table.append(
            pa.table({"a": keys, "b": [37 * k % 41 for k in keys], "s": [f"k{k % 9}" for k in keys]}, SCHEMA)
        )
    return table


def sort_ids(table: tblctl.Table) -> list[int]:
    version = table._port.newest()
    assert version.sort is not None
    ids: list[int] = sorted(version.listing(version.sort, None).sort_id.tolist())
    return ids


@pytest.mark.parametrize(
    ("cluster_by", "terms"),
    [
        ("a", "s"),
        ("s", "a"),
        ("a", "a desc"),
        ("a desc", "a"),
        ("a", "b, s"),
        ("a, s", "b"),
        ("s, a", "bucket(4, a)"),
    ],
)
@pytest.mark.parametrize("most_together", [2, 5])
def test_the_figures_of_a_commit_with_another_sort_are_those_of_info(
    memory_url: str, cluster_by: str, terms: str, most_together: int
) -> None:
    table = table_by(memory_url, cluster_by)
    rows = table.scan().to_arrow().sort_by("a")
    outcome = table.recluster(policy="beside", options={"terms": terms, "most_together": most_together})
    assert outcome.committed_groups == 1
    assert sort_ids(table) == [1] * (5 - most_together) + [2] * most_together
    info = table.info()
    assert (outcome.depth_after, outcome.overlaps_after) == (info.average_depth, info.average_overlaps)
    assert (info.average_depth is None) == (most_together == 5)
    detail = table.history(1)[0].detail["recluster"]
    assert (detail["depth_after"], detail["overlaps_after"]) == (info.average_depth, info.average_overlaps)
    assert table.scan().to_arrow().sort_by("a") == rows
    assert table.check(deep=True).problems == ()


def test_final_leaves_blocks_in_the_sort_that_a_policy_gave_them(memory_url: str) -> None:
    table = table_by(memory_url, "a")
    table.recluster(policy="beside", options={"most_together": 5})
    for policy in ("levels", "full"):
        outcome = table.recluster(policy=policy, final=True)
        assert (outcome.rows, outcome.rounds) == (0, 0)
        assert [item.rule for item in outcome.rejected] == ["other_sort"]
    assert sort_ids(table) == [2] * 5
    table.append(pa.table({"a": [1], "b": [1], "s": [""]}, SCHEMA))
    table.append(pa.table({"a": [2], "b": [1], "s": [""]}, SCHEMA))
    assert table.recluster(final=True).rows == 2
    assert sort_ids(table) == [1] + [2] * 5


def test_blocks_of_a_sort_that_ended_are_sorted_in(memory_url: str) -> None:
    table = table_by(memory_url, "a")
    table.recluster(policy="beside", options={"most_together": 5})
    table.set_cluster_key("a desc")
    assert sort_ids(table) == [-1] * 5
    assert table.recluster(final=True).rows == 30
    assert set(sort_ids(table)) == {3}


class OneByOne:
    """Gives the two halves of the table a sort of their own, and the rest none."""

    name = "one_by_one"
    options = BesideOptions

    def decide(self, view: policies.TableView, *_: Any, **__: Any) -> policies.Decision:
        sort = Sort(id=view.next_sort_id, terms=parse_terms("s, b", Schema.create(SCHEMA)))
        parts = np.split(np.flatnonzero(view.selectable), 2)
        return policies.Decision(
            drafts=tuple(policies.Draft(blocks=part, output_level=1, why="", sort=sort) for part in parts)
        )


def test_the_figures_after_each_commit_of_a_round_are_those_of_its_snapshot(memory_url: str) -> None:
    table = table_by(memory_url, "a", blocks=6)
    policies.register(OneByOne())
    try:
        outcome = table.recluster(policy="one_by_one", commit_every=1)
    finally:
        policies.unregister("one_by_one")
    assert (outcome.commits, outcome.depth_after) == (2, None)
    for entry in table.history(2):
        info = tblctl.open(memory_url, as_of=entry.sequence).info()
        assert entry.detail["recluster"]["depth_after"] == info.average_depth
    assert sort_ids(table) == [2] * 6


def test_a_dry_run_says_that_the_depth_by_another_sort_is_not_known(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    table_by(location, "a")
    words = ["recluster", location, "--policy", "beside", "--most-together", "5", "--dry-run"]
    shown = CliRunner().invoke(application, words, catch_exceptions=False).output
    lines = [line.split() for line in shown.splitlines()]
    assert ["0", "1", "5", "30"] in [line[:4] for line in lines]
    assert next(line for line in lines if line[:3] == ["0", "1", "5"])[-1] == "?"
    assert next(line for line in lines if line[:1] == ["depth"])[-1] == "?"
