"""What reclusters saved the queries that followed them: `Table.savings`, and `tblctl history --savings`."""

from __future__ import annotations

import datetime
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl import errors
from tblctl.cli.main import application
from tblctl.tableformat.workload.lines import Header, encode_header, encode_query
from tblctl.tableformat.workload.place import log_path

SCHEMA = pa.schema([("t", pa.int64()), ("a", pa.int64())])
ROWS, BLOCKS = 50, 8
NARROW = "a between 100 and 140"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tblctl.Table:
    """A table that the tests of this file only read."""
    return reclustered(tmp_path_factory.mktemp("read"))


@pytest.fixture
def own(tmp_path: Path) -> tblctl.Table:
    """A table to change."""
    return reclustered(tmp_path)


def reclustered(folder: Path) -> tblctl.Table:
    """Make a table in the order of `t`, and sort it by `a` for queries that ask for that."""
    chance = random.Random(7)
    table = tblctl.create(folder / "t", SCHEMA, cluster_by=["t"], options={"block_rows": ROWS})
    count = ROWS * BLOCKS
    rows = {"t": range(count), "a": [chance.randrange(1000) for _ in range(count)]}
    table.append(pa.table(rows, schema=SCHEMA))
    table.recluster(policy="workload", workload=asked(NARROW, time=0.0), options={"alpha": 1e-3})
    return table


def asked(*wheres: str, time: float, weight: float = 1000.0) -> tblctl.Workload:
    queries = [
        tblctl.Query(time=time, where=where, columns=("a",), weight=weight)
        for where in wheres
        for _ in range(20)
    ]
    return tblctl.Workload(queries=tuple(queries))


def committed(table: tblctl.Table) -> float:
    """Return when the newest snapshot was committed, in seconds since 1970."""
    return datetime.datetime.fromisoformat(table.snapshot.timestamp).timestamp()


def test_queries_that_followed_are_replayed_on_the_bounds_before_and_after(table: tblctl.Table) -> None:
    workload = asked(NARROW, time=committed(table) + 1)
    (found,) = table.savings(workload=workload)
    assert (found.snapshot, found.policy, found.queries, found.unused) == (
        table.snapshot.sequence,
        "workload",
        20,
        0,
    )
    assert found.before_seconds is not None
    assert found.after_seconds is not None
    read = table.scan(NARROW).explain().blocks_read
    assert read <= 2
    assert found.after_seconds == pytest.approx(found.before_seconds * read / BLOCKS, rel=0.05)
    assert found.saved_seconds == found.before_seconds - found.after_seconds
    stated = table.history()[0].detail["recluster"]
    assert found.spent_seconds == stated["merge_seconds"]
    assert found.note == ""


def test_it_has_paid_back_once_what_was_saved_is_what_was_spent(table: tblctl.Table) -> None:
    later = committed(table) + 1
    (few,) = table.savings(workload=asked(NARROW, time=later, weight=1e-6))
    (many,) = table.savings(workload=asked(NARROW, time=later, weight=1e9))
    assert (few.paid_back, many.paid_back) == (False, True)


def test_queries_before_the_commit_do_not_count(table: tblctl.Table) -> None:
    (found,) = table.savings(workload=asked(NARROW, time=committed(table) - 1))
    assert (found.queries, found.saved_seconds, found.paid_back) == (0, 0.0, False)


def test_queries_by_the_key_of_before_show_as_a_loss(table: tblctl.Table) -> None:
    (found,) = table.savings(workload=asked("t between 10 and 20", time=committed(table) + 1))
    assert found.saved_seconds is not None
    assert found.saved_seconds < 0


def test_blocks_that_a_recluster_did_not_replace_count_for_nothing(own: tblctl.Table) -> None:
    later = committed(own) + 1
    (alone,) = own.savings(workload=asked(NARROW, time=later))
    own.append(pa.table({"t": range(1000, 1050), "a": [120] * 50}, schema=SCHEMA))
    (beside,) = own.savings(workload=asked(NARROW, time=later))
    assert beside.saved_seconds == pytest.approx(alone.saved_seconds)


def test_conditions_that_do_not_fit_the_table_are_counted(table: tblctl.Table) -> None:
    (found,) = table.savings(workload=asked("nowhere = 3", NARROW, time=committed(table) + 1))
    assert (found.queries, found.unused) == (40, 1)


def test_savings_are_unknown_where_the_version_before_has_expired(own: tblctl.Table) -> None:
    own.gc(keep=1, older_than=0)
    (found,) = own.savings(workload=asked(NARROW, time=committed(own)))
    assert (found.saved_seconds, found.paid_back, found.before_seconds) == (None, None, None)
    assert found.spent_seconds is not None
    assert found.note == "it or the version before has expired"


def test_history_of_so_many_versions_is_looked_at(own: tblctl.Table) -> None:
    own.append(pa.table({"t": [1], "a": [1]}, schema=SCHEMA))
    nothing = tblctl.Workload(queries=())
    assert own.savings(limit=1, workload=nothing) == ()
    assert len(own.savings(limit=2, workload=nothing)) == 1
    with pytest.raises(errors.InvalidOptionError, match="limit is 0, expected 1 or more"):
        own.savings(limit=0)


def in_command(*words: str) -> str:
    result = CliRunner().invoke(application, words, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_the_command_takes_the_queries_of_the_log(own: tblctl.Table, tmp_path: Path) -> None:
    location, port = str(tmp_path / "t"), own._port
    (query, *_) = asked(NARROW, time=port.env.now()).queries
    place = port.log_place()
    lines = [encode_header(Header(table_id=port.newest().table_id)), *[encode_query(query)] * 5]
    place.storage.write(
        log_path(place.folder, int(query.time * 1000) + 1, port.env.new_id()), b"".join(lines)
    )
    found: list[dict[str, Any]] = json.loads(in_command("history", location, "--savings", "--json"))
    assert [(item["policy"], item["queries"], item["note"]) for item in found] == [("workload", 5, "")]
    assert found == [item.to_dict() for item in own.savings()]
    heading, _, line = in_command("history", location, "--savings").splitlines()
    assert heading.split("  ")[-1].strip() in ("paid back", "note")
    assert " workload " in line
    assert " s " in line


def test_the_command_says_where_there_is_no_recluster(tmp_path: Path) -> None:
    tblctl.create(tmp_path / "t", SCHEMA)
    assert "no recluster" in in_command("history", str(tmp_path / "t"), "--savings")
