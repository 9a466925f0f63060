"""`recluster.mode` and `recluster.every`: what follows a write, after how many, and that it never harms the write."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults import inject
from tables import native_of

import tblctl
from tblctl.errors import CommitOutcomeUnknownError, StorageError
from tblctl.maintain import background
from tblctl.maintain.after_write import leave_plan
from tblctl.merger.engines import local
from tblctl.tableformat.native.log.names import snapshot_path
from tblctl.tableformat.pending import PendingPlans

SCHEMA = pa.schema([("k", pa.int64())])
KEYS = [1, 3, 5, 7]
WAIT_SECONDS = 60.0


def table_of(place: Path | str, mode: str, every: int = 1, **options: Any) -> tblctl.Table:
    """Make an empty table. Every `append` adds a block over the same keys."""
    given = {"block_rows": 4, "recluster.mode": mode, "recluster.every": every, **options}
    return tblctl.create(str(place), SCHEMA, cluster_by="k", options=given)


def append(table: tblctl.Table, times: int = 1) -> list[tblctl.WriteOutcome]:
    return [table.append(pa.table({"k": KEYS}, schema=SCHEMA)) for _ in range(times)]


def operations(table: tblctl.Table) -> str:
    """Return the first letters of the operations, oldest first."""
    return "".join(item.operation[0] for item in reversed(table.history()))


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


# -- which commits count


def test_a_round_follows_every_nth_commit_of_rows(memory_url: str) -> None:
    table = table_of(memory_url, "inline", 3)
    outcomes = append(table, 6)
    assert [outcome.recluster is not None for outcome in outcomes] == [False, False, True] * 2
    assert operations(table) == "caaaraaar"
    assert outcomes[2].recluster is not None
    assert outcomes[2].recluster.committed_groups == 1


def test_commits_count_across_handles_and_processes(tmp_path: Path) -> None:
    first, second = table_of(tmp_path / "t", "inline", 4), tblctl.open(tmp_path / "t")
    append(first)
    append(second)
    program = (
        "import pyarrow as pa, sys, tblctl\n"
        "print(tblctl.open(sys.argv[1]).append(pa.table({'k': [1, 9]})).recluster)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "t")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "None\n"
    assert append(second)[0].recluster is not None


@pytest.mark.parametrize(
    ("act", "count"),
    [
        (lambda table: table.delete("k = 1"), 2),
        (lambda table: table.update({"k": 2}, "k = 1"), 2),
        (lambda table: table.overwrite(pa.table({"k": [1]}, schema=SCHEMA), "k = 1"), 2),
        (lambda table: table.delete("k = 99"), 1),  # commits nothing
        (lambda table: table.set_options({"block_rows": 5}), 1),
        (lambda table: table.tag("a"), 1),
        (lambda table: table.gc(keep=1, older_than=0), 1),
        (lambda table: table.rollback(1), 1),
        (lambda table: append(table) and table.recluster(), 0),
        (lambda table: table.set_options({"recluster.mode": "off"}), 0),
        (lambda table: table.set_options({"recluster.every": 1}), 0),
    ],
)
def test_only_commits_of_rows_since_the_last_recluster_count(memory_url: str, act: Any, count: int) -> None:
    table = table_of(memory_url, "inline", 9)
    table.set_options({"recluster.mode": "inline"})
    append(table)
    act(table)
    assert native_of(table).head().writes_since_recluster == count


def test_of_two_writers_that_commit_beside_each_other_one_reclusters(memory_url: str) -> None:
    first = table_of(memory_url, "inline", 2)
    second = tblctl.open(memory_url)
    assert first.snapshot == second.snapshot  # both begin from here
    outcomes = [*append(first), *append(second)]
    assert [outcome.recluster is not None for outcome in outcomes] == [False, True]


def test_a_table_without_a_key_is_only_written(memory_url: str, caplog: pytest.LogCaptureFixture) -> None:
    options = {"recluster.mode": "schedule"}
    table = tblctl.create(memory_url, SCHEMA, options=options)
    assert append(table)[0].note is None
    assert caplog.text == ""


class Requests:
    """Counts the requests to storages; an argument for `inject`."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()

    def around(self, operation: str, names: tuple[str, ...], action: Callable[[], Any]) -> Any:
        self.found[operation] += len(names)
        return action()


