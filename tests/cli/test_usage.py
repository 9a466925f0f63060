"""Help, wrong usage and exit codes, without a table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl import errors
from tblctl.cli.command import Command, guarded, interrupted
from tblctl.cli.failures import Terminated, exit_code
from tblctl.cli.main import COMMANDS, application


def run(*words: str) -> Result:
    return CliRunner().invoke(application, words)


def test_help_lists_every_command_with_an_example() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "Example:" in result.stdout
    assert all(f"\n  {command.name} " in result.stdout for command in COMMANDS)
    assert "..." not in result.stdout.split("Commands:")[1].split("Example:")[0], (
        "a summary is too long for a line"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_of_every_command_has_an_example_and_the_shape_of_its_json(command: Command) -> None:
    result = run(command.name, "--help")
    assert result.exit_code == 0
    assert f"Example:\n  tblctl {command.name} " in result.stdout
    assert command.name == "completion" or "--json" in result.stdout
    assert ("--storage-option" in result.stdout) == command.of_tables
    assert command.name == "completion" or "With --json, standard output is one:" in result.stdout


@pytest.mark.parametrize("words", [("info",), ()])
def test_h_is_short_for_help(words: tuple[str, ...]) -> None:
    assert run(*words, "-h").stdout == run(*words, "--help").stdout


@pytest.mark.parametrize("name", ["create", "alter"])
def test_help_explains_every_setting(name: str) -> None:
    text = run(name, "--help").stdout
    assert all(
        key in text for key in ("block_rows", "block_bytes", "row_group_rows", "compression", "sort_scope")
    )


def test_version_is_printed() -> None:
    assert run("--version").stdout.startswith("tblctl ")


def test_without_a_command_the_help_is_shown_as_wrong_usage() -> None:
    result = run()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Usage: tblctl")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scna", "t"], "there is no command 'scna'; did you mean 'scan'?"),
        (["zzz"], "there is no command 'zzz'; there are: create, import"),
        (["scan"], "Missing argument 'LOC'"),
        (["scan", "t", "--wher", "a"], "--where"),
        (["scan", "t", "--limit", "-1"], "-1"),
        (["scan", "t", "--columns", "a,,b"], "names separated by commas"),
        (["scan", "t", "--output", "x.xlsx"], "'x.xlsx' must end in one of .parquet"),
        (["scan", "t", "--output", "s3://b/x.parquet"], "only local files are written"),
        (["scan", "t", "--storage-option", "key"], "'key' is not KEY=VALUE"),
        (["create", "t"], "one of --schema and --like"),
        (["create", "t", "--schema", "a: int64", "--like", "x.parquet"], "one of --schema and --like"),
        (
            ["create", "t", "--schema", "a: int64", "--set", "block_rows"],
            "--set: 'block_rows' is not KEY=VALUE",
        ),
        (["alter", "t"], "say what to alter"),
        (
            ["alter", "t", "--drop-column", "a", "--set", "b=c"],
            "one thing at a time, not --drop-column, --set",
        ),
        (["alter", "t", "--rename-column", "a"], "--rename-column: expected OLD=NEW, not 'a'"),
        (["alter", "t", "--add-column", "a"], '--add-column: expected "name: type"'),
        (["append", "t"], "Missing argument 'FILE...'"),
        (["append", "t", "-", "x.parquet"], "'-' (standard input) cannot be mixed with files"),
        (["delete", "t"], "Missing option '--where'"),
        (["update", "t", "--where", "a = 1"], "Missing option '--set'"),
        (["update", "t", "--set", "a = 1"], "say which rows to change: --where CONDITION, or --all"),
        (["update", "t", "--set", "a = 1", "--where", "a = 1", "--all"], "exclude each other"),
        (["rollback", "t"], "Missing option '--to'"),
        (["tag", "t", "--delete"], "name the tag"),
        (["tag", "t", "v1", "--delete", "--at", "7"], "exclude each other"),
        (["drop", "t"], "add --yes if that is meant"),
        (["gc", "t", "--keep", "0"], "--keep"),
        (["completion"], "Choose from: bash, zsh, fish\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_exits_with_2_and_one_message(words: list[str], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("tblctl: error: ")
    assert message in result.stderr
    assert "--help" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidPredicateError, 2),
        (errors.InvalidStatementError, 2),
        (errors.InvalidOptionError, 2),
        (errors.InvalidKeyError, 2),
        (errors.InvalidSchemaError, 2),
        (errors.UnknownColumnError, 2),
        (errors.SchemaMismatchError, 1),
        (errors.InvalidDataError, 1),
        (errors.TableNotFoundError, 1),
        (errors.TableExistsError, 1),
        (errors.SnapshotNotFoundError, 1),
        (errors.StorageError, 1),
        (errors.ConflictError, 1),
        (errors.CorruptTableError, 1),
        (errors.InternalError, 1),
    ],
)
def test_only_the_commands_own_words_are_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, error: type[errors.TblctlError], code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("the reason; what to do")

    monkeypatch.setattr(tblctl, "open", fail, raising=False)
    result = run("history", "t")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == "tblctl: error: the reason; what to do\n"
    assert exit_code(error("x")) == code


def test_an_unexpected_error_is_called_a_bug_and_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(tblctl, "open", fail, raising=False)
    result = run("history", "t")
    assert result.exit_code == 1
    assert result.stderr == (
        "tblctl: error: a bug in tblctl, please report it: KeyError: 'x'; add --debug for the traceback\n"
    )
    debug = run("history", "t", "--debug")
    assert debug.exit_code == 1
    assert "Traceback (most recent call last)" in debug.stderr


def test_an_interrupt_exits_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert guarded(interrupt, debug=False) == 130
    assert capsys.readouterr().err == "tblctl: interrupted\n"


def test_ctrl_c_is_answered_at_once_and_then_ends_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert capfd.readouterr().err == "tblctl: stopping ...\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt, Terminated])
def test_a_command_that_writes_and_is_stopped_says_where_to_look(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(tblctl, "open", stop, raising=False)
    told = run("append", "my table", "x.parquet").stderr.splitlines()
    assert "\n".join(told[1:]) == (
        "`tblctl history 'my table'` lists what is committed; files of what is not were deleted, or are left for "
        "`tblctl gc 'my table'`"
    )
    assert len(run("history", "t").stderr.splitlines()) == 1, "it writes nothing"


def test_a_reader_that_closes_the_pipe_early_sees_no_error() -> None:
    program = (
        "import sys, click; from tblctl.cli.command import guarded\n"
        "sys.exit(guarded(lambda: [click.echo('x' * 1000) for _ in range(10000)] and None, debug=False))"
    )
    read_end, write_end = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", program], stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    os.read(read_end, 10)
    os.close(read_end)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (141, b"")


def test_a_command_whose_reader_is_gone_ends_silently_with_141(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(tblctl, "open", gone, raising=False)
    result = run("history", "t")
    assert (result.exit_code, result.output) == (141, "")


BUSY = """
import sys, time
from tblctl.cli import main
from tblctl.merger.presort.spill import SpillFolder
real = SpillFolder.write
def slow(folder, tables):
    pieces = real(folder, tables)
    print("written", flush=True)
    time.sleep(0.5)
    return pieces
