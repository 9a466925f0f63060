"""A catalog that shows the newest snapshot alone, without its parent, as Nessie does: the state of files decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.types import LongType

import tblctl
from tblctl import errors
from tblctl.tableformat.port import BlocksReplacedError

from .lake import Lake, append, fields
from .position_deletes import delete_rows
from .replacing import Meanwhile, after, data_files, ours, port_of, raising, replacement_of, sorted_ids

IDS = list(range(12))


@pytest.fixture
def table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    """Return a table of three overlapping files, whose catalog hides all snapshots but the newest from now on."""
    made = lake.create(
        "t",
        fields(id=LongType()),
        properties={"commit.retry.min-wait-ms": "1", "commit.retry.num-retries": "3"},
    )
    for first in range(3):
        append(made, id=IDS[first::3])
    load = type(made.catalog).load_table

    def load_table(identifier: Any) -> Table:
        found = load(made.catalog, identifier)
        shown = json.loads(found.metadata.model_dump_json(by_alias=True))
        for name in ("snapshots", "snapshot-log"):
            shown[name] = [
                item for item in shown[name] if item["snapshot-id"] == shown["current-snapshot-id"]
            ]
        shown["metadata-log"] = []
        for newest in shown["snapshots"]:
            newest.pop("parent-snapshot-id", None)
        found.metadata = TableMetadataUtil.parse_obj(shown)
        return found

    monkeypatch.setattr(made.catalog, "load_table", load_table)
    yield made.refresh()
    monkeypatch.undo()


def are_there(table: Table) -> bool:
    return all(Path(file.file_path.removeprefix("file://")).exists() for file in data_files(table))


def test_a_recluster_keeps_rows_and_is_final(table: Table) -> None:
    opened = tblctl.from_iceberg(table)
    assert opened.recluster(cluster_by="id", final=True).depth_after == 1.0
    assert opened.recluster(final=True).commits == 0
    assert len(table.refresh().metadata.snapshots) == 1
    assert sorted_ids(table) == IDS


def test_an_append_meanwhile_is_no_conflict(table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    append(table.refresh(), id=[50])
    with Meanwhile(table, after(lambda: append(table.refresh(), id=[51]))):
        port.replace(base, change)
    assert sorted_ids(table) == [*IDS, 50, 51]
    assert len(data_files(table)) == 3


@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("how", ["rewritten", "merge-on-read"])
def test_rows_that_were_deleted_meanwhile_conflict(table: Table, when: str, how: str) -> None:
    port = port_of(table)
    base = port.newest()
    files = data_files(table)
    change = replacement_of(base, files)

    def delete() -> None:
        if how == "rewritten":
            table.refresh().delete(EqualTo("id", 3))
        else:
            path = next(file.file_path for file in files if file.lower_bounds[1][0] == 0)
            delete_rows(table.refresh(), {path: [1]})

    if when == "before":
        delete()
    with (
        Meanwhile(table, *([after(delete)] if when == "between" else [])),
        pytest.raises(BlocksReplacedError),
    ):
        port.replace(base, change)
    assert sorted_ids(table) == [id_ for id_ in IDS if id_ != 3]
    assert not ours(table)


def act_of(table: Table, *, landed: bool, then: bool) -> Callable[[Callable[[], Any]], Any]:
    """Return what a catalog does that gives no answer: it commits, or not; then another writer appends, or not."""

    def act(real: Callable[[], Any]) -> Any:
        if landed:
            real()
        if then:
            append(table.refresh(), id=[50])
        raise TimeoutError("slow")

    return act


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("then", [False, True])
def test_a_commit_without_an_answer_is_told_by_the_state_of_files(
    table: Table, landed: bool, then: bool
) -> None:
    """Where another writer committed after it, its snapshot is hidden: its files are there, its inputs gone."""
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    with Meanwhile(table, act_of(table, landed=landed, then=then)) as catalog:
        port.replace(base, change)
    # its request and, where it was lost, another one; and the append
    assert catalog.calls == 1 + (not landed) + then
    assert sorted_ids(table) == [*IDS, *([50] if then else [])]
    assert len(data_files(table)) == 1 + then
    assert are_there(table)


def test_an_outcome_that_the_state_of_files_does_not_tell_is_unknown_and_all_files_are_kept(
    table: Table,
) -> None:
    """Its inputs are gone, and so are its files: another writer rewrote the table, after it or instead of it."""
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))

    def lost(real: Callable[[], Any]) -> Any:
        real()
        table.refresh().delete(EqualTo("id", 3))
        raise TimeoutError("slow")

    with Meanwhile(table, lost), pytest.raises(errors.CommitOutcomeUnknownError):
        port.replace(base, change)
    assert ours(table)
    assert Path(change.added[0].path.removeprefix("file://")).exists()
    assert sorted_ids(table) == [id_ for id_ in IDS if id_ != 3]


def test_a_conflict_after_a_request_that_was_lost_is_no_unknown_outcome(table: Table) -> None:
    """Others went on, and the inputs are live: the request can take no effect any more."""
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    lost = act_of(table, landed=False, then=True)
    with (
        Meanwhile(table, lost, after(lambda: table.refresh().delete(EqualTo("id", 3)))),
        pytest.raises(BlocksReplacedError),
    ):
        port.replace(base, change)
    assert not ours(table)
    assert sorted_ids(table) == [*(id_ for id_ in IDS if id_ != 3), 50]


def test_a_refusal_after_a_commit_that_is_hidden_is_no_failure(table: Table) -> None:
    from pyiceberg.exceptions import CommitFailedException

    def sent_twice(real: Callable[[], Any]) -> Any:
        real()
        append(table.refresh(), id=[50])
        raise CommitFailedException("the branch has moved")

    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    with Meanwhile(table, sent_twice):
        port.replace(base, change)
    assert sorted_ids(table) == [*IDS, 50]
    assert are_there(table)


def test_a_table_that_took_the_place_of_another_is_told_by_its_uuid(lake: Lake, table: Table) -> None:
    port = port_of(table)
    base = port.newest()
    change = replacement_of(base, data_files(table))
    lake.catalog.drop_table("db.t")
    append(lake.create("t", fields(id=LongType())), id=[1])
    with pytest.raises(errors.TableNotFoundError, match="dropped"):
        port.replace(base, change)
    assert sorted_ids(lake.load("t")) == [1]


def test_gc_deletes_nothing(table: Table) -> None:
    tblctl.from_iceberg(table).recluster(cluster_by="id", policy="full")
    with pytest.raises(errors.InvalidOptionError, match="newest snapshot alone"):
        tblctl.from_iceberg(table).gc(keep=1, expire_older_than=0)
    with Meanwhile(table, raising(TimeoutError("slow"))) as catalog:
        assert tblctl.from_iceberg(table).info().average_depth == 1.0
    assert catalog.calls == 0
