"""A table whose groups get sorts beside the cluster key: figures, plans and rounds that tell these sorts apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tblctl
from tblctl import policies
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
