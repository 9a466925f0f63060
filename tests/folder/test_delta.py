"""Delta tables: measured from their log, or refused by the name of what would make figures wrong."""

from __future__ import annotations

import base64
import datetime
import json
import shlex
import struct
import sys

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.main import application
from tblctl.errors import (
    CorruptTableError,
    InvalidOptionError,
    TableNotFoundError,
    UnsupportedBackendError,
    UnsupportedFormatError,
)
from tblctl.tableformat.delta.log import to_object_store

from .files import write

deltalake = pytest.importorskip("deltalake")
UTC = datetime.UTC
WIDER = ["timestampNtz", "typeWidening"]


def put(place, columns, **how):
    rows = columns if isinstance(columns, pa.Table) else pa.table(columns)
    deltalake.write_deltalake(str(place), rows, mode="append", **how)


def edited(place, **changes):
    """Change actions of the first commit: `metaData={..}` updates that action, and so on."""
    path = place / "_delta_log" / "00000000000000000000.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for name, change in changes.items():
        for action in actions:
            if name in action:
                action[name] |= change
    path.write_text("\n".join(map(json.dumps, actions)))


def test_files_of_the_log_are_measured_and_no_others(tmp_path):
    for number in range(4):
        put(tmp_path, {"at": [number, 10 + number], "id": [2 * number, 2 * number + 1]})
    deltalake.DeltaTable(str(tmp_path)).delete("at = 3")
    put(tmp_path, {"at": [None], "id": [99]})
    for location in (tmp_path, f"delta:{tmp_path}"):
        table = tblctl.open(location)
        found = table.info("at")
        assert (type(table).__name__, found.rows, found.total_block_count) == ("DeltaTable", 8, 5)
        assert (found.average_depth, table.info("id").average_depth) == (2.2, 1.0)
        assert table.info("id", where="at >= 12").rows == 3
        assert table.snapshot.sequence == "5"
    assert table.suggest(["at = 1"] * 3).candidates[0].terms == ("at",)


def test_partition_columns_have_the_values_of_the_log(tmp_path):
    for year, day in ((2024, "a b"), (2025, None)):
        put(
            tmp_path,
            {"id": [1], "year": [year], "day": pa.array([day], pa.string())},
            partition_by=["year", "day"],
        )
    table = tblctl.open(tmp_path)
    assert table.schema.names == ["id", "year", "day"]
    assert table.folder_columns == ()
    found = table.info("day, year")
    assert (found.average_depth, found.inexact_block_count) == (1.0, 0)
    assert table.info("id", where="year = 2024").rows == 1


def test_bounds_that_the_log_cuts_hold_all_values_and_count_as_inexact(tmp_path):
    last = datetime.datetime(2024, 1, 1, 0, 0, 0, 123_456, UTC)
    moments = pa.array([datetime.datetime(2024, 1, 1, tzinfo=UTC), last], pa.timestamp("us", "UTC"))
    wide = pa.array([1, 2], pa.int64()).cast(pa.decimal128(38, 0))
    put(tmp_path, pa.table({"t": moments, "s": ["a", "b"], "d": wide, "f": [0.5, 1.5]}))
    table = tblctl.open(tmp_path)
    assert table.info("s", where="t = timestamp '2024-01-01 00:00:00.123456 UTC'").rows == 2
    assert table.info("s", where="t > timestamp '2024-01-01 00:00:00.125 UTC'").rows == 0
    for column in ("t", "s", "f"):
        assert table.info(column).inexact_block_count == 1, column
    assert table.info("d").unknown_block_count == 1


