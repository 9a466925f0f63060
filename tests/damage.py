"""Damage to one object of a small table, and what an operation then does; run as a process of its own.

    python tests/damage.py <table> <first seed> <count>

Prints a line `seed` before each case, so that the output shows which case ended the process, and a line `wrong ...` for
each failed case. A seed alone repeats a case. Tables: "sorted" and "plain", with many types, several blocks and
segments, two schemas, tombstones, and (sorted) a recluster's record; "released", the table of tests/data/format_v1,
without checksums.
"""

from __future__ import annotations

import datetime
import math
import random
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from arrow_rows import multiset

import tblctl
from tblctl.errors import TblctlError
from tblctl.tableformat.storage import Storage

RELEASED = Path(__file__).parent / "data" / "format_v1" / "table"
KINDS = {
    "data/": 8,
    "metadata/segments/": 6,
    "metadata/snapshots/": 4,
    "metadata/latest": 2,
    "metadata/records/": 1,
}
"""The prefixes of objects' names, and how often one of them is damaged."""


def schema() -> pa.Schema:
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("share", pa.float64()),
            ("half", pa.float16()),
            ("name", pa.string()),
            ("mode", pa.dictionary(pa.int32(), pa.string())),
            ("price", pa.decimal128(12, 2)),
            ("large", pa.decimal256(40, 3)),
            ("moment", pa.timestamp("ns", tz="UTC")),
            ("day", pa.date32()),
            ("flag", pa.bool_()),
            ("code", pa.binary(3)),
            ("place", pa.struct([("x", pa.float32()), ("tags", pa.list_(pa.string()))])),
            ("pairs", pa.map_(pa.string(), pa.int32())),
            ("nothing", pa.null()),
        ]
    )


def rows(first: int, count: int) -> pa.Table:
    """Return rows. Most columns have nulls, and floats have NaN."""
    ids = range(first, first + count)
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    columns = {
        "id": list(ids),
        "share": [None if n % 7 == 0 else math.nan if n % 5 == 0 else n / 4 for n in ids],
        "half": [None if n % 4 == 0 else float(n % 100) for n in ids],
        "name": [None if n % 6 == 0 else f"name {n * 7919 % 1000}" for n in ids],
        "mode": [["AIR", "MAIL", None, "RAIL"][n % 4] for n in ids],
        "price": [None if n % 9 == 0 else Decimal(n * 101) / 100 for n in ids],
        "large": [Decimal(n**9) / 1000 for n in ids],
        "moment": [moment + datetime.timedelta(hours=n) for n in ids],
        "day": [None if n % 3 == 0 else moment.date() + datetime.timedelta(days=n) for n in ids],
        "flag": [None if n % 8 == 0 else n % 2 == 0 for n in ids],
        "code": [bytes([n % 256, 1, 2]) for n in ids],
        "place": [None if n % 5 == 4 else {"x": n / 2, "tags": ["a"] * (n % 3)} for n in ids],
        "pairs": [None if n % 4 == 1 else [("k", n), ("l", None)] for n in ids],
        "nothing": [None for _ in ids],
    }
    arrays = [
        pa.array(columns[item.name], pa.float32()).cast(item.type)
        if pa.types.is_float16(item.type)
        else pa.array(columns[item.name], item.type)
        for item in schema()
    ]
    return pa.table(arrays, schema=schema())


def built(name: str) -> str:
    """Return the location of a new copy in memory of the named table."""
    url = f"memory://damage/{name}"
    if name == "released":
        for path in RELEASED.rglob("*"):
            if path.is_file():
                Storage(url).write(path.relative_to(RELEASED).as_posix(), path.read_bytes())
        return url
    options = {"block_rows": 24, "row_group_rows": 8}
    table = tblctl.create(url, schema(), cluster_by="id" if name == "sorted" else (), options=options)
    table.append(rows(0, 48))
    table.append(rows(30, 24))
    if name == "sorted":
        table.recluster(policy="full")
    table.gc(keep=1, older_than=0)
    table.rename_column("name", "title")
    table.add_column("added", pa.int16())
    table.widen_column("half", "float32")
    more = rows(100, 30).rename_columns([{"name": "title"}.get(item, item) for item in schema().names])
    more = more.set_column(2, "half", more["half"].cast(pa.float32()))
    table.append(more.append_column("added", pa.array(range(30), pa.int16())))
    table.delete("id = 3")
    return url


