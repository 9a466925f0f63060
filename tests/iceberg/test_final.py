"""After a final recluster, a table is measured as its outcome says, and another one finds nothing to do.

The keys are those whose files cannot be measured from the bounds of their columns.
"""

from __future__ import annotations

import datetime
import math
import random
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, StringType, TimestampType

import tblctl

from .lake import Lake, append, fields

ROWS = 2_500
APPENDS = 4
SMALL = {"write.target-file-size-bytes": "40000"}
COLUMNS = fields(
    id=LongType(),
    region=StringType(),
    ts=TimestampType(),
    text=StringType(),
    number=DoubleType(),
    sparse=IntegerType(),
    one=IntegerType(),
    noise=StringType(),
)
PREFIX = "https://example.org/a/very/long/path/that/all/of/the/rows/share/" * 2
KEYS = {
    "one column": "id",
    "two terms": "region, day(ts)",
    "long text": "text",
    "longer text than a key": "one, text desc",
    "bucket": "bucket(8, id)",
    "bucket and column": "bucket(8, id), ts",
    "truncated text": "truncate(4, region), id",
    "truncated number": "truncate(100, id)",
    "descending, nulls first": "sparse desc nulls first",
    "nulls first": "sparse nulls first, id",
    "mostly null": "sparse",
    "floats with NaN": "number",
    "floats with NaN, descending": "number desc nulls first, region",
    "constant": "one",
    "constant and column": "one, id desc",
    "hour": "hour(ts) desc",
}


def rows_of(seed: int, count: int = ROWS, *, prefix: str = PREFIX) -> dict[str, list[Any]]:
    """Return rows whose key columns all spread over their whole ranges."""
    rng = random.Random(seed)
    begin = datetime.datetime(2024, 1, 1)
    floats = [math.nan, -0.0, 0.0, math.inf, None]
    return {
        "id": [rng.randrange(1_000_000) for _ in range(count)],
        "region": [
            rng.choice(["eu-central", "eu-west", "us-east", "us-west", "ü" * 5]) for _ in range(count)
        ],
        "ts": [begin + datetime.timedelta(seconds=rng.randrange(20 * 86_400)) for _ in range(count)],
        "text": [f"{prefix}{rng.randrange(100_000):06}" for _ in range(count)],
        "number": [
            rng.choice(floats) if rng.random() < 0.3 else rng.uniform(-9.0, 9.0) for _ in range(count)
        ],
        "sparse": [rng.randrange(1000) if rng.random() < 0.2 else None for _ in range(count)],
        "one": [7] * count,
        "noise": [rng.randbytes(12).hex() for _ in range(count)],
    }


def filled(lake: Lake, *, appends: int = APPENDS, prefix: str = PREFIX, **how: Any) -> Table:
    table = lake.create("t", COLUMNS, **{"properties": SMALL, **how})
    for seed in range(appends):
        append(table, **rows_of(seed, prefix=prefix))
    return table


def all_rows(table: Table) -> list[str]:
    """Return the rows as sorted text: NaN and the sign of zero count."""
    return sorted(map(repr, table.refresh().scan().to_arrow().to_pylist()))


def require_final(table: Table, **how: Any) -> Any:
    """Recluster a table finally, and require that it is measured as the outcome says and that it is final."""
    before = all_rows(table)
    outcome = tblctl.from_iceberg(table).recluster(final=True, **how)
    assert outcome.commits
    assert all_rows(table) == before
    info = tblctl.from_iceberg(table).info()
    assert info.average_depth == pytest.approx(outcome.depth_after)
    again = tblctl.from_iceberg(table).recluster(final=True, **how)
    assert again.commits == 0, again
    without = tblctl.from_iceberg(table).recluster(final=True)  # by the key that the table keeps
    assert without.commits == 0
    return outcome


def files_of(table: Table) -> list[Any]:
    return [task.file for task in table.refresh().scan().plan_files()]


@pytest.mark.parametrize("key", KEYS)
def test_final_table_is_measured_as_its_outcome_says_and_stays(lake: Lake, key: str) -> None:
    table = filled(lake, prefix="x" * 1100 if key.startswith("longer") else PREFIX)
    outcome = require_final(table, cluster_by=KEYS[key])
    assert len(files_of(table)) > 2
    assert not key.startswith("longer") or outcome.commits == 1, "bounds alone do not tell that it is final"


@pytest.mark.parametrize("key", [key for key in KEYS if not key.startswith("longer")])
def test_final_partitions_are_measured_as_the_outcome_says_and_stay(lake: Lake, key: str) -> None:
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "region"),
        PartitionField(1, 1001, BucketTransform(2), "id_bucket"),
    )
    table = filled(
        lake,
        appends=3,
        partition_spec=spec,
        properties={"write.target-file-size-bytes": "12000"},
    )
    require_final(table, cluster_by=KEYS[key])
    assert all("/region=" in file.file_path for file in files_of(table))
    assert len(files_of(table)) > 10


@pytest.mark.parametrize("key", ["two terms", "bucket", "long text", "mostly null"])
def test_final_table_with_whole_files_stays(lake: Lake, key: str) -> None:
    """The default target: all rows become one file."""
    table = filled(lake, properties={})
    require_final(table, cluster_by=KEYS[key])
    assert len(files_of(table)) == 1


def test_partition_of_a_transform_of_the_key_stays(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(3, 1000, DayTransform(), "ts_day"))
    table = filled(lake, appends=2, partition_spec=spec)
    require_final(table, cluster_by="day(ts), id")


def test_rows_after_a_final_recluster_are_merged_and_it_is_final_again(lake: Lake) -> None:
    table = filled(lake)
    require_final(table, cluster_by="region, bucket(8, id)")
    append(table, **rows_of(77))
    assert len({file.file_path for file in files_of(table)}) > 2
    require_final(table)


def test_another_key_is_final_of_its_own(lake: Lake) -> None:
    table = filled(lake)
    require_final(table, cluster_by="region, day(ts)")
    require_final(table, cluster_by="text")
    require_final(table, cluster_by="region, day(ts)")


@pytest.mark.parametrize("seed", range(6))
def test_final_table_of_random_files_stays(lake: Lake, seed: int) -> None:
    rng = random.Random(seed)
    table = lake.create(
        "t", COLUMNS, properties={"write.target-file-size-bytes": str(rng.choice([30_000, 60_000, 150_000]))}
    )
    for place in range(rng.randrange(2, 8)):
        append(table, **rows_of(100 * seed + place, rng.randrange(1, 3_000)))
    terms = rng.sample(["region", "id desc", "day(ts)", "sparse nulls first", "number", "bucket(4, id)"], 2)
    if terms[0].count("id") and terms[1].count("id"):
        terms.pop()
    require_final(table, cluster_by=", ".join(terms))


def test_float_keys_of_neighbours_do_not_overlap(lake: Lake) -> None:
    """NaN is after all numbers, so only the keys in footers tell files of NaN apart from those of numbers."""
    table = lake.create("t", COLUMNS, properties=SMALL)
    for seed in range(2):
        rows = rows_of(seed)
        rows["number"] = [rng if place % 3 else math.nan for place, rng in enumerate(range(ROWS))]
        append(table, **rows)
    outcome = require_final(table, cluster_by="number")
    assert outcome.depth_after < 2.5
