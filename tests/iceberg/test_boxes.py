"""Figures of the boxes of Iceberg files."""

from __future__ import annotations

import itertools

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from tblctl.maintain.boxes import boxes_of

from .lake import Lake, append, fields, version_of


def test_iceberg_files_are_measured_alike_and_those_without_bounds_counted_apart(lake: Lake) -> None:
    table = lake.create("t", fields(a=LongType(), b=LongType()))
    for x, y in itertools.product((0, 10), repeat=2):
        append(table, a=[x, x + 9], b=[y, y + 9])
    table.transaction().set_properties({"write.metadata.metrics.column.b": "none"}).commit_transaction()
    append(table, a=[0, 99], b=[0, 99])
    found = boxes_of(version_of(table), (1, 2))
    assert lake.open("t").info("a, b", boxes=True).boxes == found
    assert (found.columns, found.total_block_count, found.unknown_block_count) == (("a", "b"), 5, 1)
    assert found.depth.mean == 1.0
    assert [read.share for read in found.reads] == pytest.approx([0.51, 0.51, 0.51**2])


def test_files_of_different_partitions_do_not_count_for_each_other(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "p"))
    table = lake.create("t", fields(a=LongType(), b=LongType(), p=LongType()), partition_spec=spec)
    for _ in range(2):
        append(table, a=[0, 9, 0, 9, 0, 9], b=[0, 9, 0, 9, 0, 9], p=[1, 1, 2, 2, 3, 3])
    assert boxes_of(version_of(table), (1, 2)).depth.mean == 2.0
