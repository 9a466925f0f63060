"""Appends: from every source, within the memory budget, cut as the options say."""

from __future__ import annotations

import dataclasses
import datetime
import json
import subprocess
import sys
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from arrow_rows import canonical, memory_table, multiset
from faults import storage_calls
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

import tblctl
from tblctl.errors import InvalidDataError, InvalidOptionError, SchemaMismatchError, TblctlError
from tblctl.tableformat.native.log.commit import StagedCommit, publish
from tblctl.tableformat.native.log.fold import SEGMENT_BLOCKS
from tblctl.tableformat.native.log.segment_reader import read_segment
from tblctl.tableformat.native.log.segment_rows import encode_segment, segment_ref

ROWS = pa.table(
    {
        "n": range(100),
        "s": [None if i % 7 == 0 else f"row {i}" for i in range(100)],
        "f": [i / 4 for i in range(100)],
    }
)


@pytest.fixture
def table():
    with memory_table(ROWS.schema, cluster_by="n", options={"block_rows": 40}) as table:
        yield table


def sequence(table):
    return table.snapshot.sequence


# -- sources ----------------------------------------------------------------------------------------------------------


class Stream:
    """Nothing but the Arrow stream protocol."""

    def __init__(self, data):
        self._data = data

    def __arrow_c_stream__(self, requested_schema=None):
        return self._data.__arrow_c_stream__(requested_schema)


SOURCES = {
    "table": lambda rows: rows,
    "batch": lambda rows: rows.combine_chunks().to_batches()[0],
    "reader": lambda rows: rows.to_reader(max_chunksize=7),
    "dataset": pads.dataset,
    "stream": Stream,
    "polars": polars.from_arrow,
    "pandas": lambda rows: rows.to_pandas(),
    "duckdb": duckdb.from_arrow,
}


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_rows_come_from(table, kind):
    outcome = table.append(SOURCES[kind](ROWS))
    assert (outcome.rows_added, outcome.snapshot) == (100, 2)
    assert canonical(table.scan().to_arrow()) == canonical(ROWS)


def write_with_duckdb(rows, path):
    duckdb.from_arrow(rows).write_parquet(str(path))


WRITERS = {
    "pyarrow.parquet": lambda rows, path: pq.write_table(rows, path, row_group_size=30),
    "old.parquet": lambda rows, path: pq.write_table(rows, path, version="1.0", compression="gzip"),
    "duckdb.parquet": write_with_duckdb,
    "polars.parquet": lambda rows, path: polars.from_arrow(rows).write_parquet(path),
    "pandas.parquet": lambda rows, path: rows.to_pandas().to_parquet(path),
    "no ending": pq.write_table,
    "file.arrow": lambda rows, path: pa.feather.write_feather(rows, str(path)),
    "polars.ipc": lambda rows, path: polars.from_arrow(rows).write_ipc(path),
}


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_rows_come_from_the_file(table, tmp_path, name):
    WRITERS[name](ROWS, tmp_path / name)
    assert table.append(tmp_path / name).rows_added == 100
    assert table.append([str(tmp_path / name)] * 2).rows_added == 200
    assert multiset(table.scan().to_arrow()) == multiset(pa.concat_tables([ROWS] * 3))
    assert table.check(deep=True).ok


@pytest.mark.parametrize("row_group_rows", [1000, 70_000])
def test_dictionaries_inside_lists_and_structs_come_from_a_file_of_several_row_groups(
    tmp_path, row_group_rows
):
    word = pa.dictionary(pa.int32(), pa.string())
    count = 2 * row_group_rows + 5
    rows = pa.table(
        {
            "n": range(count),
            "words": pa.array([[f"w{i % 7}", f"x{i % 300}"] for i in range(count)], pa.list_(word)),
            "inside": pa.array([{"word": f"y{i % 5}"} for i in range(count)], pa.struct([("word", word)])),
        }
    )
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path, row_group_size=row_group_rows)
    with memory_table(rows.schema, cluster_by="n") as table:
        assert table.append(path).rows_added == count
        found = table.scan().to_arrow()
        for name in rows.column_names:
            assert found[name].to_pylist() == rows[name].to_pylist()


def test_rows_come_from_an_arrow_stream_in_a_file(table, tmp_path):
    with pa.ipc.new_stream(tmp_path / "s.arrow", ROWS.schema) as writer:
        writer.write_table(ROWS, max_chunksize=9)
    assert table.append(tmp_path / "s.arrow").rows_added == 100
    assert canonical(table.scan().to_arrow()) == canonical(ROWS)


