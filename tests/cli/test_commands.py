"""Every command on real tables: its text, its JSON, and its effect on the table."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl.cli.main import application

ROWS = pa.table(
    {
        "id": pa.array(range(100), pa.int64()),
        "name": [f"n{i % 7}" for i in range(100)],
        "price": pa.array([i / 4 if i % 10 else None for i in range(100)]),
    }
)
SCHEMA = "id: int64 not null, name: string, price: double"


def run(*words: object) -> Result:
    return CliRunner().invoke(application, [str(word) for word in words])


def done(*words: object) -> str:
    """Run a command that must succeed, and return its standard output."""
    result = run(*words)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def as_json(*words: object) -> Any:
    return json.loads(done(*words, "--json"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.parquet"
    pq.write_table(ROWS, path)
    return path


@pytest.fixture
def loc(tmp_path: Path, data: Path) -> Path:
    """A table with 100 rows in 10 blocks: snapshot 2, after `created` and one append."""
    path = tmp_path / "table"
    done("create", path, "--schema", SCHEMA, "--cluster-by", "id", "--set", "block_rows=10")
    done("append", path, data)
    return path


def newest(loc: Path) -> int:
    return tblctl.open(str(loc)).snapshot.sequence


def test_create_says_what_it_made(tmp_path: Path) -> None:
    text = done("create", tmp_path / "a", "--schema", SCHEMA, "--cluster-by", "name desc, id")
    assert text.startswith(f"created {tmp_path}/a: 3 columns, clustered by ")
    made = as_json("create", tmp_path / "b", "--schema", SCHEMA, "--set", "block_rows=500")
    assert made["columns"][0] == {"name": "id", "type": "int64"}
    assert made["cluster_by"] == []
    assert int(made["options"]["block_rows"]) == 500


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_create_like_takes_the_columns_of_a_file(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"x{suffix}"
    if suffix == ".parquet":
        pq.write_table(ROWS, file)
    else:
        with pa.ipc.new_file(str(file), ROWS.schema) as writer:
            writer.write_table(ROWS)
    done("create", tmp_path / "t", "--like", file)
    assert tblctl.open(str(tmp_path / "t")).schema.names == ["id", "name", "price"]


def test_append_says_how_much_and_empty_input_commits_nothing(loc: Path, tmp_path: Path) -> None:
    before = newest(loc)
    empty = tmp_path / "empty.parquet"
    pq.write_table(ROWS.slice(0, 0), empty)
    assert done("append", loc, empty) == "the input has no rows: nothing was committed\n"
    assert as_json("append", loc, empty)["snapshot"] is None
    assert newest(loc) == before
    pq.write_table(ROWS.slice(0, 1), empty)
    text = done("append", loc, empty, "--memory", "64MiB")
    assert text.startswith("appended 1 row in 1 block (")
    assert f"snapshot {before + 1}" in text


def test_scan_prints_a_table_of_at_most_50_rows_and_says_that_there_are_more(loc: Path) -> None:
    lines = done("scan", loc).splitlines()
    assert lines[0].split() == ["id", "name", "price"]
    assert len(lines) == 2 + 50 + 1
    assert lines[-1].startswith("(the first 50 rows, there are more")
    lines = done("scan", loc, "--where", "id between 9 and 11", "--columns", "price,id").splitlines()
    assert [line.split() for line in lines] == [
        ["price", "id"], ["-----", "--"], ["2.25", "9"], ["NULL", "10"], ["2.75", "11"], ["(3", "rows)"],
    ]  # fmt: skip
    assert len(done("scan", loc, "--limit", "70").splitlines()) == 2 + 70 + 1


def test_scan_json_is_one_object_with_typed_columns_and_all_rows(loc: Path) -> None:
    found = as_json("scan", loc, "--columns", "id,name")
    assert found["snapshot"] == newest(loc)
    assert found["columns"] == [{"name": "id", "type": "int64"}, {"name": "name", "type": "string"}]
    assert sorted(found["rows"], key=lambda row: row["id"]) == ROWS.select(["id", "name"]).to_pylist()
    assert found["row_count"] == 100
    none = as_json("scan", loc, "--where", "id < 0")
    assert (none["rows"], none["row_count"], len(none["columns"])) == ([], 0, 3)


def test_scan_output_writes_every_format_whole(loc: Path, tmp_path: Path) -> None:
    parquet, arrow, csv = (tmp_path / f"x.{suffix}" for suffix in ("parquet", "arrow", "csv"))
    for path in (parquet, arrow, csv):
        assert done("scan", loc, "--output", path, "--where", "id >= 0").startswith(
            "wrote 100 rows of snapshot "
        )
    key = [("id", "ascending")]
    expected = ROWS.to_pylist()
    assert pq.read_table(parquet).sort_by(key).to_pylist() == expected
    assert pa.ipc.open_file(str(arrow)).read_all().sort_by(key).to_pylist() == expected
    assert pa.csv.read_csv(csv).sort_by(key).column("id").to_pylist() == ROWS["id"].to_pylist()
    assert as_json("scan", loc, "--output", parquet, "--limit", 3)["row_count"] == 3
    assert sorted(p.name for p in tmp_path.glob(".*")) == []


def test_scan_output_of_nested_and_binary_columns_as_csv_is_text(tmp_path: Path) -> None:
    rows = pa.table({"a": [[1, 2], None], "b": [b"\x00\xff", None], "c": [{"x": "y"}, None]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    done("create", tmp_path / "t", "--like", tmp_path / "rows.parquet")
    done("append", tmp_path / "t", tmp_path / "rows.parquet")
    done("scan", tmp_path / "t", "--output", tmp_path / "x.csv")
    read = pa.csv.read_csv(
        tmp_path / "x.csv", convert_options=pa.csv.ConvertOptions(strings_can_be_null=True)
    )
    assert read.to_pylist()[0] == {"a": "[1, 2]", "b": "00ff", "c": '{"x": "y"}'}


def test_scan_output_that_cannot_be_written_is_one_message(loc: Path, tmp_path: Path) -> None:
    result = run("scan", loc, "--output", tmp_path / "missing" / "x.parquet")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("tblctl: error: cannot write ")


def test_scan_explain_tells_what_is_pruned(loc: Path) -> None:
    text = done("scan", loc, "--where", "id = 5", "--explain")
    assert "blocks    1 of 10 read, 9 pruned" in text
    told = as_json("scan", loc, "--where", "id = 5", "--explain")
    assert (told["blocks_total"], told["blocks_pruned"], told["blocks_read"]) == (10, 9, 1)


def test_scan_report_appends_a_line_of_json_for_every_scan(loc: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    done("scan", loc, "--where", "id < 20", "--report", report, "--json")
    done("scan", loc, "--report", report, "--output", tmp_path / "x.parquet")
    first, second = map(json.loads, report.read_text().splitlines())
    assert (first["blocks_total"], first["blocks_read"], first["rows"]) == (10, 2, 20)
    assert second["rows"] == 100
    result = run("scan", loc, "--report", tmp_path / "missing" / "report.jsonl")
    assert (result.exit_code, result.stdout) == (1, "")


def test_delete_update_and_overwrite_say_what_they_changed(loc: Path, tmp_path: Path) -> None:
    assert done("delete", loc, "--where", "id < 15").startswith("deleted 15 rows, ")
    outcome = as_json("update", loc, "--set", "price = 0, name = 'x'", "--where", "id = 20")
    assert outcome["snapshot"] == newest(loc)
    rows = as_json("scan", loc, "--where", "price = 0")["rows"]
    assert rows == [{"id": 20, "name": "x", "price": 0.0}]
    done("update", loc, "--set", "price = 1", "--set", "name = NULL", "--all")
    assert as_json("scan", loc, "--where", "price = 1 and name is null")["row_count"] == 85
    pq.write_table(ROWS.slice(0, 3), tmp_path / "three.parquet")
    assert done("overwrite", loc, tmp_path / "three.parquet", "--where", "id >= 90").startswith(
        "replaced 10 rows by 3 rows, "
    )
    done("overwrite", loc, tmp_path / "three.parquet")
    assert as_json("scan", loc)["row_count"] == 3


def test_a_change_without_matching_rows_says_that_nothing_changed(loc: Path) -> None:
    before = newest(loc)
    assert as_json("delete", loc, "--where", "id < 0")["snapshot"] is None
    assert "snapshot" not in done("delete", loc, "--where", "id < 0")
    assert newest(loc) == before


def test_alter_changes_columns_key_and_settings(loc: Path) -> None:
    assert done("alter", loc, "--add-column", "note: string").startswith(
        "added column note: string: snapshot "
    )
    done("alter", loc, "--rename-column", "name=title")
    done("alter", loc, "--drop-column", "price")
    done("alter", loc, "--add-column", "small: int32")
    done("alter", loc, "--widen-column", "small: int64")
    assert tblctl.open(str(loc)).schema.names == ["id", "title", "note", "small"]
    assert tblctl.open(str(loc)).schema.field("small").type == pa.int64()
    done("alter", loc, "--cluster-by", "title, id desc")
    assert len(tblctl.open(str(loc)).cluster_by) == 2
    done("alter", loc, "--drop-cluster-by")
    assert list(tblctl.open(str(loc)).cluster_by) == []
    done("alter", loc, "--set", "block_rows=20", "--set", "compression=none")
    assert int(tblctl.open(str(loc)).options["block_rows"]) == 20


def test_history_lists_snapshots_newest_first(loc: Path) -> None:
    done("delete", loc, "--where", "id < 15")
    done("tag", loc, "v1")
    lines = done("history", loc).splitlines()
    assert lines[0].split()[:4] == ["snapshot", "time", "(UTC)", "operation"]
    assert lines[2].split()[0] == str(newest(loc))
    assert lines[3].split()[2:5] == ["delete", "-15", "85"]
    assert lines[3].endswith("v1")
    found = as_json("history", loc)
    assert [s["sequence"] for s in found] == list(range(newest(loc), newest(loc) - len(found), -1))
    assert as_json("history", loc, "--limit", 1) == found[:1]


def test_rollback_tag_and_as_of_travel_in_time(loc: Path) -> None:
    full = newest(loc)
    assert done("tag", loc, "full") == f"tagged snapshot {full} as full\n"
    done("delete", loc, "--where", "id >= 10")
    moment = as_json("history", loc, "--limit", 1)[0]["timestamp"]
    for when in (full, "full"):
        assert as_json("scan", loc, "--as-of", when)["row_count"] == 100
    assert as_json("scan", loc, "--as-of", moment)["row_count"] == 10
    done("rollback", loc, "--to", "full")
    assert as_json("scan", loc)["row_count"] == 100
    assert as_json("tag", loc, "old", "--at", full) == {"full": full, "old": full}
    assert as_json("tag", loc, "old", "--delete") == {"full": full}
    assert done("tag", loc).split() == ["tag", "snapshot", "----", "--------", "full", str(full)]


def test_files_lists_the_live_blocks_with_one_bound_per_key_term(loc: Path) -> None:
    found = as_json("files", loc)
    assert len(found) == 10
    assert {"path", "rows", "bytes", "level", "run", "min", "max"} <= set(found[0])
    assert sorted((block["min"], block["max"]) for block in found) == [
        ([i], [i + 9]) for i in range(0, 100, 10)
    ]
    assert all((loc / block["path"]).is_file() for block in found)
    assert len(as_json("files", loc, "--limit", 3)) == 3
    assert done("files", loc).splitlines()[0].split() == [
        "path",
        "rows",
        "size",
        "level",
        "run",
        "min",
        "max",
    ]


def test_gc_lists_then_deletes_then_finds_nothing(loc: Path) -> None:
    done("delete", loc, "--where", "id < 15")
    listed = done("gc", loc, "--keep", 1, "--older-than", 0, "--dry-run").splitlines()
    assert listed[-1].startswith("would expire ")
    assert sum(name.startswith("data/") for name in listed[:-1]) == 2
    collected = as_json("gc", loc, "--keep", 1, "--older-than", 0)
    assert sorted(collected["objects_deleted"]) == sorted(listed[:-1])
    again = as_json("gc", loc, "--keep", 1, "--older-than", 0)
    assert (again["objects_deleted"], again["snapshots_expired"], again["bytes_deleted"]) == ([], [], 0)
    assert "(expired)" in done("history", loc)
    result = run("scan", loc, "--as-of", 2)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "expired" in result.stderr


def test_gc_defaults_keep_what_is_young(loc: Path) -> None:
    done("delete", loc, "--where", "id < 15")
    assert as_json("gc", loc)["objects_deleted"] == []


def test_check_finds_a_missing_block(loc: Path) -> None:
    assert (
        done("check", loc, "--deep") == "every rule holds: 10 blocks of 2 snapshots, 100 rows in the newest\n"
    )
    assert as_json("check", loc)["ok"] is True
    path = as_json("files", loc)[0]["path"]
    (loc / path).unlink()
    result = run("check", loc)
    assert result.exit_code == 1
    assert "problem: " in result.stdout
    assert path in result.stdout
    result = run("check", loc, "--json")
    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (1, False)


def test_drop_needs_yes_and_a_table(loc: Path) -> None:
    assert run("drop", loc).exit_code == 2
    assert done("drop", loc, "--yes") == f"dropped {loc}\n"
    assert run("drop", loc, "--yes").exit_code == 1
    assert as_json("drop", loc, "--yes", "--if-exists") == {"location": str(loc), "dropped": False}


def test_rows_flow_through_a_pipe_from_table_to_table(loc: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    done("create", other, "--schema", SCHEMA)
    tool = f"{sys.executable} -m tblctl.cli"
    piped = subprocess.run(
        f"{tool} scan {loc} --where 'id < 30' --output - | {tool} append {other} - --json",
        shell=True, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert json.loads(piped.stdout)["rows_added"] == 30
    assert as_json("scan", other)["row_count"] == 30


@pytest.mark.parametrize("stdin", [b"", b"not an IPC stream, but long enough to be read as one" * 10])
def test_standard_input_that_is_no_stream_is_refused(loc: Path, stdin: bytes) -> None:
    before = newest(loc)
    words = [sys.executable, "-m", "tblctl.cli", "append", str(loc), "-"]
    result = subprocess.run(words, input=stdin, capture_output=True, timeout=120)
    assert (result.returncode, result.stdout) == (1, b"")
    assert b"standard input" in result.stderr
    assert newest(loc) == before


def test_a_script_that_reads_only_the_first_lines_sees_no_error(loc: Path) -> None:
    words = f"{sys.executable} -m tblctl.cli scan {loc} --json | head -c 20"
    result = subprocess.run(words, shell=True, capture_output=True, text=True, timeout=120)
    assert result.stderr == ""


def write_bad_files(folder: Path) -> None:
    """Write input that append must refuse, one file for each reason."""
    good = folder / "data.parquet"
    (folder / "text.parquet").write_text("not Parquet at all")
    (folder / "cut.parquet").write_bytes(good.read_bytes()[:-100])
    pq.write_table(pa.table({"id": ["x"], "extra": [1]}), folder / "other.parquet")
    pq.write_table(
        ROWS.slice(0, 1).set_column(0, "id", pa.array([None], pa.int64())), folder / "null.parquet"
    )


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (["scan", "{tmp}/nothing"], 1, ["nothing"]),
        (["create", "{loc}", "--schema", "a: int64"], 1, ["table"]),
        (["create", "{tmp}", "--schema", "a: int64"], 1, ["empty"]),
        (["create", "{tmp}/n", "--schema", "a: imt64"], 2, ["imt64"]),
        (["create", "{tmp}/n", "--schema", "a: list<int64>", "--cluster-by", "a"], 2, ["a"]),
        (
            ["create", "{tmp}/n", "--schema", "a: int64", "--set", "block_row=1"],
            2,
            ["block_row", "block_rows"],
        ),
        (["create", "{tmp}/n", "--like", "{tmp}/text.parquet"], 1, ["text.parquet"]),
        (["append", "{loc}", "{tmp}/missing.parquet"], 1, ["missing.parquet"]),
        (["append", "{loc}", "{tmp}/text.parquet"], 1, ["text.parquet"]),
        (["append", "{loc}", "{tmp}/cut.parquet"], 1, ["cut.parquet"]),
        (["append", "{loc}", "{tmp}/data.parquet", "{tmp}/cut.parquet"], 1, ["cut.parquet"]),
        (["append", "{loc}", "{tmp}/other.parquet"], 1, ["id", "extra", "CAST(id AS BIGINT)"]),
        (["append", "{loc}", "{tmp}/null.parquet"], 1, ["id", "null"]),
        (["append", "{loc}", "{tmp}/data.parquet", "--memory", "much"], 2, ["much"]),
        (["scan", "{loc}", "--where", "idd = 1"], 2, ["idd", "id"]),
        (["scan", "{loc}", "--where", "id = 'x'"], 2, ["id"]),
        (["scan", "{loc}", "--where", "id = = 1"], 2, []),
        (["scan", "{loc}", "--columns", "idd"], 2, ["idd", "id"]),
        (["scan", "{loc}", "--as-of", "99"], 1, ["99"]),
        (["scan", "{loc}", "--as-of", "nosuchtag"], 1, ["nosuchtag"]),
        (["delete", "{loc}", "--where", "lower(name) = 'x'"], 2, ["lower"]),
        (["update", "{loc}", "--set", "price = id", "--all"], 2, []),
        (["update", "{loc}", "--set", "prise = 1", "--all"], 2, ["prise", "price"]),
        (["rollback", "{loc}", "--to", "99"], 1, ["99"]),
        (["alter", "{loc}", "--drop-column", "id"], 2, ["id", "key"]),
        (["alter", "{loc}", "--widen-column", "id: int8"], 2, ["id"]),
        (["alter", "{loc}", "--set", "compresion=zstd"], 2, ["compression"]),
        (["gc", "{loc}", "--older-than", "soon"], 2, ["soon"]),
        (["tag", "{loc}", "nosuch", "--delete"], 1, ["nosuch"]),
        (["history", "nosuchscheme://b/t"], 1, ["nosuchscheme"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_clear_message_and_changes_nothing(
    loc: Path, tmp_path: Path, data: Path, words: list[str], code: int, parts: list[str]
) -> None:
    write_bad_files(data.parent)
    before = (newest(loc), sorted(path for path in loc.rglob("*") if path.is_file()))
    result = run(*[word.format(tmp=tmp_path, loc=loc) for word in words])
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert result.stderr.startswith("tblctl: error: ")
    assert "Traceback" not in result.stderr
    assert "bug in tblctl" not in result.stderr
    assert all(part in result.stderr for part in parts), result.stderr
    after = sorted(path for path in loc.rglob("*") if path.is_file() and path.parent.name != "data")
    assert before == (newest(loc), sorted({*after, *(p for p in before[1] if p.parent.name == "data")}))


def test_help_names_every_key_of_the_json(loc: Path, data: Path) -> None:
    shown = {
        "append": as_json("append", loc, data),
        "history": as_json("history", loc)[0],
        "files": as_json("files", loc)[0],
        "scan": as_json("scan", loc, "--explain"),
        "gc": as_json("gc", loc),
        "check": as_json("check", loc),
        "create": as_json("create", loc.parent / "new", "--schema", SCHEMA),
    }
    for name, found in shown.items():
        words = set(re.findall(r"\w+", application.commands[name].json_shape))
        assert set(found) <= words, name


def test_a_link_to_a_file_can_be_appended(loc: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "link.parquet").symlink_to(data)
    assert as_json("append", loc, tmp_path / "link.parquet")["rows_added"] == 100
    done("create", tmp_path / "like", "--like", tmp_path / "link.parquet")


def test_rows_are_appended_from_many_files_in_one_commit(loc: Path, data: Path, tmp_path: Path) -> None:
    before = newest(loc)
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), ROWS.schema) as writer:
        writer.write_table(ROWS)
    assert as_json("append", loc, data, tmp_path / "x.arrow")["rows_added"] == 200
    assert newest(loc) == before + 1


def test_defaults_of_the_command_are_those_of_the_library() -> None:
    ours = {option.name: option for option in application.commands["gc"].params}
    theirs = inspect.signature(tblctl.Table.gc).parameters
    assert ours["older_than"].default == theirs["older_than"].default
    assert f"default: {theirs['keep'].default};" in ours["keep"].help
