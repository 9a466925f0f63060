"""A table with columns of every kind, changed by PyIceberg and tblctl in turn, for what other readers see of it.

`Story` knows the rows as they should be. Readers select `columns_in(DIALECT)`.
"""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from .duck import Duck
from .lake import Lake
from .position_deletes import delete_rows

Row = dict[str, Any]

START = datetime.datetime(1969, 12, 30, 23, 59, 59, 999_999)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
PREFIX = "https://example.org/a/very/long/path/that/all/of/the/rows/share/"
DOUBLES = (math.nan, -0.0, 0.0, math.inf, -math.inf, 0.1)
ROWS = 240
DELETED_FROM = 200
SPECS = {
    "none": PartitionSpec(),
    "bucket": PartitionSpec(PartitionField(2, 1000, BucketTransform(3), "id_bucket")),
    "day": PartitionSpec(PartitionField(7, 1000, DayTransform(), "moment_day")),
    "identity": PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "short")),
}
KEYS = {"none": "long_text", "bucket": "day(moment), id", "day": "id desc", "identity": "number, id"}


def _nested(first_id: int) -> StructType:
    return StructType(
        NestedField(first_id, "x", IntegerType()),
        NestedField(
            first_id + 1,
            "deep",
            StructType(
                NestedField(first_id + 2, "text", StringType()),
                NestedField(first_id + 3, "at", TimestampType()),
            ),
        ),
    )


SCHEMA = Schema(
    NestedField(1, "small", IntegerType()),
    NestedField(2, "id", LongType(), required=True),
    NestedField(3, "flag", BooleanType()),
    NestedField(4, "short", StringType()),
    NestedField(5, "long_text", StringType()),
    NestedField(6, "day", DateType()),
    NestedField(7, "moment", TimestampType()),
    NestedField(8, "moment_utc", TimestamptzType()),
    NestedField(9, "price", DecimalType(9, 2)),
    NestedField(10, "amount", DecimalType(18, 4)),
    NestedField(11, "wide", DecimalType(38, 3)),
    NestedField(12, "number", DoubleType()),
    NestedField(13, "half", FloatType()),
    NestedField(14, "bytes", BinaryType()),
    NestedField(15, "uid", UUIDType()),
    NestedField(16, "nested", _nested(17)),
    NestedField(21, "items", ListType(22, LongType(), element_required=False)),
    NestedField(23, "structs", ListType(24, _nested(25), element_required=False)),
    NestedField(29, "by_name", MapType(30, StringType(), 31, IntegerType(), value_required=False)),
    NestedField(32, "empty", StringType()),
    NestedField(33, "constant", LongType()),
)


def row_of(id_: int) -> Row:
    """Return the row with an id: most columns are null in some rows.

    PyIceberg 0.12 takes a null list of structs for an empty one.
    """
    at = START + datetime.timedelta(hours=7 * (id_ % 11), microseconds=id_)
    row: Row = {
        "small": 2**31 - 1 - id_,
        "flag": id_ % 2 == 0,
        "short": ("eu", "us", "ü", "")[id_ % 4],
        "long_text": f"{PREFIX}{id_ * 7919 % 10_007:05}{'é' * (id_ % 3)}",
        "day": at.date(),
        "moment": at,
        "moment_utc": at.replace(tzinfo=datetime.UTC),
        "price": Decimal(f"{id_ * 37 - 9_000}E-2"),
        "amount": Decimal(f"{10**17 - id_ * 10**14}E-4"),
        "wide": Decimal(f"{(-1) ** id_ * (10**37 + id_)}E-3"),
        "number": DOUBLES[id_ % 7] if id_ % 7 < len(DOUBLES) else id_ / 3,
        "half": math.nan if id_ % 13 == 0 else id_ / 4,
        "bytes": bytes([255 - id_ % 3, id_ % 256, 0]) * (id_ % 9),
        "uid": uuid.UUID(int=id_ << 96 | id_ % 5),
        "nested": _struct_of(id_),
        "items": [None if n % 4 == 3 else id_ + n for n in range(id_ % 6)],
        "structs": [_struct_of(id_ + n) for n in range(id_ % 3)],
        "by_name": {f"k{n}": None if n == 2 else id_ * n for n in range(id_ % 4)},
        "empty": None,
        "constant": 7,
    }
    absent = {
        name
        for place, name in enumerate(row)
        if (id_ + place) % 17 == 0 and name not in ("constant", "structs")
    }
    return {"id": id_} | {name: None if name in absent else value for name, value in row.items()}


