"""Pending plans that others edited, or that are none: refused before anything is claimed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import Faults, inject
from tables import objects_of

import tblctl
from tblctl.errors import InvalidDataError, InvalidOptionError, StorageError, UnsupportedFormatError
from tblctl.maintain.pending import execute
from tblctl.tableformat.native.log.names import claim_of, plan_of, plan_path
from tblctl.tableformat.storage import Storage

from .pending import DAY_SECONDS, built, one_by_one, pending_objects, put


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield from built(tmp_path)


def changed(plan: dict[str, Any], **group: Any) -> dict[str, Any]:
    return {**plan, "groups": [{**plan["groups"][0], **group}, *plan["groups"][1:]]}


def test_an_edited_plan_is_refused_and_the_next_one_executed(url: str) -> None:
    table = tblctl.open(url)
    name = plan_path(table.schedule(options={"max_groups": 1}).id, 7 * DAY_SECONDS)
    storage = Storage(url)
    storage.write(name, storage.read(name).replace(b'"rows":8', b'"rows":9'))
    with pytest.raises(InvalidDataError, match="do not match the checksum"):
        table.recluster_pending(plan_of(name)[0])
    assert "do not match the checksum" in table.pending_plans()[0].problem
    table.schedule()
    outcome = table.recluster_pending()
    assert outcome.committed_groups == 3
    assert "do not match the checksum" in outcome.note
    assert table.cancel_plan(plan_of(name)[0]).problem is not None
    assert pending_objects(url) == []


@pytest.mark.parametrize(
    ("edit", "error", "why"),
    [
        (lambda plan: {**plan, "version": 3}, InvalidDataError, "the plan has version 3"),
        (lambda plan: {**plan, "table_id": "b" * 32}, InvalidOptionError, "made for another table"),
        (lambda plan: changed(plan, blocks=[]), InvalidDataError, "a group has no blocks"),
        (lambda plan: changed(plan, output_level=0), InvalidDataError, "output_level is 0"),
        (lambda plan: {**plan, "more": 1}, InvalidDataError, "more is unknown"),
        (lambda _plan: None, InvalidDataError, "expected a JSON object"),
    ],
)
def test_a_plan_of_others_is_refused_before_anything_is_claimed(
    url: str, edit: Any, error: Any, why: str
) -> None:
    table = tblctl.open(url)
    plan_id = put(url, {"pending_version": 1, "plan": edit(table.plan().to_json())})
    before = objects_of(url)
    with pytest.raises(error, match=why):
        table.recluster_pending(plan_id)
    with pytest.raises(InvalidDataError, match=f"none of the pending plans of .*{why}"):
        table.recluster_pending()
    assert why in table.pending_plans()[0].problem
    assert objects_of(url) == before


def test_a_group_that_names_what_is_no_block_of_the_table_drops_out(url: str) -> None:
    table = tblctl.open(url)
    plan = changed(table.plan().to_json(), blocks=["../../etc/passwd"])
    outcome = table.recluster_pending(put(url, {"pending_version": 1, "plan": plan}))
    assert outcome.committed_groups == 2
    assert "1 of 3 groups dropped out" in outcome.note


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": 7}, "group 0 of the plan: rows is 7, expected 8"),
        ({"size_bytes": 1}, "group 0 of the plan: size_bytes is 1, expected"),
        ({"decoded_bytes": 2**60}, "group 0 of the plan: decoded_bytes is 1152921504606846976, expected"),
        ({"partition": "x"}, "group 0 of the plan: partition is 'x', expected ''"),
        ({"sort_id": 9}, "group 0 of the plan: sort_id is 9, expected one of 0, 1"),
        ({"same_key_rows": 9}, "same_key_rows is 9, more than its 8 rows"),
    ],
)
def test_a_plan_that_says_other_things_than_the_table_is_refused_before_anything_is_claimed(
    url: str, change: dict[str, Any], said: str
) -> None:
    table = tblctl.open(url)
    plan_id = put(url, {"pending_version": 1, "plan": changed(table.plan().to_json(), **change)})
    before = objects_of(url)
    with pytest.raises(InvalidDataError, match=f"the pending plan {plan_id} cannot be executed: .*{said}"):
        table.recluster_pending(plan_id)
    assert objects_of(url) == before


def test_a_plan_of_a_snapshot_that_the_table_never_had_is_refused(url: str) -> None:
    table = tblctl.open(url)
    plan_id = put(url, {"pending_version": 1, "plan": {**table.plan().to_json(), "snapshot": 99}})
    with pytest.raises(
        InvalidDataError, match=f"plan {plan_id} .* made on snapshot 99, which {url} never had"
    ):
        table.recluster_pending(plan_id)


def test_groups_that_fail_as_a_whole_are_free_again(url: str) -> None:
    table = tblctl.open(url)
    kept = table.schedule()
    faults = Faults()
    faults.fail(StorageError("broken"), operation="write", name="metadata/records/")
    with inject(faults), pytest.raises(StorageError) as caught:
        execute(one_by_one(url))
    assert f"this was the pending plan {kept.id}; its groups are free again" in caught.value.__notes__
    assert [name for name in pending_objects(url) if claim_of(name)] == []


@pytest.mark.parametrize(
    ("document", "sealed", "error", "why"),
    [
        (
            {"pending_version": 2, "plan": {}},
            True,
            UnsupportedFormatError,
            "has version 2, this tblctl reads version 1",
        ),
        ({"pending_version": 1}, True, InvalidDataError, "not an object with a pending_version and a plan"),
        (
            {"pending_version": True, "plan": {}},
            True,
            InvalidDataError,
            "not an object with a pending_version",
        ),
        ({"pending_version": 1, "plan": {}}, False, InvalidDataError, "does not end with a checksum"),
    ],
)
def test_an_object_that_is_no_pending_plan_is_refused(
    url: str, document: Any, sealed: bool, error: Any, why: str
) -> None:
    with pytest.raises(error, match=why):
        tblctl.open(url).recluster_pending(put(url, document, sealed=sealed))