def test_a_commit_after_which_nothing_is_due_makes_no_request_more(memory_url: str) -> None:
    found = []
    for mode in ("off", "inline", "async", "schedule"):
        table = table_of(f"{memory_url}/{mode}", mode, 100)
        append(table, 3)
        requests = Requests()
        with inject(requests):
            append(table)
        found.append(requests.found)
    assert found[0].total()
    assert found == found[:1] * 4


# -- how it is stored


def stored(url: str, sequence: int) -> Any:
    table = tblctl.open(url)
    return json.loads(native_of(table).storage.read(snapshot_path(sequence)))


def test_only_tables_that_need_it_are_closed_to_older_writers(memory_url: str) -> None:
    table = table_of(memory_url, "off")
    assert stored(memory_url, 1)["min_writer_version"] == 2
    table.set_options({"recluster.auto": True})
    assert stored(memory_url, 2)["min_writer_version"] == 2
    assert stored(memory_url, 2)["options"]["recluster.auto"] is True  # what older writers know
    table.set_options({"recluster.mode": "async"})
    assert stored(memory_url, 3)["min_writer_version"] == 4
    assert stored(memory_url, 3)["options"]["recluster.auto"] is False
    assert table.options["recluster.mode"] == "async"


def test_a_table_whose_writer_knew_recluster_auto_alone_is_inline(memory_url: str) -> None:
    from tblctl.tableformat.native.log.checked_json import with_checksum

    table = table_of(memory_url, "inline")
    document = stored(memory_url, 1)
    for name in ("recluster.mode", "recluster.every"):
        del document["options"][name]
    del document["checksum"]
    native_of(table).storage.write(snapshot_path(1), with_checksum(document))
    found = tblctl.open(memory_url)
    assert (found.options["recluster.mode"], found.options["recluster.every"]) == ("inline", 1)


# -- schedule


def test_schedule_leaves_a_plan_that_another_process_carries_out(memory_url: str) -> None:
    table = table_of(memory_url, "schedule", 2)
    first, second = append(table, 2)
    (pending,) = table.pending_plans()
    assert (first.note, second.note) == (None, f"left the pending plan {pending.id} of 1 group")
    assert tblctl.open(memory_url).recluster_pending().committed_groups == 1
    assert native_of(table).head().writes_since_recluster == 0


def test_schedule_adds_no_plan_to_many_that_wait(memory_url: str, caplog: pytest.LogCaptureFixture) -> None:
    table = table_of(memory_url, "schedule", 2)
    append(table, 4)
    assert len(table.pending_plans()) == 2
    append(table, 2)
    port = table._port
    assert leave_plan(port, most_waiting=3) is None
    assert "3 pending plans wait, so no other one is added" in caplog.text
    assert len(table.pending_plans()) == 3


