"""`tblctl suggest --layouts`: the ranking, its error, the sample, and the next command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl.advise.layouts import MEASURED_ERRORS, Layouts
from tblctl.cli.main import application
from tblctl.cli.show import layouts as shown


def run(*words: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(application, [str(word) for word in words], input=stdin)


def rows() -> pa.Table:
    numbers = range(2000)
    return pa.table(
        {"id": numbers, "a": [at * 377 % 1000 for at in numbers], "b": [at * 619 % 1000 for at in numbers]}
    )


@pytest.fixture
def loc(tmp_path: Path) -> Path:
    """A table of 40 blocks in the order of `id`."""
    table = tblctl.create(str(tmp_path / "table"), rows().schema, options={"block_rows": 50})
    table.append(rows())
    return tmp_path / "table"


@pytest.fixture
def predicates(tmp_path: Path) -> Path:
    path = tmp_path / "my cuts.sql"
    path.write_text("a between 10 and 40\nb between 700 and 730\na = 5\n")
    return path


def test_layouts_are_ranked_with_their_error_and_the_next_command_works(loc: Path, predicates: Path) -> None:
    result = run("suggest", loc, "--layouts", "--predicates", predicates)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[1].split(maxsplit=1) == ["blocks", "40; 40 if written anew"]
    assert lines[3].split() == ["conditions", "3"]
    assert lines[4].split(maxsplit=1) == ["sample", "2,000 rows, of 40 row groups"]
    assert lines[6].split("  ")[0] == "rank"
    assert lines[6].split()[1:] == ["key", "reads", "now", "would", "read", "error"]
    assert "(shares of the blocks that a condition reads on average)" in lines
    alter, recluster = (shlex.split(line) for line in lines[-2:])
    assert lines[-3] == "next:"
    assert run(*alter[1:]).exit_code == 0
    assert run(*recluster[1:]).exit_code == 0
    assert tblctl.open(str(loc)).info().unclustered_block_count == 0
    again = run("suggest", loc, "--layouts", "--predicates", predicates).stdout
    assert "the table has this cluster key" in again or "no layout would make" in again


def test_json_has_the_ranking_with_the_file_in_the_key_of_a_tree(loc: Path, predicates: Path) -> None:
    found = json.loads(run("suggest", loc, "--layouts", "--predicates", predicates, "--json").stdout)
    layouts = found["layouts"]
    (tree,) = [
        item for item in layouts["candidates"] if item["kind"] == "qdtree" and "by=" not in item["key"]
    ]
    assert tree["key"] == f'qdtree(file:"{predicates}")'
    assert tree["error"] == MEASURED_ERRORS["qdtree"]
    assert layouts["row_group_count"] == 40
    piped = run("suggest", loc, "--layouts", "--predicates", "-", "--json", stdin=predicates.read_text())
    keys = [item["key"] for item in json.loads(piped.stdout)["layouts"]["candidates"]]
    assert "qdtree(file:FILE)" in keys, "standard input is no file that a key can name"


def test_without_the_option_nothing_is_read_of_rows(loc: Path, predicates: Path) -> None:
    for path in (loc / "data").rglob("*.parquet"):
        path.unlink()
    plain = run("suggest", loc, "--predicates", predicates, "--json")
    assert json.loads(plain.stdout)["layouts"] is None
    assert run("suggest", loc, "--layouts", "--predicates", predicates).exit_code != 0


def test_plain_files_are_refused_with_a_reason(tmp_path: Path, predicates: Path) -> None:
    (tmp_path / "plain").mkdir()
    pq.write_table(rows(), tmp_path / "plain" / "a.parquet")
    result = run("suggest", tmp_path / "plain", "--layouts", "--predicates", predicates)
    assert result.exit_code == 2
    assert "plain Parquet files, which is only read" in result.stderr


def suggestion(**more: Any) -> tblctl.Suggestion:
    """Return a ranking of one layout."""
    layout = tblctl.LayoutEstimate(key="hilbert(a, b)", kind="hilbert", read_share=(0.25,), error=0.1)
    members: dict[str, Any] = {
        "candidates": (layout,),
        "read_share_now": 1.0,
        "block_count": 900,
        "part_count": 900,
        "row_count": 9000,
        "row_group_count": 8,
        "left_out": "",
    }
    key = more.pop("cluster_by", ())
    return tblctl.Suggestion(
        snapshot=1,
        cluster_by=key,
        total_block_count=7,
        predicates=(),
        candidates=(),
        rejected=(),
        estimate_step=1.0,
        layouts=Layouts(**(members | more)),
    )


def test_what_a_ranking_does_not_know_is_said() -> None:
    assert shown.notes(suggestion().layouts) == []
    few = suggestion(part_count=30, left_out="no cut").layouts
    assert [note.split(":")[0] for note in shown.notes(few)] == ["(estimates are for 30 blocks", "(no tree"]
    assert shown.notes(suggestion(block_count=1, part_count=1).layouts) == [
        "(all rows fit into one block: no layout lets a condition skip any)"
    ]


def test_the_next_command_is_that_of_the_format(capsys: pytest.CaptureFixture[str]) -> None:
    shown.put_next(suggestion(), "iceberg://lake/db.t", is_iceberg=True)
    assert (
        "tblctl recluster iceberg://lake/db.t --cluster-by 'hilbert(a, b)' --final" in capsys.readouterr().out
    )
    shown.put_next(suggestion(cluster_by=("hilbert(a, b)",)), "t", is_iceberg=False)
    assert capsys.readouterr().out.splitlines() == [
        "the table has this cluster key; next, to bring all blocks into its order:",
        "  tblctl recluster t --final",
    ]
    shown.put_next(suggestion(read_share_now=0.26), "t", is_iceberg=False)
    assert capsys.readouterr().out == "no layout would make these conditions read much less than now\n"