class Case:
    """One table, put back as it was before each case."""

    def __init__(self, name: str) -> None:
        self.url = built(name)
        self.storage = Storage(self.url)
        self.objects = {item.name: self.storage.read(item.name) for item in self.storage.list()}
        self.current = {segment.path for segment in self._table()._native.head().segments}
        self.current |= {file.path for file in self._table().files()}
        self.current |= {
            item for item in self.objects if item.startswith(("metadata/snapshots/", "metadata/records/"))
        }
        self.exact = name != "released"  # without checksums, damage may be read as other rows
        self.rows = self._table().scan().to_arrow()
        self.info = str(self._table().info(columns=["id"]).to_dict())

    def _table(self) -> tblctl.Table:
        return tblctl.open(self.url)

    def run(self, seed: int) -> str | None:
        """Return the failure of the case of a seed, or None."""
        rng = random.Random(seed)
        for item in list(self.storage.list()):
            if item.name not in self.objects:
                self.storage.delete([item.name])
        for name, data in self.objects.items():
            self.storage.write(name, data)
        names, what = damage(rng, self.objects, flip_snapshots=self.exact)
        for name, data in names.items():
            self.storage.write(name, data)
        operation = rng.choice(sorted(OPERATIONS))
        try:
            problem = OPERATIONS[operation](self, rng, frozenset(names))
        except TblctlError:
            return None
        except (OSError, pa.ArrowException) as error:
            problem = None if operation == "to_dataset" else f"raised {error!r}"
        except Exception as error:
            problem = f"raised {error!r}"
        return f"{operation} after {what} of {', '.join(names)}: {problem}" if problem else None

    def compared(self, found: pa.Table, expected: pa.Table) -> str | None:
        if not self.exact or multiset(found) == multiset(expected):
            return None
        return f"{found.num_rows} rows that differ, expected {expected.num_rows}"

    def scanned(self, expected: pa.Table) -> str | None:
        """Compare the table after a change; damage elsewhere may still be in it."""
        return self.compared(self._table().scan().to_arrow(), expected)

    # -- operations

    def scan(self, _rng: random.Random, _names: frozenset[str]) -> str | None:
        return self.scanned(self.rows)

    def where(self, rng: random.Random, _names: frozenset[str]) -> str | None:
        least = rng.randrange(0, 130)
        found = self._table().scan(f"id >= {least}").to_arrow()
        return self.compared(found, self.rows.filter(pc.field("id") >= least))

    def dataset(self, _rng: random.Random, _names: frozenset[str]) -> str | None:
        return self.compared(self._table().to_dataset().to_table(), self.rows)

    def delete(self, rng: random.Random, _names: frozenset[str]) -> str | None:
        least = rng.randrange(0, 130)
        self._table().delete(f"id >= {least} and id <= {least + 5}")
        inside = (pc.field("id") >= least) & (pc.field("id") <= least + 5)
        return self.scanned(self.rows.filter(~inside))

    def update(self, rng: random.Random, _names: frozenset[str]) -> str | None:
        least = rng.randrange(0, 130)
        flag = "flag" in self.rows.column_names
        self._table().update("flag = NULL" if flag else "note = NULL", f"id >= {least}")
        name = "flag" if flag else "note"
        place = self.rows.column_names.index(name)
        kept = pc.if_else(pc.greater_equal(self.rows["id"], least), None, self.rows[name])
        return self.scanned(self.rows.set_column(place, self.rows.schema.field(place), kept))

    def recluster(self, _rng: random.Random, _names: frozenset[str]) -> str | None:
        if self._table().cluster_by:
            self._table().recluster(policy="full")
        return self.scanned(self.rows)

    def told(self, _rng: random.Random, _names: frozenset[str]) -> str | None:
        found = str(self._table().info(columns=["id"]).to_dict())
        return None if found == self.info or not self.exact else f"info is {found}"

    def check(self, _rng: random.Random, names: frozenset[str]) -> str | None:
        report = self._table().check(deep=True)
        changed = any(self.storage.read(name) != self.objects[name] for name in names & self.current)
        return "check found nothing" if changed and report.ok and self.exact else None


OPERATIONS = {
    "scan": Case.scan,
    "where": Case.where,
    "to_dataset": Case.dataset,
    "delete": Case.delete,
    "update": Case.update,
    "recluster": Case.recluster,
    "info": Case.told,
    "check": Case.check,
}


def damage(
    rng: random.Random, objects: dict[str, bytes], *, flip_snapshots: bool
) -> tuple[dict[str, bytes], str]:
    """Damage some objects. Return their new contents, and a description.

    A flip in a snapshot without a checksum may give another valid table, which cannot be detected.
    """
    kinds = {kind: weight for kind, weight in KINDS.items() if any(name.startswith(kind) for name in objects)}
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    names = sorted(name for name in objects if name.startswith(kind))
    name, other = rng.choice(names), rng.choice(names)
    whole = flip_snapshots or kind != "metadata/snapshots/"
    what = rng.choices(
        ["flip", "bytes", "cut", "swap", "copy", "zeros"], [8, 2, 1, 1, 1, 1] if whole else [0, 0, 1, 1, 1, 0]
    )[0]
    data = bytearray(objects[name])
    place = rng.randrange(len(data)) if rng.random() < 0.5 else len(data) - 1 - rng.randrange(len(data) // 3)
    if what == "swap":
        return {name: objects[other], other: objects[name]}, what
    if what == "copy":
        return {other: objects[name]}, what
    if what == "cut":
        return {name: bytes(data[:place])}, f"cut at {place}"
    if what == "zeros":
        data[place : place + 8] = bytes(len(data[place : place + 8]))
    elif what == "bytes":
        data[place : place + 4] = rng.randbytes(len(data[place : place + 4]))
    else:
        data[place] ^= 1 << rng.randrange(8)
    return {name: bytes(data)}, f"{what} at {place}"


def main() -> None:
    name, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    case = Case(name)
    for seed in range(first, first + count):
        print("seed", seed, flush=True)
        problem = case.run(seed)
        if problem:
            print("wrong", seed, problem, flush=True)


if __name__ == "__main__":
    main()
