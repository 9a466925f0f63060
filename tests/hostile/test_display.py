"""Names and values that others chose are shown escaped: on a terminal, in logs, in JSON, in HTML pages."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl.cli.log import _Formatter
from tblctl.cli.main import application

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202eevil\u0430\u2066\n</script><script>alert(1)</script>\t\r"
"""It sets a terminal's title, clears the screen, turns the direction, looks like ASCII, breaks a line, is a script."""

FORBIDDEN = "\x1b\x07\u202e\u2066\r"


@pytest.fixture
def table(tmp_path: Path) -> tblctl.Table:
    schema = pa.schema([("a", pa.int64()), (HOSTILE, pa.string())])
    made = tblctl.create(
        tmp_path / f"t{HOSTILE.replace('/', '_')}", schema, cluster_by="a", options={"block_rows": 4}
    )
    made.append(pa.table([range(8), [HOSTILE] * 8], schema=schema))
    made.append(pa.table([range(8), [HOSTILE] * 8], schema=schema))
    return made


def shown(*words: str) -> str:
    """Return all that the command prints, on both streams."""
    return CliRunner().invoke(application, list(words)).output


COMMANDS = {
    "info": ("info",),
    "info, columns": ("info", "--columns", f'"{HOSTILE}"'),
    "schema": ("files",),
    "scan": ("scan",),
    "history": ("history",),
    "plan": ("recluster", "--dry-run", "--policy", "full"),
    "suggest": ("suggest", "--rejected"),
    "an unknown column": ("scan", "--where", "nothing = 1"),
    "a wrong condition": ("scan", "--where", f"a = '{HOSTILE}"),
    "an unknown tag": ("scan", "--as-of", HOSTILE),
    "a wrong option": ("alter", "--set", f"{HOSTILE}=1"),
    "an unknown policy": ("recluster", "--policy", HOSTILE),
    "an unknown engine": ("recluster", "--engine", HOSTILE),
    "--debug": ("scan", "--debug", "--where", f"a = '{HOSTILE}"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_that_a_command_prints_controls_the_terminal(table: tblctl.Table, name: str) -> None:
    command, *rest = COMMANDS[name]
    text = shown(command, table.location, *rest)
    assert text
    assert not set(FORBIDDEN) & set(text)


@pytest.mark.parametrize("name", ["info", "scan", "history", "plan"])
def test_json_holds_names_as_they_are_and_no_control_character(table: tblctl.Table, name: str) -> None:
    command, *rest = COMMANDS[name]
    text = shown(command, table.location, *rest, "--json")
    json.loads(text)
    assert not {character for character in text if character < " " and character != "\n"}
    assert "\u202e" not in text


def test_a_missing_table_is_shown_escaped(tmp_path: Path) -> None:
    text = shown("info", str(tmp_path / HOSTILE))
    assert "\\x1b" in text
    assert not set(FORBIDDEN) & set(text)


def test_a_message_of_the_log_stays_on_its_line() -> None:
    record = logging.LogRecord("tblctl", logging.INFO, "x", 1, "wrote %s", (HOSTILE,), None)
    text = _Formatter("%(message)s").format(record)
    assert text.isprintable()


def test_a_page_runs_no_script_that_a_name_holds(table: tblctl.Table, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    done = CliRunner().invoke(
        application, ["info", table.location, "--columns", f'"{HOSTILE}"', "--picture", str(path)]
    )
    assert done.exit_code == 0, done.output
    text = path.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert not set("\x1b\x07\u202e\u2066") & set(text)


@pytest.mark.parametrize("name", ["\u0430", "a\u200b", "\uff41"])
def test_a_name_that_looks_like_another_is_not_taken_for_it(tmp_path: Path, name: str) -> None:
    table = tblctl.create(tmp_path / "t", pa.schema([("a", pa.int64())]))
    with pytest.raises(tblctl.errors.InputError):
        table.scan(f'"{name}" = 1').to_arrow()


def test_a_link_that_leads_out_of_the_table_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ("0" * 32 + ".parquet")).write_bytes(b"precious")
    table = tblctl.create(tmp_path / "t", "a: int64")
    table.append(pa.table({"a": [1]}))
    (tmp_path / "t" / "data" / "link").symlink_to(outside)
    table.gc(keep=1, older_than=0)
    assert (outside / ("0" * 32 + ".parquet")).read_bytes() == b"precious"
