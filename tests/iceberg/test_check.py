"""`check --deep` reads every live file, and names each one that is not as the metadata says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, StringType

import tblctl
from tblctl.cli.main import application
from tblctl.tableformat.iceberg.own_files import KEYS, OwnName, encode_keys
from tblctl.tableformat.iceberg.record import DataFileRecord

from .lake import Lake, append, fields, version_of
from .merging import numbered, recluster
from .position_deletes import commit, data_file, delete_file, delete_rows, entry_of, folder_of
from .replacing import data_files

COLUMNS = fields(id=LongType(), name=StringType(), share=DoubleType())


@pytest.fixture
def table(lake: Lake) -> Table:
    """Two files of PyIceberg's, sorted by id if they are reclustered."""
    made = lake.create("t", COLUMNS, properties={"tblctl.cluster-by": "id"})
    for first in (0, 5):
        append(
            made,
            id=list(range(first, first + 10)),
            name=[None, *(f"n{n}" for n in range(first, first + 9))],
            share=[float("nan"), None, *(n / 3 for n in range(8))],
        )
    return made


def rows(ids: list[int], name: str | None = "n") -> pa.Table:
    """Rows with field ids."""
    count = len(ids)
    found = pa.table({"id": ids, "name": pa.array([name] * count, pa.string()), "share": [0.5] * count})
    return numbered(found, (1, 2, 3))


def deep(table: Table) -> list[str]:
    return list(tblctl.from_iceberg(table).check(deep=True).problems)


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def add(table: Table, found: pa.Table, **metrics: Any) -> str:
    """Commit a file of another writer, with metrics; return its path."""
    entry = data_file(table, found, **metrics)
    commit(table, [entry])
    return str(entry.file_path)


def bounds(low: Any, high: Any, id_: int = 1, kind: Any = None) -> dict[str, dict[int, bytes]]:
    kind = kind or LongType()
    return {"lower_bounds": {id_: to_bytes(kind, low)}, "upper_bounds": {id_: to_bytes(kind, high)}}


def one_problem(table: Table, *texts: str) -> None:
    """Require exactly one problem, that has some texts."""
    (problem,) = deep(table)
    for text in texts:
        assert text in problem


def test_sound_tables_have_no_problem(lake: Lake, table: Table) -> None:
    assert deep(table) == []
    recluster(table)
    assert deep(table) == []
    add(table, rows([3, 1, 2]), **bounds(1, 3), null_value_counts={1: 0, 2: 0})
    add(table, rows([7]), **bounds(0, 9))  # bounds may be wider than the values
    delete_rows(table, {data_files(table)[0].file_path: [0, 1]})
    seen: list[tuple[int, int, str]] = []
    found = tblctl.from_iceberg(table).check(
        deep=True, progress=lambda done, total, what: seen.append((done, total, what))
    )
    assert (found.ok, found.deep, found.rows) == (True, True, 24)
    assert sorted(seen) == [(number, 4, "files") for number in range(1, 5)]


@pytest.mark.parametrize("own", [False, True])
def test_a_missing_data_file_is_named_and_others_are_read(table: Table, own: bool) -> None:
    if own:
        recluster(table)
    path = data_files(table)[0].file_path
    local(path).unlink()
    one_problem(table, path, "is missing")


@pytest.mark.parametrize("damage", ["cut", "longer", "page", "footer"])
def test_a_damaged_data_file_is_named(table: Table, damage: str) -> None:
    recluster(table)
    path = data_files(table)[0].file_path
    data = local(path).read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    place = footer if damage == "footer" else 10
    changed = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
    local(path).write_bytes({"cut": data[:-7], "longer": data + b"PAR1"}.get(damage, changed))
    problems = deep(table)
    assert problems
    assert all(path in problem for problem in problems)