def _struct_of(id_: int) -> Row | None:
    deep = {"text": f"t{id_}" if id_ % 5 else None, "at": START + datetime.timedelta(seconds=id_)}
    return None if id_ % 10 == 9 else {"x": id_, "deep": deep if id_ % 7 else None}


def arrow_rows(table: Table, rows: Iterable[Row]) -> pa.Table:
    """Return rows as PyIceberg appends them."""
    schema = table.schema().as_arrow()
    found = [row | {"uid": row["uid"] and row["uid"].bytes} for row in rows]
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in found], schema=schema)


def plain(value: Any) -> Any:
    """Return a value in a form that is the same from every reader: times as microseconds, the rest as text."""
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return (aware - EPOCH) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, Decimal | uuid.UUID):
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    if isinstance(value, Mapping):
        return {name: plain(found) for name, found in value.items()}
    if isinstance(value, list | tuple):
        return [plain(found) for found in value]
    return value


def text_of(row: Row) -> dict[str, str]:
    """Return the values of a row as text: NaN equals NaN, and -0.0 is not 0.0."""
    return {name: repr(_entries(name, value)) for name, value in row.items()}


def _entries(name: str, value: Any) -> Any:
    """Return a column's value; maps as sorted pairs, from a dictionary, a list of pairs, or of `map_entries`."""
    value = plain(value)
    if name != "by_name" or value is None:
        return value
    if isinstance(value, dict):
        value = list(value.items())
    return sorted([pair["key"], pair["value"]] if isinstance(pair, dict) else list(pair) for pair in value)


NAMES = [field.name for field in SCHEMA.fields]
FLAT = [field.name for field in SCHEMA.fields if field.field_type.is_primitive]
SPARK = {
    "day": "CAST(day AS STRING)",
    "moment": "unix_micros(CAST(moment AS TIMESTAMP))",
    "moment_utc": "unix_micros(moment_utc)",
    "price": "CAST(price AS STRING)",
    "amount": "CAST(amount AS STRING)",
    "wide": "CAST(wide AS STRING)",
    "bytes": "hex(bytes)",
    "by_name": "map_entries(by_name)",
    "nested": (
        "IF(nested IS NULL, NULL, named_struct('x', nested.x, 'deep', IF(nested.deep IS NULL, NULL, "
        "named_struct('text', nested.deep.text, 'at', unix_micros(CAST(nested.deep.at AS TIMESTAMP))))))"
    ),
    "structs": (
        "transform(structs, s -> IF(s IS NULL, NULL, named_struct('x', s.x, 'deep', IF(s.deep IS NULL, NULL, "
        "named_struct('text', s.deep.text, 'at', unix_micros(CAST(s.deep.at AS TIMESTAMP)))))))"
    ),
}
DUCKDB = {
    "day": "CAST(day AS VARCHAR)",
    "moment": "epoch_us(moment)",
    "moment_utc": "epoch_us(moment_utc)",
    "price": "CAST(price AS VARCHAR)",
    "amount": "CAST(amount AS VARCHAR)",
    "wide": "CAST(wide AS VARCHAR)",
    "bytes": "hex(bytes)",
    "uid": "CAST(uid AS VARCHAR)",
    "by_name": "map_entries(by_name)",
    "nested": (
        "CASE WHEN nested IS NOT NULL THEN {'x': nested.x, 'deep': CASE WHEN nested.deep IS NOT NULL THEN "
        "{'text': nested.deep.text, 'at': epoch_us(nested.deep.at)} END} END"
    ),
    "structs": (
        "list_transform(structs, lambda s: CASE WHEN s IS NOT NULL THEN {'x': s.x, "
        "'deep': CASE WHEN s.deep IS NOT NULL THEN {'text': s.deep.text, 'at': epoch_us(s.deep.at)} END} END)"
    ),
}


def columns_in(dialect: Mapping[str, str], names: Sequence[str] = ()) -> str:
    """Return what to select: the columns with some names, or all."""
    return ", ".join(f"{dialect.get(name, name)} AS {name}" for name in names or NAMES)


def spark_queries(table: str) -> list[str]:
    """Return queries that read the rows: the first one with the vectorised reader, which takes no nested column."""
    return [f"SELECT {columns_in(SPARK, names)} FROM {table}" for names in (FLAT, NAMES)]


def rows_by_duckdb(duck: Duck, story: Story) -> list[Row]:
    """Return all rows that DuckDB reads."""
    location = story.table.metadata_location
    return duck.named(f"SELECT {columns_in(DUCKDB)} FROM iceberg_scan('{location}')", NAMES)


