"""Options that every command has: the log, quiet, colours, errors as JSON; and the commands about the command."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl import errors
from tblctl.cli.commands.about import PACKAGES
from tblctl.cli.failures import code_of
from tblctl.cli.main import application
from tblctl.cli.show import encoding, page


def run(*words: str) -> Result:
    return CliRunner().invoke(application, words)


@pytest.fixture
def logging_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def log_and_fail(*_: object, **__: object) -> None:
        for level in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger("tblctl.x"), level)("this is %s", level)
        raise errors.TableNotFoundError("no table", location="t", tried=("a", 1), near=Path("/x"))

    monkeypatch.setattr(tblctl, "open", log_and_fail, raising=False)


@pytest.mark.usefixtures("logging_table")
@pytest.mark.parametrize(
    ("words", "levels"),
    [
        (["--debug"], ["debug", "info", "warning", "error"]),
        (["--log-level", "debug"], ["debug", "info", "warning", "error"]),
        (["-v"], ["info", "warning", "error"]),
        (["--log-level", "warning"], ["warning", "error"]),
        (["-q"], ["error"]),
    ],
)
@pytest.mark.parametrize("place", ["before", "after"])
def test_the_log_is_shown_from_the_level_that_is_asked_for(
    words: list[str], levels: list[str], place: str
) -> None:
    done = run(*words, "history", "t") if place == "before" else run("history", "t", *words)
    assert done.exit_code == 1
    said = [line.rpartition("this is ")[2] for line in done.stderr.splitlines() if "this is " in line]
    assert said == levels
    assert done.stderr.endswith("tblctl: error: no table\n"), "errors are shown at any level"
    assert not [item for item in logging.getLogger("tblctl").handlers if type(item).__name__ == "_Handler"]


@pytest.mark.parametrize("words", [["-v", "-q"], ["-q", "--log-level", "info"]])
def test_two_wishes_for_the_log_contradict_each_other(words: list[str]) -> None:
    done = run("history", "t", *words)
    assert done.exit_code == 2
    assert "exclude each other" in done.stderr


def test_an_error_with_json_is_one_line_of_json_on_standard_error(logging_table: None) -> None:
    done = run("history", "t", "--json", "-q")
    assert (done.exit_code, done.stdout) == (1, "")
    assert json.loads(done.stderr.splitlines()[-1]) == {
        "code": "table_not_found",
        "message": "no table",
        "details": {"location": "t", "tried": ["a", 1], "near": "/x"},
        "notes": [],
        "exit_code": 1,
    }


@pytest.mark.parametrize(
    ("words", "message"), [(["--limit", "-1"], "-1"), (["--output", "-"], "both want standard output")]
)
def test_wrong_usage_with_json_is_json_too(words: list[str], message: str) -> None:
    done = run("scan", "t", "--json", *words)
    found = json.loads(done.stderr)
    assert (done.exit_code, found["code"], found["exit_code"]) == (2, "usage", 2)
    assert message in found["message"]


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [
        (KeyboardInterrupt, "interrupted", 130),
        (KeyError, "bug", 1),
        (OSError(28, "full", "/f"), "no_space", 1),
    ],
)
def test_every_end_has_a_code_in_json(
    error: BaseException, code: str, exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(tblctl, "open", fail, raising=False)
    done = run("history", "t", "--json")
    assert json.loads(done.stderr)["code"] == code
    assert done.exit_code == json.loads(done.stderr)["exit_code"] == exit_code


def test_a_code_is_the_name_of_the_error() -> None:
    assert code_of(errors.CommitOutcomeUnknownError) == "commit_outcome_unknown"
    assert code_of(errors.InputError) == "input"


@pytest.mark.parametrize("place", ["before", "after"])
def test_colours_can_be_asked_for_and_forbidden(
    overlapping: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def info(*color: str) -> str:
        return (
            run(*color, "info", overlapping).stdout
            if place == "before"
            else run("info", overlapping, *color).stdout
        )

    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" in info("--color", "always"), "what is asked for goes before the environment"
    plain = info("--color", "never")
    assert "\x1b" not in plain
    assert plain == info("--color", "auto") == info()


def test_on_a_terminal_there_are_colours_unless_no_color_is_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    page.put(("deep", "red"))
    monkeypatch.setenv("NO_COLOR", "1")
    page.put(("deep", "red"))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("\x1b[")
    assert "31m" in first
    assert second == "deep"


def test_version_names_what_matters() -> None:
    found = json.loads(run("version", "--json").stdout)
    assert found["tblctl"] == tblctl.__version__
    assert found["packages"]["pyarrow"] == metadata.version("pyarrow")
    assert set(found["packages"]) == set(PACKAGES)
    text = run("version").stdout
    assert all(f"{name} " in text for name in ("tblctl", "python", *PACKAGES))


def test_version_says_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert json.loads(run("version", "--json").stdout)["packages"]["s3fs"] is None
    assert "(not installed)" in run("version").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_asks_the_command(shell: str) -> None:
    done = run("completion", shell)
    assert done.exit_code == 0
    assert f"_TBLCTL_COMPLETE={shell}_complete" in done.stdout


def test_the_shell_completes_commands_options_and_folders() -> None:
    def completed(words: str, number: int) -> list[str]:
        done = CliRunner().invoke(
            application,
            [],
            prog_name="tblctl",
            env={"_TBLCTL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)},
        )
        return done.stdout.splitlines()

    assert completed("tblctl reclu", 1) == ["plain,recluster"]
    assert "plain,--cluster-by" in completed("tblctl create t --cl", 3)
    assert completed("tblctl info lake", 2) == ["dir,lake"]
    assert completed("tblctl append t part", 3) == ["file,part"]


def test_the_commands_about_the_command_load_no_arrow() -> None:
    program = (
        "import sys; from tblctl.cli import main\n"
        "main._leave = lambda code: print(code, 'pyarrow' in sys.modules)\n"
        "sys.argv = ['tblctl', 'version']\n"
        "main.run()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 False", done.stderr


@pytest.mark.parametrize("code", ["latin-1", "ascii"])
def test_what_an_encoding_lacks_is_escaped_as_json_escapes_it(code: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=code)
    encoding.write_any_text(stream)
    stream.write('"deep █▁…", "日本 😀"')
    stream.seek(0)
    text = stream.buffer.read().decode(code)
    assert text.startswith('"deep #_~", ')
    assert json.loads(f"[{text}]") == ["deep #_~", "日本 😀"]


def test_a_terminal_of_latin_1_shows_bars_and_names_without_an_error(tmp_path: Path) -> None:
    table = tblctl.create(tmp_path / "日本", 'k: int64, "ключ": string', cluster_by="k")
    table.append(pa.table({"k": [1], "ключ": ["x"]}))
    for words in (["info", str(tmp_path / "日本")], ["scan", str(tmp_path / "日本"), "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "tblctl.cli", *words],
            capture_output=True,
            env={"PYTHONIOENCODING": "latin-1", "PATH": "/usr/bin:/bin", "TBLCTL_CONFIG": os.devnull},
        )
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
    assert json.loads(done.stdout.decode("latin-1"))["rows"] == [{"k": 1, "ключ": "x"}]