def test_another_number_of_rows_is_found(table: Table) -> None:
    entry = data_file(table, rows([1, 2, 3]))
    wrong = entry_of(local(entry.file_path), rows=4)
    commit(table, [wrong])
    one_problem(table, str(entry.file_path), "its rows do not add up")


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        ({"null_value_counts": {2: 1}}, "column 'name'"),
        ({"nan_value_counts": {3: 1}}, "column share: its NaN: 0 were read, metadata says 1"),
        (bounds(2, 3), "column id: its least value is 1, and its manifest's bound is 2"),
        (bounds(1, 2), "column id: its greatest value is 3, and its manifest's bound is 2"),
        (bounds("a", "m", 2, StringType()), "column name: its greatest value is 'n'"),
    ],
    ids=["nulls", "nan", "least", "greatest", "text"],
)
def test_metrics_of_a_manifest_that_are_wrong_are_found(
    table: Table, metrics: dict[str, Any], text: str
) -> None:
    path = add(table, rows([1, 2, 3]), **metrics)
    one_problem(table, path, text)


def test_rows_beside_their_partition_are_found(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = lake.create("t", COLUMNS, partition_spec=spec)
    append(table, id=[1, 2, 3], name=["a", "a", None], share=[0.0] * 3)
    assert deep(table) == []
    like = next(file for file in data_files(table) if "name=a" in file.file_path)
    entry = data_file(table, rows([9], "b"), like=like)
    commit(table, [entry])
    one_problem(table, str(entry.file_path), "column name: its values are not all 'a'")


def own_file(table: Table, found: pa.Table, ends: tuple[int, int], **metrics: Any) -> str:
    """Commit a file that is named as tblctl's own, with the keys of its first and last rows as they are given."""
    version = version_of(table)
    name = OwnName(table=version.metadata.table_uuid.hex, level=1, sort_id=version.sort.id, run_id="ab")
    path = folder_of(table) / "data" / name.with_id("0" * 32)
    record = DataFileRecord(
        path=f"file://{path}",
        row_count=found.num_rows,
        size_bytes=0,
        uncompressed_bytes=1,
        decoded_bytes=1,
        schema_id=0,
        level=1,
        run_id="ab",
        cluster_key_id=version.sort.id,
        key_min=(pa.scalar(ends[0]),),
        key_max=(pa.scalar(ends[1]),),
        same_key_rows=1,
        spec_id=0,
        partition_values=(),
    )
    pq.write_table(found.replace_schema_metadata({KEYS: encode_keys(record)}), path)
    commit(table, [entry_of(path, rows=found.num_rows, **metrics)])
    return f"file://{path}"


@pytest.mark.parametrize(
    ("ids", "ends", "metrics", "texts"),
    [
        ([1, 2, 3], (1, 3), {}, []),
        ([1, 3, 2], (1, 3), {}, ["its rows are not in the order of the cluster key"]),
        ([1, 2, 3], (0, 3), {}, ["the key of its first row is (1), its footer says (0)", "(1), the table's"]),
        ([1, 2, 3], (1, 9), {}, ["the key of its last row is (3), its footer says (9)", "(3), the table's"]),
        ([1, 1, 3], (1, 3), {}, ["the rows of its commonest key: 2 were read, metadata says 1"]),
        ([1, 2, 3], (1, 3), bounds(0, 3), ["its least value is 1, and its manifest's bound is 0"]),
    ],
    ids=["sound", "order", "first", "last", "same", "bounds"],
)
def test_order_and_keys_and_bounds_of_own_files_are_compared(
    table: Table, ids: list[int], ends: tuple[int, int], metrics: dict[str, Any], texts: list[str]
) -> None:
    path = own_file(table, rows(ids), ends, null_value_counts={1: 0}, **metrics)
    problems = deep(table)
    assert len(problems) == len(texts)
    for problem, text in zip(problems, texts, strict=True):
        assert problem.startswith(path)
        assert text in problem


def key_file(table: Table) -> Path:
    (path,) = local(f"{table.location()}/metadata").glob("*keys*")
    return path


def test_a_damaged_file_of_keys_is_named_and_a_missing_one_is_no_problem(table: Table) -> None:
    recluster(table)
    path = key_file(table)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    one_problem(table, path.name, "is damaged")
    path.unlink()
    assert deep(table) == []


def test_wrong_keys_in_the_file_of_keys_are_found(table: Table) -> None:
    recluster(table)
    path = key_file(table)
    found = pq.read_table(path)
    place = found.schema.get_field_index("low.0")
    pq.write_table(found.set_column(place, "low.0", pa.array([-1], pa.int64())), path)
    one_problem(table, data_files(table)[0].file_path, "(0), the table's file of keys says (-1)")


def as_vector(table: Table) -> None:
    """Commit a delete file of a format that is not read, and that is not there."""
    entry = delete_file(table, [(data_files(table)[0].file_path, 0)])
    local(entry.file_path).unlink()
    entry[2] = FileFormat.AVRO
    commit(table, [entry], content=ManifestContent.DELETES)


def missing_deletes(table: Table) -> None:
    entry = delete_file(table, [(data_files(table)[0].file_path, 0)])
    local(entry.file_path).unlink()
    commit(table, [entry], content=ManifestContent.DELETES)


def damaged_deletes(table: Table) -> None:
    entry = delete_file(table, [(data_files(table)[0].file_path, 0)] * 50)
    data = local(entry.file_path).read_bytes()
    local(entry.file_path).write_bytes(data[:8] + bytes(20) + data[28:])
    commit(table, [entry], content=ManifestContent.DELETES)


def equality_deletes(table: Table) -> None:
    entry = delete_file(table, [(data_files(table)[0].file_path, 0)])
    entry[0] = DataFileContent.EQUALITY_DELETES
    local(entry.file_path).unlink()
    commit(table, [entry], content=ManifestContent.DELETES)


@pytest.mark.parametrize("make", [missing_deletes, damaged_deletes, as_vector, equality_deletes])
def test_a_delete_file_that_cannot_be_read_is_named(table: Table, make: Callable[[Table], None]) -> None:
    make(table)
    one_problem(table, "/data/deletes-")


def test_files_that_are_not_parquet_are_refused_before_any_is_read(table: Table) -> None:
    entry = data_file(table, rows([1]))
    entry[2] = FileFormat.ORC
    commit(table, [entry])
    with pytest.raises(tblctl.errors.InvalidOptionError, match="the table has ORC files"):
        deep(table)
    assert tblctl.from_iceberg(table).check().ok


def test_the_command_reads_files_and_ends_with_1_for_damage(lake: Lake, table: Table) -> None:
    options = [word for pair in lake.options.items() for word in ("--catalog-option", "=".join(pair))]
    words = ["check", "iceberg://lake/db.t", "--deep", *options]
    found = CliRunner().invoke(application, [*words, "--json"])
    assert found.exit_code == 0
    counts = {"snapshots": 2, "segments": 2, "blocks": 2, "rows": 20}
    assert json.loads(found.stdout) == {"ok": True, "deep": True, "problems": [], **counts}
    path = data_files(table)[0].file_path
    local(path).unlink()
    found = CliRunner().invoke(application, words)
    assert found.exit_code == 1
    assert f"problem: {path} is missing" in found.output
    assert "1 problem: 2 blocks of 2 snapshots, 20 rows in the newest" in found.output


def test_text_that_ends_in_the_last_code_points_is_no_damage(lake: Lake) -> None:
    """Their upper bound is truncated to a short one, which looks as if nothing was."""
    made = lake.create("last", COLUMNS, properties={"tblctl.cluster-by": "id"})
    for first in (0, 1):
        append(made, id=[first, first + 2], name=["a", "a" + "\U0010ffff" * 20], share=[0.5, 0.5])
    assert tblctl.from_iceberg(made).recluster(policy="full").commits == 1
    assert deep(lake.load("last")) == []