def test_tpch_lineitem_of_a_rust_tool_comes_in_whole(tmp_path):
    tool = Path(sys.executable).with_name("tpchgen-cli")
    if not tool.exists():
        pytest.skip("tpchgen-cli is not installed")
    subprocess.run(
        [tool, "parquet", "-s", "0.001", "--tables=lineitem", f"--output-dir={tmp_path}"],
        check=True,
        capture_output=True,
    )
    path = tmp_path / "lineitem.parquet"
    schema = tblctl.read_schema(path)
    with memory_table(
        schema, cluster_by=["l_shipdate", "l_orderkey"], options={"block_rows": 1_000}
    ) as table:
        table.append(path)
        rows = pq.read_table(path)
        assert table.snapshot.rows == rows.num_rows > 5_000
        assert multiset(table.scan().to_arrow()) == multiset(rows)
        asked = "l_shipdate between '1995-01-01' and '1995-03-31' and l_shipmode in ('AIR', 'MAIL')"
        found = table.scan(asked).to_arrow()
        theirs = duckdb.from_arrow(rows).filter(asked).to_arrow_table()
        assert multiset(found.select(["l_orderkey", "l_linenumber"])) == multiset(
            theirs.select(["l_orderkey", "l_linenumber"])
        )
        assert table.scan(asked).explain().blocks_pruned >= 3
        assert table.check(deep=True).ok


# -- bad input --------------------------------------------------------------------------------------------------------


def refused(table, data, error, words):
    before = {item.name for item in table._native.storage.list("")}
    with pytest.raises(error, match=words) as caught:
        table.append(data)
    assert sequence(table) == 1
    assert {item.name for item in table._native.storage.list("")} == before, "blocks were left behind"
    return caught.value


def test_a_file_that_is_not_parquet_is_refused_by_name(table, tmp_path):
    (tmp_path / "x.parquet").write_text("hello, I am text and long enough to hold a footer")
    refused(table, tmp_path / "x.parquet", InvalidDataError, "x.parquet is not a Parquet file")
    (tmp_path / "empty.parquet").touch()
    refused(table, tmp_path / "empty.parquet", InvalidDataError, r"empty\.parquet")
    (tmp_path / "x.arrow").write_bytes(b"\0" * 100)
    refused(table, tmp_path / "x.arrow", InvalidDataError, "x.arrow is not an Arrow IPC file")
    refused(table, tmp_path / "missing.parquet", InvalidDataError, r"missing\.parquet")
    refused(table, tmp_path, TblctlError, tmp_path.name)


def test_a_truncated_or_damaged_parquet_file_changes_nothing(table, tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(ROWS, path, row_group_size=20)
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 10, 4):
        path.write_bytes(whole[:size])
        refused(table, path, InvalidDataError, "cut short")
    path.write_bytes(whole[:100] + b"\xff" * 200 + whole[300:])
    refused(table, path, InvalidDataError, "x.parquet")
    good = tmp_path / "good.parquet"
    pq.write_table(ROWS, good)
    refused(table, [good, path], InvalidDataError, "x.parquet")


def test_a_stream_that_breaks_off_changes_nothing(table):
    def batches():
        yield from ROWS.to_batches(max_chunksize=50)
        raise OSError("the network is gone")

    reader = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
    refused(table, reader, InvalidDataError, "the network is gone")


def test_what_holds_no_rows_at_all_is_refused(table):
    for thing in (5, {"n": [1]}, [], [1, 2], object(), None):
        refused(table, thing, InvalidDataError, "cannot read rows from")


def test_every_difference_of_schemas_is_listed_at_once(table):
    data = pa.table({"n": ["text"], "extra": [1], "f": [None]})
    error = refused(table, data, SchemaMismatchError, "s")
    first, second = error.details["differences"]
    assert first.startswith("n: expected int64, got string")
    assert second == "extra: not a column of the table"


def test_columns_that_are_absent_are_null(table):
    table.append(ROWS.select(["n"]))
    found = table.scan().to_arrow()
    assert (found["n"].null_count, found["s"].null_count, found["f"].null_count) == (
        ROWS["n"].null_count,
        *[len(ROWS)] * 2,
    )


