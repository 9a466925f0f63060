"""A dying process or a failing storage does no harm, at any storage call of any operation."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults import Faults, fault_points, inject, kill_points
from operations import CHANGES, OPERATIONS, READS, TRIED_ELSEWHERE, At, Operation, long_history, three_blocks
from profiles import THOROUGH
from tables import (
    SCHEMA,
    Places,
    State,
    assert_sound,
    ids_of,
    named_objects,
    objects_of,
    places,
    rows,
    shape_of,
    state_of,
)

import tblctl
from tblctl import errors
from tblctl.errors import (
    AccessDeniedError,
    CommitOutcomeUnknownError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
)
from tblctl.tableformat.storage import Storage

# On local disk, which is slower, one of each kind.
LOCAL = ("create", "append several blocks", "delete", "overwrite", "alter", "rollback", "gc", "drop")
CASES = [("memory", name) for name in CHANGES] + [("local", name) for name in LOCAL]


# Reclusters: test_recluster_crashes.py.
ERRORS = [("memory", name) for name in CHANGES | READS] + [("local", name) for name in LOCAL if THOROUGH]


def test_every_public_operation_is_interrupted() -> None:
    names = {name for name in dir(tblctl.Table) if not name.startswith("_")}
    tried = {operation.of for operation in OPERATIONS.values()}
    assert tried | TRIED_ELSEWHERE.keys() == names | {"create", "drop", "import_parquet"}


@pytest.fixture(params=["memory", "local"])
def at(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Places]:
    yield from places(request.param, tmp_path)


def _state(url: str) -> State | None:
    try:
        return state_of(tblctl.open(url))
    except TableNotFoundError:
        return None


def _assert_usable(url: str, where: str) -> None:
    """Assert that the next operations succeed, and that gc leaves exactly what is named."""
    if _state(url) is None:
        tblctl.create(url, SCHEMA)
    table = tblctl.open(url)
    assert_sound(table)
    before = state_of(table).rows
    assert table.append(_row_of(table)).rows_added == 1
    assert len(state_of(table).rows) == len(before) + 1, where
    table.gc(keep=1, older_than=0)
    again = table.gc(keep=1, older_than=0)
    assert (again.snapshots_expired, again.objects_deleted) == ((), ()), where
    assert len(state_of(table).rows) == len(before) + 1, where
    assert_sound(table)
    assert set(objects_of(url)) - {"metadata/latest"} == named_objects(table), where


def _row_of(table: tblctl.Table) -> Any:
    given = rows(1000)
    columns = [given[name] if name in given.column_names else [None] for name in table.schema.names]
    return pa.table(columns, schema=table.schema)


@pytest.fixture
def prepared(request: pytest.FixtureRequest, at: Places) -> tuple[Operation, str, State | None, State | None]:
    operation = OPERATIONS[request.param]
    template = at.fresh()
    operation.build(At(url=template))
    done = at.copy(template)
    operation.act(At(url=done))
    return operation, template, _state(template), _state(done)


@pytest.mark.parametrize(("at", "prepared"), CASES, indirect=True)
def test_a_kill_at_any_storage_call_leaves_the_table_as_before_or_as_after(prepared: Any, at: Places) -> None:
    operation, template, before, after = prepared
    trial, objects = at.copy(template), objects_of(template)
    seen, shapes = set(), set()
    for point in kill_points(lambda: operation.act(At(url=trial))):
        url = at.renew(template)
        point.kill(lambda url=url: operation.act(At(url=url)))
        shape = shape_of(url, objects)
        if shape in shapes:
            continue
        shapes.add(shape)
        found = _state(url)
        assert found in (before, after), str(point)
        seen.add(found)
        _assert_usable(url, str(point))
    assert seen == {before, after}  # the kills came early enough, and late enough


@pytest.mark.parametrize(("at", "prepared"), ERRORS, indirect=True)
def test_an_error_at_any_storage_call_changes_nothing_or_is_not_an_error(prepared: Any, at: Places) -> None:
    operation, template, before, after = prepared
    trial, shapes, objects = at.copy(template), set(), objects_of(template)
    for point in fault_points(lambda: operation.act(At(url=trial))):
        url = at.renew(template)
        faults = Faults()
        unsure = point.call.operation == "create" and point.at == "after"
        error = CommitOutcomeUnknownError("injected: no reply") if unsure else None
        faults.fail(error, nth=point.number, at=point.at)
        raised = False
        with inject(faults):
            try:
                operation.act(At(url=url))
            except StorageError:
                raised = True
        assert faults.fired, str(point)
        dropped = point.call.operation == "delete all of" and point.at == "after"
        happened = dropped or not raised
        shape = shape_of(url, objects)
        if (shape, happened) in shapes:
            continue
        assert _state(url) == (after if happened else before), f"{point}, raised: {raised}"
        if not {(shape, True), (shape, False)} & shapes:
            _assert_usable(url, str(point))
        shapes.add((shape, happened))


def _refuse_to_log_commits(record: logging.LogRecord) -> bool:
    if "committed snapshot" in record.msg:
        raise RuntimeError(record.msg)
    return True


class _Interrupt(BaseException):
    """An interrupt that Ctrl-C or a job's time limit may raise anywhere."""