SpillFolder.write = slow
main.run()
"""


def test_a_merge_that_is_terminated_cleans_up_and_says_so(tmp_path: Path) -> None:
    table = tblctl.create(tmp_path / "t", "k: int64, s: string", options={"block_rows": 2000})
    for seed in range(3):
        table.append(
            pa.table(
                {"k": [n * 7919 % 3001 + seed for n in range(2000)], "s": [f"{n:03000}" for n in range(2000)]}
            )
        )
    table.set_cluster_key("k")
    before = sorted(path.name for path in (tmp_path / "t" / "data").iterdir())
    (tmp_path / "tmp").mkdir()
    words = ["recluster", str(tmp_path / "t"), "--final", "--memory", "16MiB"]
    with subprocess.Popen(
        [sys.executable, "-c", BUSY, *words],
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline().startswith(b"written")  # threads that write at once share a line
        assert list((tmp_path / "tmp").iterdir())
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)  # supervisors ask twice
        _, said = process.communicate(timeout=60)
    first, note = said.decode().splitlines()
    assert (process.returncode, first) == (143, "tblctl: terminated")
    assert f"`tblctl history {tmp_path / 't'}` lists what is committed" in note
    assert not list((tmp_path / "tmp").iterdir())
    assert sorted(path.name for path in (tmp_path / "t" / "data").iterdir()) == before


@pytest.mark.parametrize(("given", "found"), [(None, "10000"), ("10", "10")])
def test_the_allocator_of_arrow_is_told_to_keep_pages_before_it_is_loaded(
    given: str | None, found: str
) -> None:
    program = (
        "import os, sys; from tblctl.cli import main\n"
        "main.application.main = lambda **_: print(os.environ['MIMALLOC_PURGE_DELAY'], 'pyarrow' in sys.modules)\n"
        "main.run()"
    )
    environment = {name: value for name, value in os.environ.items() if name != "MIMALLOC_PURGE_DELAY"}
    environment |= {} if given is None else {"MIMALLOC_PURGE_DELAY": given}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout == f"{found} False\n", done.stderr


def test_a_command_loads_arrow_without_pandas_and_leaves_pandas_to_others(tmp_path: Path) -> None:
    """Arrow would load it with its first array, which takes a sixth of a command on a small table."""
    program = (
        "import os, sys; from tblctl.cli import main\n"
        "def ended(code):\n"
        "    loaded = 'pandas' in sys.modules\n"
        "    import pandas\n"
        "    print(code, loaded, len(pandas.DataFrame({'n': [1]})))\n"
        "main._leave = ended\n"
        f"sys.argv = ['tblctl', 'create', {str(tmp_path / 't')!r}, '--schema', 'k: int64', '--cluster-by', 'k']\n"
        "main.run()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["0 False 1"], done.stderr + done.stdout
