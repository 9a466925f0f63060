"""Partitions: no group crosses one, and depth is measured within each."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tblctl.maintain.averages import Indexing, RollingAverages
from tblctl.maintain.view import View
from tblctl.merger.engines.local import LocalEngine
from tblctl.merger.round.round import merge_round
from tblctl.selector.plan import Plan
from tblctl.tableformat.errors import InvalidDataError

from .memory_port import MemoryPort
from .subjects import SCHEMA, Twin, blocks_of, plan_of


def in_days() -> Twin:
    """Make a table of two days. In each day two blocks overlap. All blocks hold keys from 0 to 7."""
    subject = Twin(MemoryPort(SCHEMA, "k", partition_of=lambda row: f"day={row['n'] // 8}", block_rows=4))
    for _day in range(2):
        subject.append(0.0, 2.0, 4.0, 6.0)
        subject.append(1.0, 3.0, 5.0, 7.0)
    return subject


def by_day(subject: Twin) -> dict[str, list[str]]:
    """Return the paths of the blocks of each day."""
    found: dict[str, list[str]] = {}
    for path, record in subject.port.newest().records.items():
        found.setdefault(record.partition, []).append(path)
    return found


def view_of(subject: Twin) -> View:
    version = subject.port.newest()
    assert version.sort is not None
    return View.of(version, version.sort)


def grouped(subject: Twin, *groups: list[str]) -> Plan:
    """Return a plan with these groups of two blocks."""
    plan = plan_of(subject, "full")
    blocks = subject.port.newest().blocks([path for paths in groups for path in paths])
    return dataclasses.replace(
        plan,
        groups=tuple(
            dataclasses.replace(
                plan.groups[0],
                number=number,
                blocks=tuple(paths),
                rows=8,
                size_bytes=sum(blocks[path].size_bytes for path in paths),
                decoded_bytes=sum(blocks[path].decoded_bytes for path in paths),
                partition=blocks[paths[0]].partition,
            )
            for number, paths in enumerate(groups)
        ),
    )


def merge(subject: Twin, plan: Plan, **words: Any) -> list[str]:
    outcome = merge_round(subject.port, subject.port.newest(), plan, LocalEngine(), **words)
    return [group.status for group in outcome.groups]


def test_blocks_of_other_partitions_count_in_no_overlap_and_no_depth() -> None:
    found = view_of(in_days()).info(worst=3)
    assert (found.average_depth, found.average_overlaps, found.depth.max) == (2.0, 1.0, 2)
    assert found.block_depth_histogram == (("00002", 4),)
    assert {(deep.partition, deep.min, deep.max, deep.blocks) for deep in found.worst} == {
        ("day=0", (1.0,), (6.0,), 2),
        ("day=1", (1.0,), (6.0,), 2),
    }


def test_a_table_without_partitions_names_none() -> None:
    subject = Twin(MemoryPort(SCHEMA, "k", partition_of=lambda _row: ""))
    subject.append(1.0, 3.0)
    subject.append(2.0, 4.0)
    (deep,) = view_of(subject).info(worst=3).worst
    assert deep.partition is None
    assert "partition" not in deep.to_dict()


def test_a_group_that_crosses_partitions_is_refused() -> None:
    subject = in_days()
    stored = subject.stored()
    (first, *_), (second, *_) = by_day(subject).values()
    with pytest.raises(InvalidDataError, match=r"group 0 .* 2 partitions, such as 'day=0' and 'day=1'"):
        merge(subject, grouped(subject, [first, second]))
    assert subject.stored() == stored


def test_what_a_group_becomes_stays_in_its_partition() -> None:
    subject = in_days()
    rows = subject.rows()
    assert merge(subject, grouped(subject, *by_day(subject).values())) == ["committed", "committed"]
    assert subject.rows() == rows
    assert {day: len(paths) for day, paths in by_day(subject).items()} == {"day=0": 2, "day=1": 2}
    for day, paths in by_day(subject).items():
        numbers = [number for path in paths for number in subject.port.rows_of(path)["n"].to_pylist()]
        assert {f"day={number // 8}" for number in numbers} == {day}
    assert view_of(subject).info().average_depth == 1.0
    assert blocks_of(subject) == [[0.0, 3.0, 1, 4]] * 2 + [[4.0, 7.0, 1, 4]] * 2


@pytest.mark.parametrize("indexed", [False, True])
def test_rolling_figures_are_those_of_measuring_again(indexed: bool) -> None:
    subject = in_days()
    view, base = view_of(subject), subject.port.newest()
    indexing = Indexing(least_blocks=0, least_unchanged=0, bulk_share=0) if indexed else Indexing()
    rolling = RollingAverages(several=True, indexing=indexing)
    assert rolling.begin(base.id, view) == view.averages
    figures = []

    class Watch:
        def summary(self, removed: Any, added: Any) -> dict[str, Any]:
            figures.append(rolling.replaced(removed, added))
            return {}

        def committed(self, version: Any) -> None:
            rolling.keep(version.id, version.parent)
            assert figures[-1] == view_of(subject).averages

    merge(subject, grouped(subject, *by_day(subject).values()), observer=Watch())
    newest = view_of(subject)
    assert rolling.begin(subject.port.newest().id, newest) == newest.averages == figures[-1]
