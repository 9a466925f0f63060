"""`Table.info` and `tblctl info` on real tables."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl import errors
from tblctl.cli.main import application

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "clustering_information.json").read_text())


def table_of_blocks(location: str, blocks: list[list[Any]]) -> tblctl.Table:
    """Make a table in which every block is one append of the two keys given."""
    width = len(blocks[0][0]) if isinstance(blocks[0][0], list) else 1
    names = [f"k{place}" for place in range(width)]
    table = tblctl.create(location, pa.schema([(name, pa.int64()) for name in names]), cluster_by=names)
    for ends in blocks:
        keys = [end if isinstance(end, list) else [end] for end in ends]
        table.append(pa.table({name: [key[place] for key in keys] for place, name in enumerate(names)}))
    return table


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_golden_figures_of_real_tables(case: dict[str, Any], memory_url: str) -> None:
    found = table_of_blocks(memory_url, case["blocks"]).info().to_dict()
    expected = {name: value for name, value in case.items() if name not in {"name", "blocks"}}
    assert {name: found[name] for name in expected} == expected


# Column statistics bound composite keys and nulls wider than the keys lie.
PLAIN = [
    case for case in GOLDEN["cases"] if all(isinstance(end, int) for block in case["blocks"] for end in block)
]


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case["name"])
def test_measuring_by_a_column_agrees_with_clustering_by_it(case: dict[str, Any], memory_url: str) -> None:
    by_key = table_of_blocks(memory_url, case["blocks"])
    expected = by_key.info().to_dict()
    by_key.drop_cluster_key()
    assert by_key.info(columns="k0").to_dict() == expected


def test_an_empty_table_has_zeros(memory_url: str) -> None:
    found = tblctl.create(memory_url, "a: int64", cluster_by=["a"]).info()
    assert (found.total_block_count, found.average_depth, found.average_overlaps, found.depth.max) == (
        0,
        0.0,
        0.0,
        0,
    )
    assert found.to_dict()["block_depth_histogram"] == {}


def test_blocks_of_another_key_count_as_unclustered(memory_url: str) -> None:
    table = tblctl.create(memory_url, "a: int64, b: int64", cluster_by=["a"])
    table.append(pa.table({"a": [1, 2], "b": [2, 1]}))
    table.set_cluster_key("b")
    table.append(pa.table({"a": [1, 2], "b": [2, 1]}))
    found = table.info()
    assert (found.total_block_count, found.unclustered_block_count, found.average_depth) == (2, 1, 1.0)
    assert table.info(columns="b").unclustered_block_count == 0


def _of_another_key(url: str, blocks: int = 4) -> tblctl.Table:
    """Return a table whose blocks are all in the order of an earlier key."""
    table = tblctl.create(url, "a: int64, b: int64", cluster_by=["a"])
    for number in range(blocks):
        table.append(pa.table({"a": [number, 9], "b": [9, number]}))
    table.set_cluster_key("b")
    return table


def test_the_depth_of_blocks_that_are_all_in_another_order_is_unknown_and_not_0(memory_url: str) -> None:
    table = _of_another_key(memory_url)
    found = table.info()
    assert (found.unclustered_block_count, found.average_depth, found.average_overlaps) == (4, None, None)
    told = found.to_dict()
    assert told["depth"] == {"p50": None, "p95": None, "p99": None, "max": None}
    assert (told["average_depth"], told["average_overlaps"], told["levels"]) == (None, None, {})
    assert table.info(columns="b").average_depth == 4.0, "column statistics tell, if they are asked"
    [altered, appended, *_] = table.depth_history()
    assert (altered.average_depth, altered.source, appended.average_depth) == (None, "metadata", 4.0)


def test_the_depth_of_a_table_without_blocks_is_0(memory_url: str) -> None:
    found = tblctl.create(memory_url, "a: int64", cluster_by="a").info()
    assert (found.average_depth, found.average_overlaps, found.depth.max) == (0.0, 0.0, 0)


def test_a_recluster_after_the_key_was_altered_starts_from_an_unknown_depth(memory_url: str) -> None:
    table = _of_another_key(memory_url)
    plan = table.plan(options={"include_unclustered": True})
    assert (plan.predicted.average_depth_before, plan.predicted.average_overlaps_before) == (None, None)
    assert tblctl.Plan.from_json(plan.to_json()) == plan
    outcome = table.recluster(final=True)
    assert (outcome.depth_before, outcome.overlaps_before, outcome.depth_after) == (None, None, 1.0)
    stated = table.history(1)[0].detail["recluster"]
    assert (stated["depth_before"], stated["overlaps_before"], stated["depth_after"]) == (None, None, 1.0)
    after, before, *_ = table.depth_history()
    assert (after.average_depth, after.source) == (1.0, "summary")
    assert (before.average_depth, before.source) == (None, "summary")


def test_the_plan_of_a_table_of_unknown_depth_that_leaves_it_so_predicts_no_depth(memory_url: str) -> None:
    plan = _of_another_key(memory_url).plan()
    predicted = plan.predicted
    assert (predicted.average_depth_before, predicted.average_depth_after) == (None, None)
    assert predicted.average_overlaps_after is None
    assert plan.groups == ()
    assert tblctl.Plan.from_json(plan.to_json()) == plan


def test_tables_of_unknown_depth_come_first_in_a_survey(memory_url: str) -> None:
    deep = table_of_blocks(f"{memory_url}/deep", [[1, 5], [2, 6], [3, 7]])
    unknown = _of_another_key(f"{memory_url}/unknown")
    found = tblctl.survey([deep.location, unknown.location])
    assert [item.location for item in found] == [unknown.location, deep.location]


def test_a_term_that_statistics_cannot_bound_is_counted_apart(memory_url: str) -> None:
    table = tblctl.create(memory_url, "a: int64")
    table.append(pa.table({"a": [1, 2]}))
    found = table.info(columns="bucket(4, a)")
    assert (found.unknown_block_count, found.average_depth) == (1, None)


def test_where_measures_only_blocks_that_may_match(memory_url: str) -> None:
    table = table_of_blocks(memory_url, [[1, 5], [2, 6], [10, 12]])
    found = table.info(where="k0 < 7")
    assert (found.total_block_count, found.average_depth) == (2, 2.0)


def test_worst_ranges_are_told_in_keys_as_people_write_them(memory_url: str) -> None:
    table = tblctl.create(memory_url, "day: date32, n: decimal(5, 2)", cluster_by="day desc nulls first, n")
    for start in (0, 1):
        days = pa.array([start, 3, None], pa.int32()).cast(pa.date32())
        table.append(pa.table({"day": days, "n": pa.array(map(Decimal, (1, 2, 3)), pa.decimal128(5, 2))}))
    [found] = table.info().worst
    assert (found.min, found.max, found.depth, found.blocks, found.rows) == (
        (None, "3.00"),
        ("1970-01-02", "1.00"),
        2,
        2,
        6,
    )
    assert found.bytes == table.info().bytes


def test_worst_ranges_leave_out_blocks_that_are_in_no_figure(memory_url: str) -> None:
    table = table_of_blocks(memory_url, [[1, 5], [2, 6]])
    table.set_cluster_key("k0 desc")
    table.append(pa.table({"k0": [1, 9]}))
    assert table.info().worst == ()
    assert [found.blocks for found in table.info(columns="k0").worst] == [3]
    assert table.info(columns="bucket(4, k0)").worst == ()


def test_worst_bounds_how_many_ranges_are_told(memory_url: str) -> None:
    table = table_of_blocks(memory_url, [[1, 2], [1, 2], [5, 6], [5, 6], [8, 9], [8, 9]])
    assert [len(table.info(worst=limit).worst) for limit in (0, 2, 5)] == [0, 2, 3]
    with pytest.raises(errors.InvalidOptionError, match="worst is -1"):
        table.info(worst=-1)


def test_nan_is_the_greatest_key(memory_url: str) -> None:
    table = tblctl.create(memory_url, "x: float64", cluster_by=["x"])
    table.append(pa.table({"x": [1.0, float("nan")]}))
    table.append(pa.table({"x": [1e300, 2e300]}))
    assert table.info().average_depth == 2.0
    assert table.info(columns="x").average_depth == 2.0


def test_a_table_without_key_says_what_to_name(memory_url: str) -> None:
    table = tblctl.create(memory_url, "a: int64")
    with pytest.raises(errors.InvalidKeyError, match="--columns"):
        table.info()
    with pytest.raises(errors.InvalidKeyError, match="zz"):
        table.info(columns="zz")


def test_the_command_prints_the_same_figures(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    table = table_of_blocks(location, [[1, 5], [2, 6], [10, 12]])
    run = CliRunner().invoke(application, ["info", location, "--json"])
    assert run.exit_code == 0
    assert json.loads(run.stdout) == {**table.info().to_dict(), "last_runs": [], "options": table.options}
    shown = CliRunner().invoke(application, ["info", location])
    assert shown.exit_code == 0
    assert "1.6667 on average" in shown.stdout


CONDITIONS = {  # by what a block must hold then
    "(a = 1) IS TRUE": {1},
    "(a = 1) IS NOT TRUE": {2, 3, 2**40},
    "(a > 2) IS TRUE OR NULL": {3, 2**40},
    "a = 1099511627776": {2**40},
    "(a = 1099511627776) IS NOT FALSE": {2**40},
    "a IN (1, 3)": {1, 3},
    f"a IN (.5, {', '.join(['1', '1099511627776'] * 1_500)})": {1, 2**40},
}


@pytest.mark.parametrize("where", CONDITIONS, ids=lambda where: where[:40])
def test_versions_with_other_types_are_compared_by_a_condition_made_for_each(
    memory_url: str, where: str, tmp_path: Path
) -> None:
    """A condition made for the newer version's int32 met bounds of int64 in the older one."""
    table = tblctl.create(memory_url, "a: int32", cluster_by="a")
    for value in (1, 2, 3):
        table.append(pa.table({"a": pa.array([value], pa.int32())}))
    table.widen_column("a", "int64")
    table.append(pa.table({"a": [2**40]}))
    table.rollback(4)
    wide, narrow = 6, 7
    for before, after in ((wide, narrow), (narrow, wide), (1, wide)):
        held = [{1: set(), wide: {1, 2, 3, 2**40}, narrow: {1, 2, 3}}[at] for at in (before, after)]
        found = table.compare(before, after, where=where)
        assert [item.snapshot for item in found] == [before, after]
        assert [item.info.total_block_count for item in found] == [
            len(values & CONDITIONS[where]) for values in held
        ]
    path = tmp_path / "picture.svg"
    table.picture(path, where=where, compare=(wide, narrow))
    assert path.stat().st_size > 0


def test_versions_are_compared_by_a_condition_that_holds_for_each_of_them(memory_url: str) -> None:
    table = table_of_blocks(memory_url, [[1], [2]])
    table.add_column("b", "int64")
    head = table.snapshot.sequence
    with pytest.raises(errors.InputError, match="no column 'b'"):
        table.compare(1, head, where="(b = 1) IS TRUE")