def test_integers_and_times_are_cast_where_nothing_is_lost_and_refused_where_something_is():
    with memory_table("n: int8, t: timestamp[us], d: dictionary<int32, string>") as table:
        moments = pa.array([1_000, None], pa.timestamp("ns"))
        data = pa.table({"n": [7, None], "t": moments, "d": pa.array(["a", None], pa.large_string())})
        finer = data.set_column(1, "t", pa.array([1_001, None], pa.timestamp("ns")))
        refused(table, finer, InvalidDataError, "'t': a value does not fit")
        refused(table, pa.table({"n": [128]}), InvalidDataError, "'n': a value does not fit")
        table.append(data)
        assert table.scan().to_arrow()["t"].cast(pa.int64()).to_pylist() == [1, None]


def test_files_of_several_schemas_are_taken_together_if_each_fits(table, tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet")
    pq.write_table(ROWS.select(["s", "n"]), tmp_path / "b.parquet")
    table.append([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    found = table.scan().to_arrow()
    assert found["f"].null_count == ROWS["f"].null_count + len(ROWS)
    assert sorted(found["n"].to_pylist()) == sorted(2 * ROWS["n"].to_pylist())
    table.rollback(1)
    pq.write_table(pa.table({"n": ["x"]}), tmp_path / "c.parquet")
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet", tmp_path / "c.parquet"]
    with pytest.raises(SchemaMismatchError, match=r"c\.parquet: .*n: expected int64, got string"):
        table.append(paths)
    assert table.scan().to_arrow().num_rows == 0


def test_columns_are_matched_by_name_in_any_order(table):
    table.append(ROWS.select(["f", "s", "n"]))
    assert canonical(table.scan().to_arrow()) == canonical(ROWS)


def test_a_null_where_none_may_be_is_refused_and_blocks_are_removed():
    with memory_table("n: int64 not null, s: struct<a: int64 not null>", options={"block_rows": 2}) as table:
        fine = pa.table(
            {"n": [1, 2, 3], "s": [{"a": 1}, None, {"a": 2}]},
            schema=pa.schema([("n", pa.int64()), ("s", pa.struct([("a", pa.int64())]))]),
        )
        bad = fine.set_column(0, "n", pa.array([1, None, None]))
        refused(table, bad, InvalidDataError, "'n' may not be null, but 2")
        inner = fine.set_column(
            1, "s", pa.array([{"a": None}, {"a": 1}, None], pa.struct([("a", pa.int64())]))
        )
        refused(table, inner, InvalidDataError, "a")
        reader = pa.RecordBatchReader.from_batches(fine.schema, [*fine.to_batches(), *bad.to_batches()])
        refused(table, reader, InvalidDataError, "'n'")
        assert table.append(fine).rows_added == 3


@pytest.mark.parametrize("wrap", ["top", "struct", "dictionary"])
def test_text_that_is_not_utf_8_is_refused(wrap):
    offsets = pa.array([0, 2, 4], pa.int32()).buffers()[1]
    values = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ok\xff\xfe")])
    if wrap == "struct":
        values = pa.StructArray.from_arrays([values], ["a"])
    elif wrap == "dictionary":
        values = pa.DictionaryArray.from_arrays(pa.array([0, 1]), values)
    with memory_table(pa.schema([("c", values.type)])) as table:
        refused(table, pa.table({"c": values}), InvalidDataError, "'c' has broken values.*UTF8")


def test_empty_input_commits_nothing_and_says_so(table, tmp_path):
    pq.write_table(ROWS.slice(0, 0), tmp_path / "x.parquet")
    empty = ROWS.slice(0, 0)
    for data in (
        empty,
        tmp_path / "x.parquet",
        empty.to_reader(),
        pa.RecordBatchReader.from_batches(ROWS.schema, []),
    ):
        outcome = table.append(data)
        assert (outcome.snapshot, outcome.rows_added, outcome.attempts) == (None, 0, 0)
        assert "no rows" in outcome.note
    assert sequence(table) == 1


def test_empty_batches_between_others_do_no_harm(table):
    whole = ROWS.combine_chunks().to_batches()[0]
    batches = [whole.slice(0, 0), whole.slice(0, 3), whole.slice(0, 0), whole.slice(3)]
    assert table.append(pa.RecordBatchReader.from_batches(ROWS.schema, batches)).rows_added == 100
    assert canonical(table.scan().to_arrow()) == canonical(ROWS)


def test_a_pinned_handle_only_reads(table):
    table.append(ROWS)
    old = tblctl.open(table.location, as_of=1)
    assert old.scan().to_arrow().num_rows == 0
    for change in (
        lambda: old.append(ROWS),
        lambda: old.delete("true"),
        lambda: old.rollback(1),
        old.gc,
    ):
        with pytest.raises(InvalidOptionError, match="pinned"):
            change()


# -- sizes ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([0, 1, 10, 300, 3_000]), min_size=1, max_size=60), st.integers(1, 30))
@settings(max_examples=cases(20))
def test_no_block_is_above_its_rows_or_bytes_however_uneven_the_rows(sizes, block_rows):
    data = pa.table({"n": range(len(sizes)), "s": ["x" * size for size in sizes]})
    options = {"block_rows": block_rows, "block_bytes": 4_000, "row_group_rows": 5}
    for key in ((), "n"):
        with memory_table(data.schema, cluster_by=key, options=options) as table:
            table.append(data)
            for block in table.files():
                assert block.rows <= block_rows
                assert block.decoded_bytes <= 4_000 or block.rows == 1
            assert table.scan().to_arrow()["n"].to_pylist() == list(range(len(sizes)))


def test_a_row_larger_than_a_block_is_a_block_of_its_own():
    with memory_table("n: int64, s: string", cluster_by="n", options={"block_bytes": 1_000}) as table:
        table.append(pa.table({"n": [1, 2, 3], "s": ["a", "b" * 50_000, "c"]}))
        assert [block.rows for block in table.files()] == [1, 1, 1]
        assert table.scan("n = 2").to_arrow()["s"].to_pylist() == ["b" * 50_000]


def test_row_groups_have_the_rows_that_the_option_says(table):
    table.set_options({"row_group_rows": 15})
    table.append(ROWS)
    storage = table._native.storage
    for block in table.files():
        footer = pq.read_metadata(pa.BufferReader(storage.read(block.path)))
        sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
        assert max(sizes) <= 15
        assert len(sizes) == -(-block.rows // 15), "no more than it takes"
        assert sum(sizes) == block.rows


@pytest.mark.parametrize(
    ("codec", "level"),
    [("zstd", 3), ("gzip", 6), ("brotli", 2), ("snappy", None), ("lz4", None), ("none", None)],
)
def test_blocks_are_compressed_as_the_options_say(codec, level):
    options = {"compression": codec} | (
        {"compression_level": level} if level else {"compression_level": None}
    )
    with memory_table(ROWS.schema, options=options) as table:
        table.append(ROWS)
        (block,) = table.files()
        footer = pq.read_metadata(pa.BufferReader(table._native.storage.read(block.path)))
        assert footer.row_group(0).column(0).compression.lower().replace("uncompressed", "none") == codec
        assert canonical(table.scan().to_arrow()) == canonical(ROWS)


def test_progress_counts_rows_up_to_all_of_them(table):
    seen = []
    table.append(ROWS, progress=lambda done, total, unit: seen.append((done, total, unit)))
    assert seen[-1] == (100, 100, "rows")
    assert [item[0] for item in seen] == sorted(item[0] for item in seen)


MEMORY_SCRIPT = """
import json, resource, sys
import pyarrow as pa
import tblctl

def batches():
    for number in range(200):
        start = number * 20_000
        numbers = pa.array([(i * 7919) % 4_000_000 for i in range(start, start + 20_000)], pa.int64())
        texts = pa.array([f"{i:080d}" for i in range(start, start + 20_000)])
        yield pa.record_batch([numbers, texts], ["n", "s"])

schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
table = tblctl.create(sys.argv[1], schema, cluster_by="n", options={"block_bytes": "8MiB", "memory_bytes": "64MiB"})
table.append(pa.table({"n": [1], "s": ["warm"]}))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
outcome = table.append(pa.RecordBatchReader.from_batches(schema, batches()))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
runs = len({block.run for block in table.files()})
print(json.dumps({"before_kib": before, "after_kib": after, "rows": outcome.rows_added, "runs": runs}))
"""


def test_a_stream_of_six_times_the_budget_stays_within_it(tmp_path):
    """368 MB of rows with 64 MiB. 128 MiB more are allowed for the current batch and the allocators' free pages."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT, str(tmp_path / "t")], check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    assert found["rows"] == 4_000_000
    assert found["runs"] >= 10
    grown = (found["after_kib"] - found["before_kib"]) / 1024
    assert grown <= 64 + 128, f"{grown:.0f} MiB more than before the append"


# -- metadata ---------------------------------------------------------------------------------------------------------


def test_an_append_to_a_table_of_a_hundred_full_segments_writes_one_segment_and_one_snapshot():
    """A table of a million blocks whose data files do not exist."""
    with memory_table("n: int64, s: string", cluster_by="n") as table:
        table.append(pa.table({"n": [1], "s": ["a"]}))
        native = table._native
        head = native.head()
        row = read_segment(native.storage, head.segments[0])
        rows = pa.concat_tables([row] * SEGMENT_BLOCKS).combine_chunks()
        made = encode_segment(rows)
        segment = segment_ref(rows, "", head.schema, head.sort, size_bytes=made.data.size, seal=made.seal)
        paths = [f"metadata/segments/{number:032x}.parquet" for number in range(100)]
        for path in paths:
            native.storage.write(path, made.data)
        publish_segments(native, head, [dataclasses.replace(segment, path=path) for path in paths])
        calls = storage_calls(lambda: table.append(pa.table({"n": [2], "s": ["b"]})))
        written = [call.name for call in calls if call.operation in {"write", "create"}]
        folders = sorted(name.rpartition("/")[0] for name in written if name != "metadata/latest")
        assert folders == ["data", "metadata/segments", "metadata/snapshots"]
        read = [call.name for call in calls if call.operation in {"read", "open"} and "segments" in call.name]
        assert read == [], "an append reads no other segment"
        assert table.snapshot.blocks == 100 * SEGMENT_BLOCKS + 1


def publish_segments(native, head, segments):
    snapshot = dataclasses.replace(head, segments=tuple(segments))
    summary = dataclasses.replace(
        head.summary, rows=snapshot.row_count, blocks=snapshot.block_count, data_bytes=snapshot.data_bytes
    )
    draft = StagedCommit(snapshot=dataclasses.replace(snapshot, summary=summary))
    publish(native.storage, native.env, lambda _: draft, head)


SECONDS = pa.schema(
    [
        ("at", pa.timestamp("s")),
        ("zoned", pa.timestamp("s", "UTC")),
        ("clock", pa.time32("s")),
        ("many", pa.list_(pa.timestamp("s"))),
        ("coded", pa.dictionary(pa.int8(), pa.timestamp("s"))),
    ]
)


def test_a_block_of_columns_of_seconds_can_be_appended_to_its_own_table(tmp_path: Path) -> None:
    table = tblctl.create(str(tmp_path / "t"), SECONDS)
    row = {"at": 1, "zoned": -1, "clock": 5, "many": [86_400], "coded": 7}
    rows = pa.table(
        {
            item.name: pa.array([row[item.name], None], _counts(item.type)).cast(item.type)
            if item.name != "coded"
            else pa.array([7, None], pa.int64()).cast(pa.timestamp("s")).dictionary_encode()
            for item in SECONDS
        }
    )
    table.append(rows)
    (block,) = (tmp_path / "t" / "data").iterdir()
    table.append(str(block))
    found = table.scan().to_arrow()
    assert found.slice(2, 2).equals(found.slice(0, 2))
    assert found["at"].to_pylist()[:2] == [datetime.datetime(1970, 1, 1, 0, 0, 1), None]


def _counts(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(pa.int64())
    return pa.int32() if pa.types.is_time32(kind) else pa.int64()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("at", pa.timestamp("ms")), ("zoned", pa.timestamp("ns", "UTC")), ("clock", pa.time64("us"))],
)
def test_a_fraction_of_a_second_for_a_column_of_seconds_is_refused_and_named(
    memory_url: str, name: str, kind: pa.DataType
) -> None:
    table = tblctl.create(memory_url, pa.schema([SECONDS.field(name)]))
    whole = {"ms": 1000, "us": 10**6, "ns": 10**9}[kind.unit]
    bits = pa.int32() if kind.bit_width == 32 else pa.int64()
    table.append(pa.table({name: pa.array([whole, 2 * whole, None], bits).cast(kind)}))
    with pytest.raises(tblctl.errors.InvalidDataError, match=f"column '{name}': a value does not fit"):
        table.append(pa.table({name: pa.array([whole, whole + 1], bits).cast(kind)}))
    assert table.scan().to_arrow().num_rows == 3
