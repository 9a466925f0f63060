"""Trino 476 reads, inserts, deletes, updates and optimizes between reclusters: rows and filters stay right.

It works through the tests' REST catalog, on MinIO. Part of `make test-trino`.
"""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.types import LongType
from servers import S3Server

from ..iceberg.kinds import NAMES, ROWS, SPECS, START, Row, Story
from ..iceberg.lake import Lake, append, fields
from ..iceberg.rest_catalog import RestCatalog
from .processes import OF_TEST_TRINO, TRINO, Trino, require, run_trino, value_of

pytestmark = [OF_TEST_TRINO, pytest.mark.xdist_group("trino")]

LATER = START + datetime.timedelta(hours=30)
Keeps = Callable[[Row], bool]


def known(name: str, holds: Callable[[Any], bool]) -> Keeps:
    """Return a test of rows that no null passes."""
    return lambda row: row[name] is not None and bool(holds(row[name]))


FILTERS: dict[str, Keeps] = {
    "id BETWEEN 100 AND 120": known("id", lambda v: 100 <= v <= 120),
    "small > 2147483600": known("small", lambda v: v > 2_147_483_600),
    "short = 'ü'": known("short", lambda v: v == "ü"),
    "short = ''": known("short", lambda v: v == ""),
    "day <= DATE '1969-12-31'": known("day", lambda v: v <= datetime.date(1969, 12, 31)),
    f"moment = TIMESTAMP '{START}'": known("moment", lambda v: v == START),
    f"moment > TIMESTAMP '{LATER}'": known("moment", lambda v: v > LATER),
    "moment_utc < TIMESTAMP '1970-01-01 00:00:00 UTC'": known("moment_utc", lambda v: v.timestamp() < 0),
    "price < DECIMAL '-80.00'": known("price", lambda v: v < Decimal(-80)),
    "amount = DECIMAL '10000000000000.0000'": known("amount", lambda v: v == Decimal(10**13)),
    "wide < DECIMAL '0'": known("wide", lambda v: v < 0),
    "is_nan(number)": known("number", math.isnan),
    "number > 100": known("number", lambda v: v > 100),
    "number = 0": known("number", lambda v: v == 0),
    "number <= -1": known("number", lambda v: v <= -1),
    "half = REAL '25.0'": known("half", lambda v: v == 25),
    "uid = UUID '00000005-0000-0000-0000-000000000000'": known("uid", lambda v: v == uuid.UUID(int=5 << 96)),
    "bytes > X'FE'": known("bytes", lambda v: v > b"\xfe"),
    "bytes = X''": known("bytes", lambda v: v == b""),
    "flag": known("flag", bool),
    "nested.x = 77": known("nested", lambda v: v["x"] == 77),
    "nested.deep.text >= 't9'": known("nested", lambda v: v["deep"] and (v["deep"]["text"] or "") >= "t9"),
    "empty IS NOT NULL": lambda _: False,
    "long_text IS NULL": lambda row: row["long_text"] is None,
    "constant = 8": lambda row: row["constant"] == 8,
}


