"""A least value above the greatest is damage to every reader: such bounds would prune rows that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tblctl
from tblctl.errors import CorruptTableError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.snapshot import ColumnBounds, SegmentRef
from tblctl.tableformat.model.statistics import ColumnStatistics, CrossedBoundsError
from tblctl.tableformat.native.read import metadata
from tblctl.tableformat.native.read.metadata import SegmentSummaries

COLUMN, KEY = ("column_2_min", "column_2_max"), ("key_1_min_0", "key_1_max_0")


@pytest.fixture
def table(memory_url: str) -> tblctl.Table:
    made = tblctl.create(memory_url, "a: int64, b: int64", cluster_by="a desc")
    for first in (1, 2, 3):
        made.append(pa.table({"a": [first, first + 5], "b": [first, 9]}))
    return made


def cross(monkeypatch: pytest.MonkeyPatch, names: Sequence[str]) -> None:
    """Swap two columns of every segment that is read."""
    whole = metadata.read_segment

    def crossed(*args: Any, **words: Any) -> pa.Table:
        found = whole(*args, **words)
        present = set(names) & set(found.column_names)
        swapped = dict(zip(names, reversed(names), strict=True))
        return found.rename_columns(
            [swapped[n] if len(present) == 2 and n in swapped else n for n in found.column_names]
        )

    monkeypatch.setattr(metadata, "read_segment", crossed)


READS: dict[str, Callable[[tblctl.Table], Any]] = {
    "scan": lambda table: table.scan("b = 5").to_arrow(),
    "explain": lambda table: table.scan("b = 5").explain(),
    "dataset": lambda table: table.to_dataset(),
    "delete": lambda table: table.delete("b = 5"),
    "info of b": lambda table: table.info("b"),
    "info where": lambda table: table.info(where="b = 5"),
    "plan where": lambda table: table.plan(where="b = 5"),
    "suggest": lambda table: table.suggest(),
    "suggest for": lambda table: table.suggest(["b = 5"]),
}
KEY_READS: dict[str, Callable[[tblctl.Table], Any]] = {
    "info": lambda table: table.info(),
    "depth history": lambda table: table.depth_history(),
    "compare": lambda table: table.compare(2, 3),
    "plan": lambda table: table.plan(),
    "recluster": lambda table: table.recluster(),
}


@pytest.mark.parametrize("name", READS)
def test_crossed_bounds_of_a_column_are_damage_to_every_reader(
    table: tblctl.Table, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    READS[name](table)
    cross(monkeypatch, COLUMN)
    with pytest.raises(
        CorruptTableError, match=r"metadata/segments/\w+\.parquet is damaged: in data/\w+\.parquet"
    ):
        READS[name](table)


@pytest.mark.parametrize("name", KEY_READS)
def test_crossed_keys_are_damage_to_every_reader(
    memory_url: str, table: tblctl.Table, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cross(monkeypatch, KEY)
    with pytest.raises(CorruptTableError, match="least keys are above the greatest"):
        KEY_READS[name](table)


def test_a_picture_of_crossed_keys_is_refused(
    table: tblctl.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cross(monkeypatch, KEY)
    with pytest.raises(CorruptTableError, match="least keys are above the greatest"):
        table.picture(tmp_path / "picture.svg")


def test_crossed_bounds_in_a_snapshots_summary_of_a_segment_are_damage() -> None:
    schema = Schema.create(pa.schema([("a", pa.int64())]))
    bounds = {1: ColumnBounds(min=5, max=4, null_count=0)}
    segment = SegmentRef(path="p", size_bytes=1, block_count=1, row_count=1, data_bytes=1, bounds=bounds)
    with pytest.raises(CorruptTableError, match="bounds of a in the summaries"):
        SegmentSummaries([segment]).column(schema.leaf("a"))


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [([1, None, 3], [1, 0, None], pa.int64()), ([float("nan"), 1.0], [0.0, float("nan")], pa.float64())],
)
def test_equal_unknown_and_nan_bounds_are_not_crossed(
    low: list[Any], high: list[Any], kind: pa.DataType
) -> None:
    counts = np.zeros(len(low), np.int64)
    ColumnStatistics(min=pa.array(low, kind), max=pa.array(high, kind), null_count=counts)


def test_the_error_names_the_first_entry_that_is_crossed() -> None:
    low, high = pa.chunked_array([["a"], ["c", "z"]]), pa.chunked_array([["b", "b"], ["a"]])
    with pytest.raises(CrossedBoundsError) as caught:
        ColumnStatistics(min=low, max=high, null_count=np.zeros(3, np.int64))
    assert caught.value.place == 1
