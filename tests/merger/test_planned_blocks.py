"""What a plan says of its groups is compared with their blocks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tblctl.merger.round.planned_blocks import refuse_other_figures
from tblctl.tableformat.errors import InvalidDataError


@pytest.mark.parametrize(
    ("said", "now"),
    [
        (None, ""),
        ("", "(spec 0)"),  # an Iceberg table whose partition spec changed since the plan
        ("region=eu", "region=eu (spec 1)"),
        ("region=eu (spec 1)", "region=eu"),
        ("region=null #0123456789ab", "region=null (spec 1) #0123456789ab"),
        ("region=null", "region=null #0123456789ab"),  # since then there is a partition of the text `null`
        ("", "#0123456789ab"),
        ("a=line\n", "a=line\n (spec 1)"),
    ],
)
def test_a_partition_keeps_its_name_whatever_specs_a_table_has(said: str | None, now: str) -> None:
    group = SimpleNamespace(number=3, partition=said, rows=7)
    refuse_other_figures(group, {"rows": 7}, {now})
    with pytest.raises(InvalidDataError, match="group 3 of the plan: rows is 7, expected 8"):
        refuse_other_figures(group, {"rows": 8}, {now})
    group.partition = "region=us"
    with pytest.raises(InvalidDataError, match="partition is 'region=us'"):
        refuse_other_figures(group, {"rows": 7}, {now})


@pytest.mark.parametrize(
    ("said", "now"),
    [
        ("region=eu (spec 1)", "region=eu (spec 2)"),
        ("region=null #0123456789ab", "region=null #ba9876543210"),
        ("region=eu", "region=eu "),
        ("a=x\n", "a=x"),
        ("(spec 1)", "region=eu"),
    ],
)
def test_partitions_whose_names_contradict_each_other_are_two(said: str, now: str) -> None:
    group = SimpleNamespace(number=3, partition=said, rows=7)
    with pytest.raises(InvalidDataError, match="partition is"):
        refuse_other_figures(group, {"rows": 7}, {now})
