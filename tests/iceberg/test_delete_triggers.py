"""Policy `size` rewrites files with too many position deletes, whatever their size, as Iceberg's binpack does."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

import tblctl
from tblctl.cli.main import application
from tblctl.errors import InvalidOptionError

from .lake import Lake, append, fields, version_of
from .merging import rows_seen
from .position_deletes import commit, delete_file, delete_rows

NUMBERS = itertools.count()
HEALTHY = {"small_file_bytes": 1}
"""No file is small."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("triggers"))


def create(lake: Lake, *counts: int, **more: Any) -> tuple[Any, list[str]]:
    """Return a table with a file for each number of rows, and their paths, in the order of their rows' regions."""
    table = lake.create(
        f"t{next(NUMBERS)}",
        fields(k=LongType(), region=StringType()),
        properties={"format-version": "2"},
        **more,
    )
    paths: list[str] = []
    for number, count in enumerate(counts):
        append(table, k=list(range(count)), region=[f"r{number}"] * count)
        paths += {task.file.file_path for task in table.scan().plan_files()} - set(paths)
    return table, paths


def plan(table: Any, **options: Any) -> list[tuple[str, ...]]:
    """Return the files of each group."""
    found = tblctl.from_iceberg(table).plan("size", options={**HEALTHY, **options})
    return [group.blocks for group in found.groups]


def deletions(table: Any) -> dict[str, tuple[int, float]]:
    """Return for each file how many delete files apply to it, and about how many of its rows they delete."""
    version = version_of(table)
    found = version.deletions()
    paths = version.files.entries.path.to_pylist()
    return dict(zip(paths, zip(found.files.tolist(), found.rows.tolist(), strict=True), strict=True))


def test_a_file_of_healthy_size_is_rewritten_alone_from_the_share_of_deleted_rows_on(lake: Lake) -> None:
    table, (one, two) = create(lake, 10, 10)
    table = delete_rows(table, {one: [0, 1]})
    table = delete_rows(table, {two: [0, 1, 2]})
    assert plan(table) == [(two,)], "0.3 of its rows"
    assert sorted(plan(table, delete_ratio_threshold=0.2)) == sorted([(one,), (two,)])
    assert plan(table, delete_ratio_threshold=0.31) == []
    before = rows_seen(table)
    outcome = tblctl.from_iceberg(table).recluster(policy="size", options=HEALTHY, final=True)
    assert (outcome.blocks_in, outcome.blocks_out, outcome.rounds) == (1, 1, 1)
    assert "about 3 are deleted" in outcome.groups[0].why
    assert rows_seen(table) == before


def test_a_file_to_which_many_delete_files_apply_is_rewritten(lake: Lake) -> None:
    table, (one, two) = create(lake, 100, 100)
    for row in range(3):
        table = delete_rows(table, {one: [row]})
    table = delete_rows(table, {two: [5]})
    assert plan(table) == []
    assert plan(table, delete_file_threshold=4) == []
    assert plan(table, delete_file_threshold=3) == [(one,)]
    assert deletions(table) == {one: (3, 3.0), two: (1, 1.0)}


def test_a_rewritten_file_is_not_rewritten_again_although_deletes_stay(lake: Lake) -> None:
    table, (one, two, three) = create(lake, 10, 30, 50)
    table = delete_rows(table, {one: [0, 1, 2, 3], two: list(range(12)), three: [0]})
    options = {**HEALTHY, "delete_file_threshold": 1}
    handle = tblctl.from_iceberg(table)
    outcome = handle.recluster(policy="size", options=options, where="region <> 'r2'", final=True)
    assert (outcome.rounds, outcome.blocks_in, outcome.rows) == (1, 2, 24)
    assert handle.delete_files()["position"] == 1, "it stays for the third file"
    table = table.refresh()
    found = deletions(table)
    new = sorted(path for path in found if "tblctl-" in path)
    assert {found[path] for path in new} == {(0, 0.0)}, "though its sequence number says that it applies"
    table = delete_rows(table, {new[0]: [0]})
    assert {*plan(table, delete_file_threshold=1)} == {(new[0],), (three,)}, "later deletes count"


def test_data_files_share_the_rows_of_a_delete_file_that_may_be_about_several(lake: Lake) -> None:
    table, (one, two) = create(lake, 30, 10)
    table = delete_rows(table, {one: [0, 1], two: [0, 1]})
    assert deletions(table) == {one: (1, 3.0), two: (1, 1.0)}
    table = delete_rows(table, {two: [5]})
    assert deletions(table) == {one: (1, 3.0), two: (2, 2.0)}
    table = delete_rows(table, {two: [6]}, bounds=False)
    assert deletions(table) == {one: (2, 3.75), two: (3, 2.25)}, "nothing says which of the two it is about"