@pytest.mark.parametrize("act", ["append several blocks", "delete", "update", "overwrite"])
@pytest.mark.parametrize("broken", ["log", "error after create", "interrupt after create", "hint"])
def test_whatever_is_raised_once_a_commit_may_stand_deletes_nothing_of_it(
    broken: str, act: str, at: Places
) -> None:
    done, url = at.fresh(), at.fresh()
    for place in (done, url):
        OPERATIONS[act].build(At(url=place))
    OPERATIONS[act].act(At(url=done))
    logger = logging.getLogger("tblctl")
    level = logger.level
    faults = Faults()
    error = {"interrupt after create": _Interrupt("stop"), "hint": MemoryError()}.get(
        broken, RuntimeError("odd")
    )
    if broken == "log":
        logger.setLevel(logging.INFO)
        logger.addFilter(_refuse_to_log_commits)
    elif broken == "hint":
        faults.fail(error, operation="write", name="metadata/latest")
    else:
        faults.fail(error, operation="create", name="metadata/snapshots/", at="after")
    try:
        with inject(faults), pytest.raises(type(error)):
            OPERATIONS[act].act(At(url=url))
    finally:
        logger.removeFilter(_refuse_to_log_commits)
        logger.setLevel(level)
    assert _state(url) == _state(done)
    _assert_usable(url, broken)


def test_a_hint_that_cannot_be_written_is_a_warning_and_no_error(
    at: Places, caplog: pytest.LogCaptureFixture
) -> None:
    url = at.fresh()
    three_blocks(At(url=url))
    faults = Faults()
    faults.fail(operation="write", name="metadata/latest")
    with inject(faults):
        tblctl.open(url).append(rows(50))
    assert faults.fired
    assert "metadata/latest could not be written" in caplog.text
    _assert_usable(url, "no hint")


def test_a_drop_that_was_cut_short_can_be_repeated(at: Places) -> None:
    template = at.fresh()
    long_history(At(url=template))
    names = sorted(objects_of(template))
    for count in range(len(names)):  # `delete_all` deletes in the order of names
        url = at.copy(template)
        Storage(url).delete(names[:count])
        assert tblctl.drop(url)
        assert not tblctl.exists(url)
        tblctl.create(url, SCHEMA)


@pytest.mark.parametrize("delay_seconds", [0.02, 0.1, 0.3])
def test_a_process_killed_in_the_middle_of_append_leaves_the_table_as_it_was(
    tmp_path: Path, delay_seconds: float
) -> None:
    url = str(tmp_path / "table")
    table = tblctl.create(url, SCHEMA, cluster_by="id", options={"block_rows": 1000})
    table.append(rows(1, 2, 3))
    program = f"""
import pyarrow as pa, tblctl
table = tblctl.open({url!r})
ids = pa.array(range(10, 1_000_010))
print("ready", flush=True)
table.append(pa.table({{"id": ids, "v": ids.cast(pa.string())}}, schema=table.schema))
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(delay_seconds)
    process.kill()
    process.wait()
    process.stdout.close()
    assert ids_of(table) == [1, 2, 3]
    _assert_usable(url, "killed")


def test_leftovers_of_a_killed_create_do_not_stand_in_the_way_of_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "table" / "metadata" / "snapshots"
    folder.mkdir(parents=True)
    (folder / ".tmp-0123456789abcdef0123456789abcdef").write_bytes(b"{")
    table = tblctl.create(tmp_path / "table", SCHEMA)
    table.append(rows(1))
    assert table.gc(keep=1, older_than=0).objects_deleted == (
        "metadata/snapshots/.tmp-0123456789abcdef0123456789abcdef",
    )


def test_a_location_with_other_files_is_refused_and_left_alone(at: Places) -> None:
    url = at.fresh()
    Storage(url).write("data/report.csv", b"a,b")
    with pytest.raises(TableExistsError, match="not empty"):
        tblctl.create(url, SCHEMA)
    assert objects_of(url) == {"data/report.csv": b"a,b"}


def test_a_missing_table_is_an_error_that_names_it(at: Places) -> None:
    url = at.fresh()
    for act in (tblctl.open, tblctl.drop):
        with pytest.raises(TableNotFoundError, match="no table at"):
            act(url)
    assert not tblctl.exists(url)
    assert not tblctl.drop(url, if_exists=True)


@pytest.mark.parametrize("operation", ["append", "delete", "alter", "gc", "tag"])
def test_a_disk_without_space_or_permission_changes_nothing(operation: str, tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    long_history(At(url=url))
    before = objects_of(url)
    act = {
        "append": lambda table: table.append(rows(90)),
        "delete": lambda table: table.delete("id = 30"),
        "alter": lambda table: table.drop_column("v"),
        "gc": lambda table: table.gc(keep=1, older_than=0),
        "tag": lambda table: table.tag("v1"),
    }[operation]
    for error in (StorageError("the storage is full"), AccessDeniedError("read only")):
        faults = Faults()
        faults.fail(error, operation="write", times=10**6)
        faults.fail(error, operation="create", times=10**6)
        faults.fail(error, operation="delete", times=10**6)
        with inject(faults), pytest.raises(type(error)):
            act(tblctl.open(url))
        assert objects_of(url) == before
    assert_sound(tblctl.open(url))
    act(tblctl.open(url))


def test_a_commit_that_a_crash_could_lose_is_not_reported_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tblctl.create(str(tmp_path / "t"), "a: int64")
    create = Storage.create

    def undurable(storage: Storage, name: str, data: bytes) -> bool:
        create(storage, name, data)
        message = "the folder cannot be flushed"
        raise errors.CommitOutcomeUnknownError(message, not_durable=True)

    monkeypatch.setattr(Storage, "create", undurable)
    with pytest.raises(errors.CommitOutcomeUnknownError, match="crash of the machine") as caught:
        table.append(pa.table({"a": [1]}))
    monkeypatch.undo()
    assert caught.value.details["sequence"] == 2
    assert table.scan().to_arrow()["a"].to_pylist() == [1]  # nothing of it was deleted