def test_plans_that_others_have_made_needless_do_not_keep_new_ones_from_being_added(
    memory_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_of(memory_url, "schedule", 2)
    append(table, 4)
    assert len(table.pending_plans()) == 2
    table.recluster(policy="full", final=True)  # of all blocks, those of both plans among them
    append(table, 2)
    live = table.pending_plans()[-1]
    append(table, 1)
    table.set_options({"recluster.mode": "off"})
    append(table, 1)
    note = leave_plan(table._port, most_waiting=3)
    assert note is not None
    assert caplog.text == ""
    assert [item.id for item in table.pending_plans()] == [live.id, note.split()[4]]


def test_a_table_that_lost_all_its_rows_is_scheduled_beside_a_pending_plan(memory_url: str) -> None:
    table = table_of(memory_url, "schedule", 2)
    append(table, 2)
    table.overwrite(table.scan(limit=0).to_arrow())
    assert table.schedule().id is None


def test_a_plan_that_cannot_be_kept_is_a_warning(
    memory_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_of(memory_url, "schedule", 2)
    monkeypatch.setattr(PendingPlans, "add", failing(StorageError("the disk is full")))
    outcome = append(table, 2)[1]
    assert (outcome.rows_added, outcome.note) == (4, None)
    (warned,) = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert (
        warned
        == f"snapshot 3 of {table.location} is written, but no plan is left for others: the disk is full"
    )


# -- inline and async


@pytest.mark.parametrize("mode", ["inline", "async"])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StorageError("the disk is full"), "but not reclustered: the disk is full"),
        (ValueError("a bug"), "but not reclustered: a bug"),
        (CommitOutcomeUnknownError("no reply"), "it is not known whether it was also reclustered: no reply"),
    ],
)
def test_a_recluster_that_fails_is_a_warning_with_the_reason(
    memory_url: str,
    mode: str,
    error: Exception,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = table_of(memory_url, mode, 2)
    monkeypatch.setattr("tblctl.maintain.recluster.merge_round", failing(error))
    outcomes = append(table, 2)
    table.close()
    assert [outcome.rows_added for outcome in outcomes] == [4, 4]
    assert f"snapshot 3 of {table.location} is written" in caplog.text
    assert words in caplog.text
    assert operations(table) == "caa"


@pytest.mark.parametrize("mode", ["off", "inline", "async", "schedule"])
def test_an_append_that_asks_for_a_round_gets_it_at_once_whatever_the_mode(
    memory_url: str, mode: str
) -> None:
    with table_of(memory_url, mode, 9) as table:
        append(table)
        outcome = table.append(pa.table({"k": KEYS}, schema=SCHEMA), recluster=True)
        assert outcome.recluster is not None
        assert outcome.recluster.committed_groups == 1


def test_a_round_that_an_append_asks_for_follows_the_one_that_goes_on_in_the_background(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, run_task = threading.Event(), threading.Event(), local.run_task
    changed = background.BACKGROUND._changed
    wait_for = changed.wait_for

    def held(*args: Any, **how: Any) -> Any:
        begun.set()
        assert go_on.wait(WAIT_SECONDS)
        return run_task(*args, **how)

    def waited(predicate: Any) -> Any:
        go_on.set()
        return wait_for(predicate)

    with table_of(memory_url, "async", 2, **{"recluster.policy": "full"}) as table:
        monkeypatch.setattr(local, "run_task", held)
        append(table, 2)
        assert begun.wait(WAIT_SECONDS)
        monkeypatch.setattr(local, "run_task", run_task)  # the one that is held stays so
        monkeypatch.setattr(changed, "wait_for", waited)
        handle = tblctl.open(memory_url)
        outcome = handle.append(pa.table({"k": KEYS}, schema=SCHEMA), recluster=True)
        assert outcome.recluster is not None
        assert outcome.recluster.committed_groups == 1
    assert operations(table) == "caaarr"


def test_the_round_that_an_append_begins_in_the_background_is_done_when_the_handle_is_closed(
    memory_url: str,
) -> None:
    with table_of(memory_url, "async", 2) as table:
        assert [outcome.note for outcome in append(table, 2)] == [
            None,
            "a recluster goes on in the background",
        ]
    assert operations(table) == "caar"


def test_a_group_that_fails_in_the_background_is_a_warning_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with table_of(tmp_path / "t", "async") as table:
        append(table)
    (block,) = (tmp_path / "t" / "data").iterdir()
    block.unlink()
    with tblctl.open(tmp_path / "t") as table:
        append(table)
    assert "but of the recluster after it 1 group(s) failed: " in caplog.text
    assert f"block data/{block.name} is missing" in caplog.text