def test_deletes_count_in_their_partition_and_for_files_that_were_there(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    table, (one, two) = create(lake, 10, 10, partition_spec=spec)
    like = next(task.file for task in table.scan().plan_files() if task.file.file_path == one)
    rows = [(min(one, two), 0), (max(one, two), 0)]
    table = commit(table, [delete_file(table, rows, like=like)], content=ManifestContent.DELETES)
    append(table, k=[1], region=["r0"])
    found = deletions(table.refresh())
    assert (found[one], found[two]) == ((1, 2.0), (0, 0.0))
    assert sorted(count for count, _ in found.values()) == [0, 0, 1]


def test_rows_are_deleted_at_most_once_each(lake: Lake) -> None:
    table, (one,) = create(lake, 4)
    for _ in range(2):
        table = delete_rows(table, {one: [0, 1, 2]})
    assert deletions(table) == {one: (2, 4.0)}


def test_small_files_with_deletes_are_stitched_with_others(lake: Lake) -> None:
    table, (one, two, three) = create(lake, 10, 10, 10)
    table = delete_rows(table, {one: list(range(9))})
    (group,) = tblctl.from_iceberg(table).plan("size").groups
    assert sorted(group.blocks) == sorted([one, two, three])
    assert group.why.startswith("1 of 3 blocks with too many deletes")


def test_a_file_whose_rows_are_all_deleted_leaves_the_table(lake: Lake) -> None:
    table, (one, two) = create(lake, 3, 3)
    table = delete_rows(table, {one: [0, 1, 2]})
    outcome = tblctl.from_iceberg(table).recluster(policy="size", options=HEALTHY, final=True)
    assert (outcome.blocks_in, outcome.blocks_out) == (1, 0)
    assert {task.file.file_path for task in table.refresh().scan().plan_files()} == {two}


def test_a_budget_holds_for_files_that_are_rewritten_alone(lake: Lake) -> None:
    table, paths = create(lake, 10, 10)
    for path in paths:
        table = delete_rows(table, {path: list(range(5))})
    assert len(plan(table)) == 2
    assert len(plan(table, max_blocks=1)) == 1
    assert len(plan(table, max_group_bytes=1)) == 2, "nothing is merged together"
    assert len(plan(table, max_group_bytes=1, max_groups=1)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delete_ratio_threshold": 0}, "delete_ratio_threshold: expected a share above 0, up to 1, got 0"),
        ({"delete_ratio_threshold": 1.5}, "above 0, up to 1, got 1.5"),
        ({"delete_file_threshold": 0}, "delete_file_threshold: expected a whole number of files from 1 on"),
    ],
    ids=str,
)
def test_triggers_out_of_range_are_refused(lake: Lake, options: dict[str, Any], message: str) -> None:
    table, _ = create(lake, 3)
    with pytest.raises(InvalidOptionError, match=message):
        tblctl.from_iceberg(table).plan("size", options=options)


def test_the_command_takes_iceberg_s_names_for_the_triggers() -> None:
    shown = CliRunner().invoke(application, ["recluster", "--help"]).stdout
    assert all(f"--{name}" in shown for name in ("delete-ratio-threshold", "delete-file-threshold"))


def test_a_full_file_of_one_key_is_rewritten_for_its_deletes(lake: Lake) -> None:
    table = lake.create(
        f"t{next(NUMBERS)}",
        fields(k=LongType()),
        properties={"format-version": "2", "write.target-file-size-bytes": "500"},
    )
    append(table, k=[7] * 30)
    handle = tblctl.from_iceberg(table)
    (before,) = (task.file for task in table.refresh().scan().plan_files())
    (rejection,) = handle.plan("full", cluster_by="k").rejected
    assert rejection.rule == "constant", "no other policy takes it"
    delete_rows(table, {before.file_path: list(range(10))})
    outcome = handle.recluster(policy="size", cluster_by="k", options=HEALTHY, final=True)
    assert (outcome.rounds, outcome.blocks_in) == (1, 1)
    files = [task.file for task in table.refresh().scan().plan_files()]
    assert before.file_path not in {file.file_path for file in files}
    assert sum(file.record_count for file in files) == 20
