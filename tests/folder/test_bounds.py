"""Bounds of columns are those of the rows: over row groups, types, nulls, and files that differ."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tblctl
from tblctl.errors import SchemaMismatchError
from tblctl.tableformat.folder import footers
from tblctl.tableformat.folder.footers import read_parts
from tblctl.tableformat.folder.listing import list_files
from tblctl.tableformat.folder.names import Chosen
from tblctl.tableformat.folder.version import FolderVersion
from tblctl.tableformat.storage import Storage

from .files import write


def version_of(folder, **limits):
    storage = Storage(folder)
    files = list_files(storage, Chosen())
    return FolderVersion(str(folder), files, lambda: read_parts(storage, files, **limits))


def bounds_of(version, name):
    leaf = version.schema.leaf(name)
    return version.measured.column(leaf), version.measured.is_exact(leaf)


DAYS = [datetime.date(2024, 1, day) for day in (3, 1, 9, 4, 7, 5)]
TIMES = [datetime.datetime(2024, 1, day, 12, 30) for day in (3, 1, 9, 4, 7, 5)]
VALUES = {
    "int8": pa.array([3, -1, 9, 4, 7, 5], pa.int8()),
    "uint64": pa.array([3, 1, 2**64 - 1, 4, 7, 2**63], pa.uint64()),
    "bool": pa.array([True, True, True, True, True, True]),
    "decimal": pa.array([decimal.Decimal(n) / 100 for n in (3, -1, 9, 4, 7, 5)], pa.decimal128(9, 2)),
    "decimal_large": pa.array([decimal.Decimal(n) / 100 for n in (3, -1, 9, 4, 7, 5)], pa.decimal128(30, 2)),
    "date32": pa.array(DAYS, pa.date32()),
    "date64": pa.array(DAYS, pa.date64()),
    "time32_s": pa.array([3, 1, 9, 4, 7, 5], pa.time32("s")),
    "time64_ns": pa.array([3, 1, 9, 4, 7, 5], pa.time64("ns")),
    "timestamp_s": pa.array(TIMES, pa.timestamp("s")),
    "timestamp_ns": pa.array(TIMES, pa.timestamp("ns")),
    "timestamp_zone": pa.array(TIMES, pa.timestamp("us", "Europe/Berlin")),
    "string": pa.array(["c", "ä", "z", "d", "", "x"]),
    "large_string": pa.array(["c", "b", "z", "d", "a", "x"], pa.large_string()),
    "string_view": pa.array(["c", "b", "z", "d", "a", "x"], pa.string_view()),
    "binary": pa.array([b"c", b"\xff", b"z", b"d", b"a", b"x"]),
    "fixed": pa.array([b"cc", b"bb", b"\xffz", b"dd", b"aa", b"xx"], pa.binary(2)),
    "dictionary": pa.array(["c", "b", "z", "d", "a", "x"]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", VALUES)
def test_bounds_are_the_least_and_greatest_value_of_all_row_groups(tmp_path, kind):
    values = VALUES[kind]
    nulls = pa.nulls(2, values.type)
    for name, part in (("a", values[:3]), ("b", values[3:])):
        whole = (
            pa.concat_arrays([part, nulls])
            if kind != "dictionary"
            else pa.array([*part.to_pylist(), None, None]).dictionary_encode()
        )
        write(tmp_path, f"{name}.parquet", {"x": whole}, row_group_size=2)
    version = version_of(tmp_path)
    column, exact = bounds_of(version, "x")
    kind_of_bounds = column.min.type
    plain = values.dictionary_decode() if kind == "dictionary" else values
    expected = [pc.min_max(part.cast(kind_of_bounds)).as_py() for part in (plain[:3], plain[3:])]
    assert column.min.to_pylist() == [item["min"] for item in expected]
    assert column.max.to_pylist() == [item["max"] for item in expected]
    assert column.null_count.tolist() == [2, 2]
    assert exact.all()


def test_bounds_of_random_files_are_those_of_their_rows(tmp_path):
    rng = np.random.default_rng(5)
    expected = []
    for number in range(30):
        rows = int(rng.integers(1, 50))
        values = pa.array(rng.integers(-100, 100, rows), mask=rng.random(rows) < rng.choice([0, 0.5, 1]))
        write(tmp_path, f"{number:02}.parquet", {"x": values}, row_group_size=int(rng.integers(1, 20)))
        ends = pc.min_max(values).as_py()
        expected.append((ends["min"], ends["max"], values.null_count, rows))
    version = version_of(tmp_path, together=7)
    column, exact = bounds_of(version, "x")
    found = zip(
        column.min.to_pylist(),
        column.max.to_pylist(),
        column.null_count,
        version.measured.row_count,
        strict=True,
    )
    assert list(found) == expected
    assert exact.all()


@pytest.mark.parametrize("limits", [{"together": 3}, {"most_cells": 1}, {}])
def test_files_are_read_some_at_a_time(tmp_path, monkeypatch, limits):
    sizes = []
    plain = footers.in_parallel

    def noted(work, items, **rest):
        items = list(items)
        sizes.append(len(items))
        return plain(work, items, **rest)

    monkeypatch.setattr(footers, "in_parallel", noted)
    for number in range(40):
        write(tmp_path, f"{number:02}.parquet", {"x": [number], "y": [1]})
    column, _ = bounds_of(version_of(tmp_path, **limits), "x")
    assert column.min.to_pylist() == list(range(40))
    assert sizes == {"together": [3] * 13 + [1], "most_cells": [16, 16, 8]}.get(
        next(iter(limits), ""), [16, 24]
    )


def test_a_row_group_without_statistics_leaves_a_file_without_bounds(tmp_path):
    write(tmp_path, "a.parquet", {"x": [1, 2]}, write_statistics=False)
    write(tmp_path, "b.parquet", {"x": [3, 4]})
    column, exact = bounds_of(version_of(tmp_path), "x")
    assert column.min.to_pylist() == [None, 3]
    assert column.null_count.tolist() == [-1, 0]
    assert exact.tolist() == [False, True]


def test_int96_times_have_no_bounds(tmp_path):
    times = pa.array(TIMES, pa.timestamp("ns"))
    write(tmp_path, "a.parquet", {"x": times}, use_deprecated_int96_timestamps=True)
    column, _ = bounds_of(version_of(tmp_path), "x")
    assert column.min.to_pylist() == [None]


def test_columns_in_structs_have_bounds_and_lists_have_none(tmp_path):
    rows = pa.table(
        {
            "tags": [["z"], ["a"]],
            "s": [{"a": 5, "t": [1], "b": "x"}, {"a": 2, "t": [2], "b": "y"}],
            "m": [1, 2],
        }
    )
    write(tmp_path, "a.parquet", rows)
    version = version_of(tmp_path)
    assert bounds_of(version, "s.a")[0].min.to_pylist() == [2]
    assert bounds_of(version, "s.b")[0].max.to_pylist() == ["y"]
    assert bounds_of(version, "m")[0].max.to_pylist() == [2]
    assert bounds_of(version, "tags")[0] is None


def test_nan_is_not_counted_so_no_bound_of_floats_is_exact(tmp_path):
    write(tmp_path, "a.parquet", {"x": [1.0, float("nan")], "y": pa.nulls(2, pa.float64())})
    version = version_of(tmp_path)
    assert not bounds_of(version, "x")[1].any()
    assert bounds_of(version, "y")[1].all()


def test_files_without_rows_are_no_blocks(tmp_path):
    write(tmp_path, "a.parquet", {"x": pa.array([], pa.int64())})
    write(tmp_path, "b.parquet", {"x": [1]})
    assert version_of(tmp_path).measured.names.to_pylist() == ["b.parquet"]


def test_a_column_has_the_wider_type_of_files_that_differ(tmp_path):
    write(
        tmp_path,
        "a.parquet",
        {"x": pa.array([1], pa.int32()), "s": pa.array([{"y": 1.5}], pa.struct({"y": pa.float32()}))},
    )
    write(tmp_path, "b.parquet", {"x": pa.array([2**40]), "s": pa.array([{"y": 2.5, "z": 1}])})
    write(tmp_path, "c.parquet", {"x": pa.nulls(1), "s": pa.array([{"y": 2.5, "z": 1}])})
    version = version_of(tmp_path)
    assert version.schema.leaf("x").type == pa.int64()
    assert bounds_of(version, "x")[0].max.to_pylist() == [1, 2**40, None]
    assert bounds_of(version, "s.y")[0].min.to_pylist() == [1.5, 2.5, 2.5]
    assert bounds_of(version, "s.z")[0].null_count.tolist() == [1, 0, 0]


def test_a_file_without_a_column_is_null_there_and_is_named(tmp_path, caplog):
    write(tmp_path, "a.parquet", {"x": [1, 2]})
    write(tmp_path, "b.parquet", {"x": [1], "new": [7]})
    column, exact = bounds_of(version_of(tmp_path), "new")
    assert column.min.to_pylist() == [None, 7]
    assert column.null_count.tolist() == [2, 0]
    assert exact.all()
    assert "a.parquet" in caplog.text
    assert "no column new" in caplog.text


def test_files_whose_types_do_not_fit_are_refused_by_name(tmp_path):
    write(tmp_path, "a.parquet", {"x": [1], "y": [1]})
    write(tmp_path, "b.parquet", {"x": ["1"], "y": [1]})
    with pytest.raises(SchemaMismatchError, match=r"x is string in b\.parquet, and int64 in a\.parquet"):
        tblctl.open(tmp_path).info("y")


def test_folders_give_columns_with_exact_bounds(tmp_path):
    for year, city in ((2023, "b"), (2024, "a%20c"), (2024, "__HIVE_DEFAULT_PARTITION__")):
        write(tmp_path, f"year={year}/city={city}/a.parquet", {"x": [1, 2, 3]})
    version = version_of(tmp_path)
    year, exact = bounds_of(version, "year")
    city, _ = bounds_of(version, "city")
    assert version.schema.logical == pa.schema({"x": pa.int64(), "year": pa.int32(), "city": pa.string()})
    assert year.min.to_pylist() == year.max.to_pylist() == [2023, 2024, 2024]
    assert exact.all()
    assert city.min.to_pylist() == ["b", None, "a c"]
    assert city.null_count.tolist() == [0, 3, 0]


def test_a_file_s_own_column_goes_before_the_folder_s(tmp_path):
    write(tmp_path, "x=9/a.parquet", {"x": [1, 2, 3]})
    version = version_of(tmp_path)
    assert version.folder_columns == ()
    assert bounds_of(version, "x")[0].max.to_pylist() == [3]


@pytest.mark.parametrize("other", ["b.parquet", "m=1/b.parquet", "year=1/year=2/b.parquet"])
def test_files_in_folders_of_different_keys_are_refused_by_name(tmp_path, other):
    write(tmp_path, "year=1/a.parquet", {"x": [1]})
    write(tmp_path, other, {"x": [1]})
    with pytest.raises(SchemaMismatchError, match=r"different keys.*b\.parquet"):
        tblctl.open(tmp_path).info("x")