class Story:
    """A table, its rows as they should be, and the steps that change it.

    Args:
        lake: of the table.
        name: of the table.
        partitioned: of `SPECS`.
        check: called after every step.
    """

    def __init__(
        self, lake: Lake, name: str, partitioned: str, check: Callable[[Story], None], **properties: str
    ) -> None:
        small = {"write.target-file-size-bytes": "15000", "format-version": "2"}
        self.table = lake.create(
            name, SCHEMA, partition_spec=SPECS[partitioned], properties=small | properties
        )
        self.name = f"db.{name}"
        self.key = KEYS[partitioned]
        self.rows: dict[int, Row] = {}
        self.changed = False
        self.step = "create"
        self.opened = lambda: lake.open(name)
        self._check = check

    def change(self, which: Callable[[Row], bool], **values: Any) -> None:
        """Take over values that another engine wrote."""
        self.rows = {id_: row | values if which(row) else row for id_, row in self.rows.items()}
        self.changed = True
        self.checked("update")

    def require(self, reader: str, rows: Iterable[Row], *, unlike: Collection[str] = ()) -> None:
        """Compare the rows that a reader sees with those that are there: how many, and every value it gave.

        `unlike` are columns that it cannot read: PyIceberg 0.12 takes null lists of structs for empty ones.
        """
        found = sorted(rows, key=lambda row: row["id"])
        assert [row["id"] for row in found] == sorted(self.rows), f"{reader}, {self.step}"
        wrong = [
            f"{row['id']}: {name} is {value}, not {expected}"
            for row in found
            for expected_row in [text_of(self.rows[row["id"]])]
            for name, value in text_of(row).items()
            if name not in unlike and value != (expected := expected_row[name])
        ]
        assert not wrong, f"{reader}, {self.step}: {len(wrong)} values, {wrong[:3]}"

    def run(self) -> None:
        """Append, recluster, recluster finally, delete, recluster, gc and gc with expiry."""
        for first in range(3):
            self.append(range(first, ROWS, 3))
        self.recluster("recluster", policy="full")
        self.append(range(ROWS, ROWS + 40))
        self.recluster("recluster --final", policy="full", final=True)
        self._delete()
        self._delete_merge_on_read()
        self.append(range(ROWS + 40, ROWS + 60))
        self.recluster("recluster after deletes", policy="full", final=True)
        self.opened().gc()
        self.checked("gc")
        assert self.opened().gc(keep=1, expire_older_than=0).snapshots_expired
        self.checked("gc with expiry")

    def append(self, ids: Iterable[int]) -> None:
        rows = {id_: row_of(id_) for id_ in ids}
        self.table.refresh().append(arrow_rows(self.table, rows.values()))
        self.rows |= rows
        self.checked("append")

    def recluster(self, step: str, **how: Any) -> None:
        outcome = self.opened().recluster(cluster_by=self.key, **how)
        assert (outcome.failed_groups, outcome.conflicted_groups) == (0, 0), outcome.groups
        # Files of partitions that new rows do not overlap with may be in order already, and then nothing is committed.
        assert outcome.commits > 0 or self.opened().info().average_depth == 1.0
        self.checked(step)

    def _delete(self) -> None:
        """Delete some rows of most files, and all of the last ones."""
        self.table.refresh().delete(EqualTo("flag", True))
        self.table.refresh().delete(GreaterThanOrEqual("id", DELETED_FROM))
        self.rows = {
            id_: row for id_, row in self.rows.items() if row["flag"] is not True and id_ < DELETED_FROM
        }
        self.checked("delete")

    def _delete_merge_on_read(self) -> None:
        """Delete the first and the fourth row of two files by position deletes."""
        for task in list(self.table.scan().plan_files())[:2]:
            path = task.file.file_path
            ids = pq.read_table(path.removeprefix("file://"), columns=["id"])["id"].to_pylist()
            places = [place for place in (0, 3) if place < len(ids)]
            delete_rows(self.table.refresh(), {path: places}, like=task.file)
            for place in places:
                del self.rows[ids[place]]
        self.checked("merge-on-read delete")

    def checked(self, step: str) -> None:
        self.step = step
        self.table = self.table.refresh()
        self.require(
            "PyIceberg", self.table.scan().to_arrow().to_pylist(), unlike={"structs"} if self.changed else ()
        )
        checked = self.opened().check(deep=True)
        assert checked.problems == (), f"check --deep, {step}"
        self._check(self)