def test_a_table_without_files_or_without_a_version_is_named(tmp_path):
    (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
    write(tmp_path / "empty", "a.parquet", {"x": [1]})
    with pytest.raises(TableNotFoundError, match=r"no Delta table at .*empty: its _delta_log has no version"):
        tblctl.open(tmp_path / "empty")
    with pytest.raises(UnsupportedFormatError, match=r"is a Delta table: .*delta:PATH"):
        tblctl.import_parquet(tmp_path / "empty", tmp_path / "t")
    with pytest.raises(TableNotFoundError, match="no Delta table"):
        tblctl.open(f"delta:{tmp_path}/missing")
    put(tmp_path / "none", {"x": [1]})
    deltalake.DeltaTable(str(tmp_path / "none")).delete()
    with pytest.raises(TableNotFoundError, match="has no files"):
        tblctl.open(tmp_path / "none")


def z85(data):
    """Return bytes in base 85 with the letters of ZeroMQ's RFC 32, which Delta uses; Python's are others."""
    mine = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    theirs = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    padded = data + b"\0" * (-len(data) % 4)
    return base64.b85encode(padded).decode().translate(str.maketrans(mine, theirs))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}, "column mapping .*= name"),
        ({"protocol": {"readerFeatures": WIDER, "writerFeatures": WIDER}}, "does not know: typeWidening"),
        ({"add": {"stats": None}}, "without statistics of 1 of 1 files: `ANALYZE"),
    ],
)
def test_what_would_make_figures_wrong_is_refused_by_name(tmp_path, changes, problem):
    at = pa.array(
        [datetime.datetime(2024, 1, 1)], pa.timestamp("us")
    )  # a moment without a zone makes features
    put(tmp_path, pa.table({"x": [1], "at": at}))
    edited(tmp_path, **changes)
    with pytest.raises(UnsupportedFormatError, match=problem):
        tblctl.open(tmp_path).info("x")


def test_deletion_vectors_are_refused_and_the_feature_alone_is_not(tmp_path):
    put(tmp_path, pa.table({"x": [1], "at": pa.array([datetime.datetime(2024, 1, 1)], pa.timestamp("us"))}))
    both = ["deletionVectors", "timestampNtz"]
    edited(tmp_path, protocol={"readerFeatures": both, "writerFeatures": both})
    assert tblctl.open(tmp_path).info("x").rows == 1
    # One row, by Delta's protocol: its magic, one bitmap of the key 0, of one container with the value 0.
    bitmap = struct.pack("<IQIIIHHIH", 1_681_511_377, 1, 0, 12_346, 1, 0, 0, 16, 0)
    vector = {"storageType": "i", "pathOrInlineDv": z85(bitmap), "sizeInBytes": len(bitmap), "cardinality": 1}
    edited(tmp_path, add={"deletionVector": vector})
    with pytest.raises(UnsupportedFormatError, match=r"deletion vectors, of 1 files.*PURGE"):
        tblctl.open(tmp_path)


def test_a_damaged_log_and_a_missing_package_are_named(tmp_path, monkeypatch):
    put(tmp_path, {"x": [1]})
    path = tmp_path / "_delta_log" / "00000000000000000000.json"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(CorruptTableError, match=f"{tmp_path} cannot be read as a Delta table"):
        tblctl.open(tmp_path)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(UnsupportedBackendError, match=r"pip install '\.\[delta\]'"):
        tblctl.open(tmp_path)


def test_what_is_for_tables_is_refused_and_the_next_command_makes_one(tmp_path, monkeypatch):
    for number in range(3):
        put(tmp_path / "d", {"at": [number, 10 + number]})
    table = tblctl.open(tmp_path / "d")
    with pytest.raises(InvalidOptionError, match=r"recluster is for tables; .* is a Delta table"):
        table.recluster()
    with pytest.raises(InvalidOptionError, match="newest version only"):
        tblctl.open(tmp_path / "d", as_of=1)
    shown = CliRunner().invoke(application, ["info", f"delta:{tmp_path}/d", "--columns", "at"]).output
    command = shown.splitlines()[-1].strip()
    assert command == table.first_steps("at")
    monkeypatch.chdir(tmp_path)
    python, option, code = shlex.split(command)
    assert (python, option) == ("python", "-c")
    exec(code, {})
    assert tblctl.open("NEW").snapshot.rows == 6


def test_options_of_the_storage_become_those_of_deltalake():
    given = {"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:9", "AWS_REGION": "eu"}
    assert to_object_store(given) == {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "eu",
    }
    assert to_object_store({"client_kwargs": {"region_name": "eu"}, "anon": True}) == {
        "AWS_REGION": "eu",
        "AWS_SKIP_SIGNATURE": "true",
    }
    with pytest.raises(InvalidOptionError, match="profile has no counterpart"):
        to_object_store({"profile": "x"})
