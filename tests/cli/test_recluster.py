"""`recluster`, `sql` and `append --recluster`: the calls that they make to the library, and their output.

The library is a recording fake here, so that every outcome can be tested. test_recluster_tables.py runs the same
commands on real tables.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl import errors
from tblctl.cli.config import source_options
from tblctl.cli.main import application
from tblctl.selector.budget import Budget
from tblctl.selector.plan import Group, Plan, PlanOptions, Prediction, Rejection
from tblctl.selector.pricing.price import Price


@dataclass(frozen=True, kw_only=True)
class Done:
    """A fake `tblctl.Outcome`."""

    rounds: int = 2
    commits: int = 2
    committed_groups: int = 3
    conflicted_groups: int = 0
    failed_groups: int = 0
    blocks_in: int = 61
    blocks_out: int = 31
    rows: int = 600_572
    bytes_read: int = 2**24
    bytes_written: int = 2**23
    depth_before: float = 60.5
    depth_after: float = 1.0
    overlaps_before: float = 59.5
    overlaps_after: float = 0.0
    seconds: float = 1.25
    snapshot: int | None = 64
    policy: str = "levels"
    engine: str | None = "local"
    note: str = ""
    entries_copied: int = 0
    figures_of: str = "table"
    left_groups: int = 0
    bytes_copied: int = 0
    predicted: Any = None
    predicted_depth_after: float | None = None
    groups: tuple[tblctl.GroupOutcome, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "groups": [asdict(group) for group in self.groups]}


def group(number: int, status: str, error: str | None = None) -> tblctl.GroupOutcome:
    return tblctl.GroupOutcome(
        round=1, number=number, status=status, why="deepest range", error=error, blocks_in=7, blocks_out=7, rows=100,
        rows_copied=0, bytes_read=0, bytes_written=0, task_seconds=0.0, cpu_seconds=0.0,
    )  # fmt: skip


NOTHING = Done(
    rounds=0, commits=0, committed_groups=0, blocks_in=0, blocks_out=0, rows=0, snapshot=None,
    note="nothing to do: level 0 is well clustered",
)  # fmt: skip
SALVAGED = Done(
    committed_groups=2,
    conflicted_groups=1,
    groups=(
        group(0, "committed"),
        group(1, "conflicted", error="data/a.parquet left the table"),
        group(2, "committed"),
    ),
)
FAILED = Done(
    committed_groups=2, failed_groups=1, groups=(group(1, "failed", error="data/b.parquet is missing"),)
)
PLAN = Plan(
    table_id="t",
    snapshot=61,
    policy="levels",
    groups=(
        Group(
            number=0, blocks=("data/a.parquet", "data/b.parquet"), sort_id=1, output_level=1,
            why="deepest range of level 0", rows=2_000, size_bytes=2**20, decoded_bytes=2**21, same_key_rows=9,
            depth_before=2.0,
            depth_after=1.0,
        ),
        Group(
            number=1, blocks=("data/c.parquet",), sort_id=1, output_level=1, why="not sorted: sorted in", rows=500,
            size_bytes=2**19, decoded_bytes=2**20, same_key_rows=None, depth_before=None, depth_after=1.0,
        ),
    ),
    rejected=(Rejection(rule="constant", level=None, blocks=4, size_bytes=2**30, why="one key only, and full"),),
    predicted=Prediction(
        average_depth_before=2.5,
        average_depth_after=1.25,
        average_overlaps_before=1.5,
        average_overlaps_after=0.25,
        block_count_before=7,
        block_count_after=6,
    ),
    note="2 groups",
    options=PlanOptions(policy={}, budget=Budget(), memory_bytes=2**30),
)  # fmt: skip


@dataclass
class Library:
    """Fakes the tables of the library, and Spark sessions."""

    outcome: Done = field(default_factory=Done)
    outcome_of_round: Any = None
    plan_made: Plan = PLAN
    error: Exception | None = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    open_sessions: int = 0

    def open(self, location: str, **_: Any) -> Library:
        if "missing" in location:
            raise errors.TableNotFoundError(f"there is no table at {location}")
        return self

    def close(self) -> None:
        """Nothing goes on in the background."""

    def plan(self, **arguments: Any) -> Plan:
        self.calls.append(("plan", arguments))
        return self.plan_made

    def append(self, files: list[str], **arguments: Any) -> tblctl.WriteOutcome:
        self.calls.append(("append", {"files": files, **arguments}))
        return tblctl.WriteOutcome(
            operation="append", snapshot=3, rows_added=5, rows_removed=0, blocks_added=1, blocks_removed=0,
            bytes_added=100, seconds=0.5, attempts=1, recluster=self.outcome_of_round,
        )  # fmt: skip

    def recluster(self, plan: Plan | None = None, **arguments: Any) -> Done:
        with (arguments["spark"] or contextlib.nullcontext)() as session:
            self.calls.append(("recluster", {"plan": plan, **arguments, "spark": session}))
        if self.error is not None:
            raise self.error
        return self.outcome

    @contextlib.contextmanager
    def spark_session(self, **arguments: Any) -> Iterator[str]:
        self.sessions.append(arguments)
        self.open_sessions += 1
        yield "session"
        self.open_sessions -= 1

    def asked(self) -> dict[str, Any]:
        """Return the arguments of the only call that differ from the defaults."""
        [(name, arguments)] = self.calls
        plain = {
            "plan": None, "policy": None, "where": None, "options": None, "final": False, "engine": "auto",
            "spark": None, "on_conflict": "salvage", "commit_every": None, "progress": None,
        }  # fmt: skip
        assert name == "recluster"
        return {key: value for key, value in arguments.items() if value != plain[key]}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(tblctl, "open", made.open, raising=False)
    monkeypatch.setattr("tblctl.tables.open", made.open)
    monkeypatch.setattr(tblctl, "spark_session", made.spark_session, raising=False)
    return made


def run(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(application, words, input=stdin)


def done(*words: str) -> str:
    result = run(*words)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], {}),
        (["--final"], {"final": True}),
        (["--where", "a = 1"], {"where": "a = 1"}),
        (["--policy", "full"], {"policy": "full"}),
        (["--threshold", "4"], {"options": {"threshold": 4.0}}),
        (["--ratio", "0.001"], {"options": {"ratio": 0.001}}),
        (["--max-group-bytes", "2GiB"], {"options": {"max_group_bytes": 2**31}}),
        (["--memory", "500MB"], {"options": {"memory_bytes": 500_000_000}}),
        (["--max-bytes", "1MiB"], {"options": {"max_bytes": 2**20}}),
        (["--max-blocks", "500", "--max-groups", "3"], {"options": {"max_blocks": 500, "max_groups": 3}}),
        (["--include-unclustered"], {"options": {"include_unclustered": True}}),
        (["--no-include-unclustered"], {"options": {"include_unclustered": False}}),
        (["--engine", "local"], {"engine": "local"}),
        (["--on-conflict", "fail"], {"on_conflict": "fail"}),
        (["--commit-every", "8"], {"commit_every": "8"}),
        (["--commit-every", "60s"], {"commit_every": "60s"}),
        (["--if-exists"], {}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_option_reaches_the_library(library: Library, words: list[str], asked: dict[str, Any]) -> None:
    done("recluster", "t", *words)
    assert library.asked() == asked
    assert library.sessions == []


@pytest.mark.parametrize(
    ("words", "session", "engine"),
    [
        (["--engine", "spark"], {"master": None, "remote": None, "conf": {}}, "spark"),
        (["--master", "local[2]"], {"master": "local[2]", "remote": None, "conf": {}}, "auto"),
        (
            ["--remote", "sc://h:1", "--engine", "spark", "--spark-conf", "a.b=c", "--spark-conf", "d=e=f"],
            {"master": None, "remote": "sc://h:1", "conf": {"a.b": "c", "d": "e=f"}},
            "spark",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize(
    "command", [("recluster", "t"), ("sql", "ALTER TABLE t RECLUSTER")], ids=lambda c: c[0]
)
def test_a_session_is_opened_as_asked_and_closed(
    library: Library, command: tuple[str, ...], words: list[str], session: dict[str, Any], engine: str
) -> None:
    done(*command, *words)
    assert library.sessions == [session]
    assert library.open_sessions == 0
    arguments = library.calls[0][1]
    assert (arguments["engine"], arguments["spark"]) == (engine, "session")


def test_a_table_that_is_missing_starts_no_session(library: Library) -> None:
    assert run("recluster", "missing", "--master", "local[2]").exit_code == 1
    assert library.sessions == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(
            ([*words, "--commit-every", text], f"--commit-every is {text!r}, expected a number of groups")
            for text in ("often", "0", "0s", "-1", "1.5", "3x", "")
            for words in ([], ["--dry-run"])
        ),
        (["--threshold", "2", "--ratio", "0.1"], "--threshold and --ratio exclude each other"),
        (["--threshold", "deep"], "'--threshold': 'deep'"),
        (["--master", "local", "--remote", "sc://h"], "--master and --remote exclude each other"),
        (
            ["--engine", "local", "--master", "local"],
            "--engine local runs without Spark, but --master is for Spark",
        ),
        (["--engine", "local", "--remote", "sc://h"], "but --remote is for Spark"),
        (["--engine", "local", "--spark-conf", "a=b"], "but --spark-conf is for Spark"),
        (["--spark-conf", "a=b"], "--spark-conf needs a session to set"),
        (["--master", "local", "--spark-conf", "ab"], "--spark-conf: 'ab' is not KEY=VALUE"),
        (["--engine", "flink"], "'flink' is not one of 'auto', 'local', 'spark'"),
        (["--on-conflict", "wait"], "'wait' is not one of 'salvage', 'fail'"),
        (["--memory", "-1"], "'--memory': '-1' is not a size"),
        (["--memory", "0B"], "'--memory': '0B' is not above 0"),
        (["--memory", "4"], "'--memory': '4' has no unit; write 500MB, 2GiB or 4B"),
        (["--memory", "1.5"], "'--memory': '1.5' has no unit; write 500MB, 2GiB\n"),
        (["--memory", "x"], "'--memory': 'x' is not a size; write one such as 500MB or 2GiB\n"),
        (["--max-group-bytes", "2 elephants"], "'--max-group-bytes': '2 elephants' is not a size"),
        (["--max-bytes", "GiB"], "'--max-bytes': 'GiB' is not a size"),
        (["--max-bytes", "0.3B"], "'--max-bytes': '0.3B' is not a whole number of bytes"),
        (["--max-blocks", "0"], "'--max-blocks': 0 is not in the range x>=1"),
        (["--max-groups", "-3"], "'--max-groups': -3 is not in the range x>=1"),
        (["--plan", "missing.json"], "'--plan': 'missing.json': No such file"),
        (
            ["--policy", "full", "--threshold", "2"],
            "--policy full does not take --threshold",
        ),
        (["--ratio", "0.5", "--policy", "full"], "leave --ratio out, or choose levels"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_words_are_named_before_anything_is_opened(
    library: Library, words: list[str], message: str
) -> None:
    result = run("recluster", "missing", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--where", ["a = 1"]),
        ("--policy", ["full"]),
        ("--threshold", ["2"]),
        ("--ratio", ["0.5"]),
        ("--memory", ["1GiB"]),
        ("--max-group-bytes", ["1GiB"]),
        ("--max-bytes", ["1GiB"]),
        ("--max-blocks", ["5"]),
        ("--max-groups", ["5"]),
        ("--include-unclustered", []),
        ("--final", []),
        ("--dry-run", []),
    ],
)
def test_a_plan_excludes_options_that_plan(
    library: Library, tmp_path: Path, option: str, words: list[str]
) -> None:
    file = tmp_path / "plan.json"
    file.write_text("{}")
    result = run("recluster", "t", "--plan", str(file), option, *words)
    assert result.exit_code == 2
    assert f"--plan and {option} exclude each other" in result.stderr
    assert library.calls == []


def test_a_dry_run_as_json_is_a_plan_that_plan_takes(library: Library, tmp_path: Path) -> None:
    text = done("recluster", "t", "--dry-run", "--json")
    file = tmp_path / "plan.json"
    file.write_text(text)
    library.calls.clear()
    done("recluster", "t", "--plan", str(file), "--engine", "local")
    assert library.asked() == {"plan": PLAN, "engine": "local"}
    library.calls.clear()
    assert run("recluster", "t", "--plan", "-", stdin=text).exit_code == 0
    assert library.asked() == {"plan": PLAN}


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ("[]", "is not a plan of tblctl")])
def test_a_file_that_is_no_plan_is_refused(library: Library, text: str, message: str) -> None:
    result = run("recluster", "t", "--plan", "-", stdin=text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert library.calls == []


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], {"where": None, "options": {}}),
        (
            ["--policy", "full", "--where", "a = 1", "--max-groups", "1"],
            {"policy": "full", "where": "a = 1", "options": {"max_groups": 1}},
        ),
        (["--final"], {"where": None, "options": {"include_unclustered": True}}),
        (
            ["--final", "--no-include-unclustered"],
            {"where": None, "options": {"include_unclustered": False}},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_dry_run_only_plans(library: Library, words: list[str], asked: dict[str, Any]) -> None:
    done("recluster", "t", "--dry-run", "--master", "local[2]", *words)
    assert library.calls == [("plan", asked)]
    assert library.sessions == []


def test_the_help_lists_every_key_of_a_plan(library: Library) -> None:
    text = done("recluster", "--help")
    shown = set(re.findall(r"\w+", text[text.index("with --dry-run the plan") :]))
    assert {"version", *(item.name for item in fields(Plan)), *(item.name for item in fields(Group))} <= shown


def test_a_dry_run_shows_groups_what_is_left_out_and_what_to_expect(library: Library) -> None:
    lines = done("recluster", "t", "--dry-run").splitlines()
    cells = [" ".join(line.split()) for line in lines]
    assert cells[0] == "policy levels on snapshot 61:"
    assert "0 1 2 2,000 1.0 MiB 2.00 1.00" in cells
    assert "1 1 1 500 512.0 KiB ? 1.00" in cells
    assert "group 0: deepest range of level 0" in cells
    assert "group 1: not sorted: sorted in" in cells
    assert "(2 groups: 3 blocks, 2,500 rows, 1.5 MiB to rewrite)" in cells
    assert "constant 4 1.0 GiB one key only, and full" in cells
    assert "table now expected" in cells
    assert "depth 2.5000 1.2500" in cells
    assert "overlaps 1.5000 0.2500" in cells
    assert "blocks 7 6" in cells
    assert lines[-1] == "Nothing was changed."
    final = done("recluster", "t", "--dry-run", "--final").splitlines()
    assert final[-1].startswith("This is the first round;")


def test_a_dry_run_with_nothing_to_do_says_why(library: Library) -> None:
    library.plan_made = replace(PLAN, groups=(), note="nothing to do: level 0 is well clustered")
    assert done("recluster", "t", "--dry-run") == "nothing to do: level 0 is well clustered\n"


def test_a_run_tells_before_and_after(library: Library) -> None:
    text = done("recluster", "t")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == (
        "reclustered 600,572 rows in 2 rounds, 3 groups on the local engine: snapshot 64, 1.25 s"
    )
    assert lines[4:] == [
        "depth 60.5000 1.0000",
        "overlaps 59.5000 0.0000",
        "blocks merged 61 31",
        "bytes merged 16.0 MiB 8.0 MiB",
    ]


def test_what_was_copied_is_told_from_what_was_decoded_which_alone_counts_for_a_budget(
    library: Library,
) -> None:
    predicted = Price(
        blocks=61, rows=600_572, bytes_read=2**24, bytes_copied=2**22, bytes_written=2**23, memory_bytes=2**26,
        requests=9, seconds=1.5, cost=None, suggested_bytes=0,
    )  # fmt: skip
    library.outcome = Done(bytes_copied=2**23, predicted=predicted, predicted_depth_after=1.0)
    lines = done("recluster", "t", "--max-bytes", "13MiB").splitlines()
    assert [line.split() for line in lines if line.startswith(("bytes merged", "of them copied"))] == [
        ["bytes", "merged", "16.0", "MiB", "8.0", "MiB"],
        ["of", "them", "copied", "8.0", "MiB", "8.0", "MiB"],
    ]
    assert (
        "predicted: 12.0 MiB decoded and 4.0 MiB copied undecoded, 8.0 MiB written, 9 requests, 1.50 s; depth 1.00"
        in " ".join(lines)
    )


def test_nothing_to_do_prints_why_and_is_no_failure(library: Library) -> None:
    library.outcome = NOTHING
    assert done("recluster", "t") == "nothing to do: level 0 is well clustered\n"


def test_conflicts_that_were_salvaged_are_told_and_are_no_failure(library: Library) -> None:
    library.outcome = SALVAGED
    text = done("recluster", "t")
    assert "3 groups (2 committed, 1 conflicted)" in text
    assert text.splitlines()[-1].split() == [
        "1",
        "1",
        "conflicted",
        "7",
        "data/a.parquet",
        "left",
        "the",
        "table",
    ]


def test_a_plan_whose_groups_are_all_gone_and_the_reason_why_final_stopped_are_told(library: Library) -> None:
    library.outcome = replace(
        SALVAGED, committed_groups=0, engine=None, snapshot=None, note="others were faster"
    )
    lines = done("recluster", "t", "--final").splitlines()
    assert lines[0].endswith("1 group (1 conflicted): nothing was committed, 1.25 s")
    assert lines[-1] == "others were faster"


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_failed_group_is_told_and_exits_with_1(library: Library, words: list[str]) -> None:
    library.outcome = FAILED
    result = run("recluster", "t", *words)
    assert (result.exit_code, result.stderr) == (1, "")
    assert "data/b.parquet is missing" in result.stdout


def test_when_every_group_failed_nothing_is_said_to_be_better(library: Library) -> None:
    library.outcome = replace(FAILED, committed_groups=0, snapshot=None)
    result = run("recluster", "t")
    assert result.exit_code == 1
    assert "nothing was committed" in result.stdout
    assert "after" not in result.stdout


def test_a_conflict_that_fails_exits_with_1(library: Library) -> None:
    library.error = errors.ConflictError("2 groups lost blocks; plan again")
    result = run("recluster", "t", "--on-conflict", "fail")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "tblctl: error: 2 groups lost blocks; plan again\n"


@pytest.mark.parametrize(
    "command", [("recluster", "t"), ("sql", "OPTIMIZE TABLE t RECLUSTER")], ids=lambda c: c[0]
)
@pytest.mark.parametrize("outcome", [Done(), NOTHING, SALVAGED], ids=["done", "nothing", "salvaged"])
def test_json_is_the_whole_outcome_and_nothing_else(
    library: Library, command: tuple[str, ...], outcome: Done
) -> None:
    library.outcome = outcome
    assert json.loads(done(*command, "--json")) == outcome.to_dict()


def test_if_exists_makes_a_missing_table_no_error(library: Library) -> None:
    assert run("recluster", "missing").exit_code == 1
    assert done("recluster", "missing", "--if-exists") == "no table at missing: nothing to recluster\n"
    assert json.loads(done("recluster", "missing", "--if-exists", "--json"))["location"] == "missing"
    assert run("sql", "ALTER TABLE missing RECLUSTER").exit_code == 1
    assert (
        done("sql", "ALTER TABLE IF EXISTS missing RECLUSTER")
        == "no table at missing: nothing to recluster\n"
    )
    as_json = json.loads(done("sql", "ALTER TABLE IF EXISTS missing RECLUSTER", "--json"))
    assert as_json == json.loads(done("recluster", "missing", "--if-exists", "--json"))
    assert as_json["note"].startswith("no table")
    assert library.calls == []


@pytest.mark.parametrize(
    ("statement", "asked"),
    [
        ("ALTER TABLE 'lake/t' RECLUSTER", {}),
        ("alter table if exists t recluster final where a > 'x';", {"final": True, "where": "a > 'x'"}),
        ("OPTIMIZE TABLE t RECLUSTER", {"final": True}),
    ],
)
def test_sql_asks_what_the_statement_says(library: Library, statement: str, asked: dict[str, Any]) -> None:
    assert done("sql", statement).startswith("reclustered 600,572 rows")
    assert library.asked() == asked


def test_sql_that_is_not_understood_is_wrong_usage_with_a_caret(library: Library) -> None:
    result = run("sql", "ALTER TABLE t RECLUSTER FULL")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "tblctl: error: cannot read the statement at column 25: expected FINAL, WHERE or the end, not 'FULL'",
        "  ALTER TABLE t RECLUSTER FULL",
        "                          ^",
    ]
    assert library.calls == []


APPENDED = "appended 5 rows in 1 block (100 B): snapshot 3, 0.50 s"


def test_append_recluster_tells_the_round_that_followed(library: Library) -> None:
    library.outcome_of_round = Done()
    lines = done("append", "t", "x.parquet", "--recluster").splitlines()
    assert library.calls == [
        (
            "append",
            {
                "files": ["x.parquet"],
                "hive": None,
                "memory_bytes": None,
                "recluster": True,
                "source_options": source_options,
                "progress": None,
            },
        )
    ]
    assert lines[0] == APPENDED
    assert lines[1].startswith("reclustered 600,572 rows")


@pytest.mark.parametrize("words", [[], ["--json"]])
@pytest.mark.parametrize("of_round", [None, FAILED], ids=["failed whole", "a group failed"])
def test_append_recluster_exits_with_1_if_the_round_failed_and_tells_that_the_rows_are_in(
    library: Library, of_round: Any, words: list[str]
) -> None:
    library.outcome_of_round = of_round
    result = run("append", "t", "x.parquet", "--recluster", *words)
    assert result.exit_code == 1
    assert APPENDED in result.stdout or json.loads(result.stdout)["rows_added"] == 5


def test_a_round_that_an_option_of_the_table_asked_for_is_told_and_its_failure_is_none_of_the_append(
    library: Library,
) -> None:
    assert done("append", "t", "x.parquet").splitlines() == [APPENDED]
    library.outcome_of_round = FAILED
    assert "data/b.parquet is missing" in done("append", "t", "x.parquet")


def test_commits_are_counted_where_there_are_more_than_rounds(library: Library) -> None:
    library.outcome = replace(library.outcome, commits=5)
    assert "in 2 rounds and 5 commits, 3 groups" in done("recluster", "t")
    library.outcome = replace(library.outcome, commits=2)
    assert "in 2 rounds, 3 groups" in done("recluster", "t")


@pytest.mark.parametrize(
    ("error", "first"),
    [
        (errors.StorageError("the disk is full"), "tblctl: error: the disk is full"),
        (KeyboardInterrupt(), "tblctl: interrupted"),
    ],
)
def test_what_is_committed_all_the_same_is_told_below_the_error(
    library: Library, capsys: pytest.CaptureFixture[str], error: BaseException, first: str
) -> None:
    error.add_note("groups reclustered up to snapshot 6 are committed and stay")
    library.error = error
    with pytest.raises(SystemExit):
        application.main(["recluster", "t"])
    told = capsys.readouterr().err.split("\n")
    assert told[:2] == [first, "groups reclustered up to snapshot 6 are committed and stay"]
