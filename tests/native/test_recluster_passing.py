"""Blocks that pass through a sort of everything: their files are neither read nor written nor deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import kill_points, storage_calls
from tables import SCHEMA, Places, assert_sound, ids_of, named_objects, objects_of, places, rows, shape_of

import tblctl

FULL = ([11, 12, 13, 14], [31, 32, 33, 34])
PAIR = ([21, 23, 25, 27], [22, 24, 26, 28])
IDS = sorted(number for ids in (*FULL, *PAIR) for number in ids)


@pytest.fixture(params=["memory", "local"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    yield from places(request.param, tmp_path)


def build(url: str) -> set[str]:
    """Make a table of full blocks. Two of them overlap. Return the paths of the others."""
    table = tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 4})
    for ids in (*FULL, *PAIR):
        table.append(rows(*ids))
    return passing(url)


def passing(url: str) -> set[str]:
    """Return the paths of the blocks that no merge took, nor is to take."""
    pair = {min(ids) for ids in PAIR}
    return {block.path for block in tblctl.open(url).files() if block.level == 0 and block.min[0] not in pair}


def recluster(url: str) -> tblctl.Outcome:
    return tblctl.open(url).recluster(policy="full", final=True)


def test_only_the_blocks_that_overlap_are_read_and_written(at: Places) -> None:
    url = at.fresh()
    stay = build(url)
    done: list[tblctl.Outcome] = []
    calls = storage_calls(lambda: done.append(recluster(url)))
    touched = {name for call in calls for name in call.names if name.startswith("data/")}
    assert len(touched) == 4  # two read, two written
    assert not touched & stay
    (outcome,) = done
    assert (outcome.rounds, outcome.blocks_in, outcome.blocks_out, outcome.rows) == (1, 2, 2, 8)
    assert passing(url) == stay
    assert ids_of(tblctl.open(url)) == IDS
    assert tblctl.open(url).info().average_depth == 1
    assert_sound(tblctl.open(url))


def test_where_every_block_passes_through_nothing_is_committed(at: Places) -> None:
    url = at.fresh()
    build(url)
    recluster(url)
    again = recluster(url)
    assert (again.rounds, again.snapshot) == (0, None)
    assert "the same again" in again.note


@pytest.mark.parametrize("at", ["memory"], indirect=True)
def test_a_kill_at_any_storage_call_leaves_what_passes_through(at: Places) -> None:
    template = at.fresh()
    stay = build(template)
    trial, objects, shapes = at.copy(template), objects_of(template), set()
    points = kill_points(lambda: tblctl.open(trial).recluster(policy="full"))
    for point in points:
        url = at.renew(template)
        point.kill(lambda url=url: tblctl.open(url).recluster(policy="full"))
        shape = shape_of(url, objects)
        if shape in shapes:
            continue
        shapes.add(shape)
        table = tblctl.open(url)
        assert ids_of(table) == IDS, str(point)
        table.recluster(policy="full")
        table.gc(keep=1, older_than=0)
        assert passing(url) == stay, str(point)
        assert ids_of(table) == IDS, str(point)
        assert set(objects_of(url)) - {"metadata/latest"} == named_objects(table), str(point)
        assert_sound(table)
