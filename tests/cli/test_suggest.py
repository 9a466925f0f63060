"""`tblctl suggest`: the ranking, the reasons, and files of conditions that cannot be read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from terminal import on_terminal

import tblctl
from tblctl.advise.reorder import EstimateLimits
from tblctl.advise.suggest import read_predicates, suggest
from tblctl.cli.commands.suggest import put_suggestion
from tblctl.cli.main import application


def run(*words: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(application, [str(word) for word in words], input=stdin)


def done(*words: object, stdin: str | None = None) -> str:
    result = run(*words, stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def as_json(*words: object) -> Any:
    return json.loads(done(*words, "--json"))


@pytest.fixture
def loc(tmp_path: Path) -> Path:
    """A table of 10 blocks in the order of `id`; `other` goes up and down, `mode` has two values."""
    path = tmp_path / "table"
    table = tblctl.create(
        str(path), "id: int64, other: int64, mode: string, tags: list<int64>", options={"block_rows": 10}
    )
    rows = {
        "id": range(100),
        "other": [number * 37 % 100 for number in range(100)],
        "mode": ["AIR", "SHIP"] * 50,
        "tags": [[1]] * 100,
    }
    table.append(pa.table(rows))
    return path


@pytest.fixture
def predicates(tmp_path: Path) -> Path:
    path = tmp_path / "typical.sql"
    path.write_text("-- dashboards\nother between 10 and 15;\nWHERE other = 90\n  and mode = 'AIR';\n")
    return path


def test_columns_are_ranked_by_depth(loc: Path) -> None:
    text = done("suggest", loc)
    lines = [line.split() for line in text.splitlines()]
    assert lines[:3] == [["snapshot", "2"], ["blocks", "10"], ["cluster", "key", "(none)"]]
    assert lines[4] == ["rank", "key", "depth", "now", "bounds", "nulls"]
    assert lines[6] == ["1", "id", "1.00", "20", "0%"]
    assert "1. id: blocks lie 1.0 deep by it now, and begin and end with 20 values" in text
    assert "to keep in mind" in text
    assert "- mode: 10 blocks begin and end with only 2 values of it" in text
    assert "tags" not in text


def test_columns_are_ranked_by_what_conditions_read(loc: Path, predicates: Path) -> None:
    text = done("suggest", loc, "--predicates", predicates)
    lines = text.splitlines()
    assert lines[4].split() == ["reads", "now", "by", "rank", "1", "condition"]
    assert lines[6].split() == ["10", "1", "other", "between", "10", "and", "15"]
    assert lines[7].split()[2:] == ["other", "=", "90", "and", "mode", "=", "'AIR'"]
    assert lines[9].split()[:4] == ["rank", "key", "reads", "depth"]
    assert lines[11].split()[:3] == ["1", "other", "1.0"]
    assert re.search(r"^1\. other: a condition reads about 1\.0 of 10 blocks, ", text, re.MULTILINE)
    assert re.search(r"^ +\d  id +<= 10\.0 ", text, re.MULTILINE), "no condition names it"
    assert "(<= some conditions test other columns: fewer if" in text
    found = as_json("suggest", loc, "--predicates", predicates)
    assert found["candidates"][0]["terms"] == ["other"]
    assert found == json.loads(
        done("suggest", loc, "--predicates", "-", "--json", stdin=predicates.read_text())
    )


def test_estimates_of_the_keys_own_conditions_are_no_bounds(loc: Path, tmp_path: Path) -> None:
    (tmp_path / "own.sql").write_text("id = 1 and other = 1 and mode = 'AIR'")
    assert "<=" not in done("suggest", loc, "--predicates", tmp_path / "own.sql")
    assert "<=" not in done("suggest", loc)


def test_long_conditions_are_cut_to_fit_a_terminal_of_80_columns(loc: Path, tmp_path: Path) -> None:
    (tmp_path / "long.sql").write_text(" or ".join(f"other = {number}" for number in range(20)))
    shown = on_terminal("suggest", loc, "--predicates", tmp_path / "long.sql", columns=80)
    assert "other = 0 or other = 1 or" in shown
    assert "not shown" not in shown


def test_estimates_of_very_many_blocks_say_how_fine_they_are(
    loc: Path, predicates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "in steps of" not in done("suggest", loc, "--predicates", predicates)
    version = tblctl.open(str(loc))._version()
    conditions = read_predicates(predicates.read_text(), version.schema)
    put_suggestion(suggest(version, conditions, (), limits=EstimateLimits(most_blocks=5)))
    assert "(estimates go in steps of 2 blocks)" in capsys.readouterr().out


def test_columns_that_cannot_be_keys_are_listed_when_asked_for(loc: Path) -> None:
    assert done("suggest", loc, "--rejected").splitlines()[-1].split() == [
        "tags",
        "list<int64>",
        "has",
        "no",
        "order",
    ]
    assert as_json("suggest", loc)["rejected"] == [{"column": "tags", "reason": "list<int64> has no order"}]


def test_a_table_without_rows_has_nothing_to_rank(tmp_path: Path) -> None:
    tblctl.create(str(tmp_path / "t"), "a: int64", cluster_by="a")
    assert done("suggest", tmp_path / "t").endswith("\nthe table has no blocks: nothing to rank\n")
    assert as_json("suggest", tmp_path / "t")["candidates"] == []


def test_a_table_whose_columns_are_all_rejected_says_how_to_see_why(tmp_path: Path) -> None:
    tblctl.create(str(tmp_path / "t"), "a: list<int64>").append(pa.table({"a": [[1]]}))
    assert "no column can be a key; --rejected shows why" in done("suggest", tmp_path / "t")


@pytest.mark.parametrize(
    ("content", "code", "parts"),
    [
        (None, 1, ["cannot read", "typical.sql", "No such file"]),
        (b"id = 1 \xff", 1, ["typical.sql", "UTF-8"]),
        (b"", 2, ["there is no condition"]),
        (b"id = 1;\n\nid = = 2;\n", 2, ["typical.sql: ", "line 3, column 6"]),
        (b"id = 1\nidd = 2\n", 2, ["typical.sql: ", "line 2, column 1", "idd"]),
        (b"lower(mode) = 'x'\n", 2, ["typical.sql: ", "column 1", "lower"]),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_message(
    loc: Path, tmp_path: Path, content: bytes | None, code: int, parts: list[str]
) -> None:
    path = tmp_path / "typical.sql"
    if content is not None:
        path.write_bytes(content)
    result = run("suggest", loc, "--predicates", path)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("tblctl: error: ")
    assert "bug in tblctl" not in result.stderr
    assert all(part in result.stderr for part in parts), result.stderr


def test_help_names_every_key_of_the_json(loc: Path, predicates: Path) -> None:
    found = as_json("suggest", loc, "--predicates", predicates)
    words = set(re.findall(r"\w+", application.commands["suggest"].json_shape))
    for item in (found, found["candidates"][0], found["predicates"][0], found["rejected"][0]):
        assert set(item) <= words