@pytest.fixture(scope="module")
def lake(minio: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    require(TRINO)
    return Lake(
        tmp_path_factory.mktemp("trino-lake"),
        **{
            "warehouse": f"s3://{minio.bucket}/{uuid.uuid4().hex}",
            **minio.catalog_options,
        },
    )


@pytest.fixture(scope="module")
def trino(lake: Lake, minio: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    append(lake.create("ready", fields(id=LongType())), id=[1])
    with (
        RestCatalog(lake.catalog) as catalog,
        run_trino(tmp_path_factory.mktemp("trino"), catalog.uri, minio) as running,
    ):
        running.wait_for_nodes("SELECT * FROM ready")
        yield running


class TrinoStory(Story):
    """A story in which Trino writes, too."""

    def __init__(self, lake: Lake, trino: Trino, partitioned: str, *, name: str = "beside") -> None:
        self.trino = trino
        super().__init__(lake, f"{name}_{partitioned}", partitioned, TrinoStory.check)

    def run(self) -> None:
        for first in range(3):
            self.append(range(first, ROWS, 3))
        self.recluster("recluster", policy="full")
        self.insert(1000, lambda row: row["id"] < 40)
        self.delete("id % 5 = 0", lambda row: row["id"] % 5 == 0)
        self.recluster("recluster after deletes", policy="full")
        self.update("id % 7 = 1", lambda row: row["id"] % 7 == 1)
        self.recluster("recluster --final", policy="full", final=True)
        self.execute("optimize")
        self.append(range(ROWS, ROWS + 30))
        self.recluster("recluster after optimize", policy="full", final=True)
        self.delete("flag", lambda row: bool(row["flag"]))
        self.execute("remove_orphan_files(retention_threshold => '0s')")
        self.recluster_again()
        self.execute("optimize_manifests")
        self.execute("expire_snapshots(retention_threshold => '0s')")
        self.append(range(ROWS + 30, ROWS + 50))
        self.recluster("recluster after expiry", policy="full", final=True)
        self.opened().gc(keep=1, expire_older_than=0)
        self.checked("gc with expiry")

    def insert(self, more: int, which: Keeps) -> None:
        """Insert rows with new ids that are otherwise equal to some that are there."""
        names = ", ".join("id + 1000" if name == "id" else f'"{name}"' for name in NAMES)
        self.trino.sql(f"INSERT INTO {self.name} SELECT {names} FROM {self.name} WHERE id < 40")
        self.rows |= {id_ + more: row | {"id": id_ + more} for id_, row in self.rows.items() if which(row)}
        self.checked("insert")

    def delete(self, condition: str, which: Keeps) -> None:
        self.trino.sql(f"DELETE FROM {self.name} WHERE {condition}")
        self.rows = {id_: row for id_, row in self.rows.items() if not which(row)}
        self.checked("delete")

    def update(self, condition: str, which: Keeps) -> None:
        self.trino.sql(
            f"UPDATE {self.name} SET constant = 8, structs = NULL, by_name = NULL WHERE {condition}"
        )
        self.change(which, constant=8, structs=None, by_name=None)

    def execute(self, procedure: str) -> None:
        self.trino.sql(f"ALTER TABLE {self.name} EXECUTE {procedure}")
        self.checked(procedure)

    def recluster_again(self) -> None:
        """Recluster by the key that the table keeps, what there may be to do."""
        outcome = self.opened().recluster(policy="full")
        assert (outcome.failed_groups, outcome.conflicted_groups) == (0, 0), outcome.groups
        self.checked("recluster after orphan files went")

    def check(self) -> None:
        columns = ", ".join(f'"{name}"' for name in NAMES)
        found = self.trino.sql(f"SELECT {columns} FROM {self.name}")
        rows = [
            {name: value_of(name, value) for name, value in zip(NAMES, row, strict=True)} for row in found
        ]
        self.require("Trino", rows)
        if self.step not in ("recluster --final", "recluster after expiry"):
            return
        counted = [f"(SELECT count(*) FROM {self.name} WHERE {condition})" for condition in FILTERS]
        (counts,) = self.trino.sql(f"SELECT {', '.join(counted)}")
        expected = [sum(map(keeps, self.rows.values())) for keeps in FILTERS.values()]
        wrong = [item for item in zip(FILTERS, counts, expected, strict=True) if item[1] != item[2]]
        assert not wrong, f"{self.step}: filter, rows found, rows expected: {wrong}"

    def files_skipped(self, condition: str) -> int:
        """Return how many files Trino leaves out for a filter. Each small file is a split."""
        splits = []
        for kept in ("true", condition):
            self.trino.sql(f"SELECT id FROM {self.name} WHERE {kept}")
            splits.append(self.trino.splits)
        return splits[0] - splits[1]


@pytest.mark.parametrize("partitioned", SPECS)
def test_rows_stay_the_same_beside_trino(lake: Lake, trino: Trino, partitioned: str) -> None:
    TrinoStory(lake, trino, partitioned).run()


def test_trino_skips_files_by_the_bounds_of_a_recluster(lake: Lake, trino: Trino) -> None:
    """The keys begin with more equal characters than bounds have by default: those of key columns are whole."""
    story = TrinoStory(lake, trino, "none", name="skipping")
    story.append(range(1, ROWS))
    story.append(range(ROWS, 2 * ROWS))
    text = story.rows[77]["long_text"]
    assert story.files_skipped(f"long_text = '{text}'") == 0
    story.recluster("recluster --final", policy="full", final=True)
    count = len(list(story.table.scan().plan_files()))
    assert count > 2
    assert story.files_skipped(f"long_text = '{text}'") == count - 1
