"""Iceberg tables along a curve: the boundaries live in a property, and everybody else reads the table as ever."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, StringType

import tblctl
from tblctl.cli.main import application
from tblctl.tableformat.errors import InvalidKeyError
from tblctl.tableformat.iceberg.reading.inputs import Inputs
from tblctl.tableformat.keys import sampling

from .duck import Duck
from .lake import Lake, append, fields, version_of
from .replacing import Meanwhile, after
from .test_final import all_rows, files_of, filled, require_final

KEY = "hilbert(ts, number)"


def properties(table: Table) -> dict[str, str]:
    """Return the table's properties that are about its key."""
    found = table.refresh().properties
    return {name: text for name, text in found.items() if name.startswith(("tblctl.cl", "tblctl.cu"))}


def boundaries(table: Table) -> Any:
    """Return what the only curve of a table has in its property."""
    (text,) = (text for name, text in properties(table).items() if name.startswith("tblctl.curve."))
    return json.loads(zlib.decompress(base64.b64decode(text)))


def small(lake: Lake, key: str | None = None, **how: Any) -> Table:
    """Return a table of four overlapping files."""
    more = {} if key is None else {"tblctl.cluster-by": key}
    made = lake.create("t", fields(a=LongType(), b=LongType(), s=StringType()), properties=more, **how)
    for start in range(4):
        numbers = list(range(start, 400, 4))
        append(made, a=numbers, b=[number * 7 % 50 for number in numbers], s=[str(n) for n in numbers])
    return made


@pytest.mark.parametrize("key", [KEY, "zorder(sparse, text, region)"])
def test_a_table_is_put_along_a_curve_and_stays(lake: Lake, key: str) -> None:
    table = filled(lake)
    before = tblctl.from_iceberg(table).info(columns=key).average_depth
    assert properties(table) == {}, "what is asked is not kept"
    outcome = require_final(table, cluster_by=key)
    assert outcome.depth_before == pytest.approx(before)
    assert outcome.depth_after < before / 4
    assert properties(table)["tblctl.cluster-by"] == key
    assert len(files_of(table)) > 4
    assert version_of(table).cluster_by == (key,)
    assert tblctl.from_iceberg(table).check(deep=True).problems == ()


def test_each_partition_is_put_along_the_same_curve(lake: Lake) -> None:
    table = small(lake, partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "b")))
    outcome = require_final(table, cluster_by="hilbert(a, b)")
    assert (outcome.committed_groups, outcome.depth_after) == (50, 1.0)


def test_what_if_and_dry_run_write_nothing(lake: Lake) -> None:
    made = small(lake)
    before = made.metadata_location
    table = tblctl.from_iceberg(made)
    assert table.info(columns="zorder(a, b)").average_depth > 1
    plan = table.plan("full", cluster_by="zorder(a, b)")
    assert plan.groups
    again = table.plan("full", cluster_by=["zorder(a, b)"])
    assert plan.groups[0].sort_id == again.groups[0].sort_id, "boundaries follow from the rows"
    assert made.refresh().metadata_location == before


def test_every_process_finds_the_boundaries_of_the_first_recluster(lake: Lake) -> None:
    made = small(lake)
    tblctl.from_iceberg(made).recluster(cluster_by=["zorder(a, b)"], policy="full")
    sort = version_of(made.refresh()).sort
    kept = boundaries(made)
    append(made, a=[10_000, 20_000], b=[1, 2], s=["x", "y"])
    assert version_of(made.refresh()).sort == sort
    older = lake.open("t", as_of=str(made.snapshots()[0].snapshot_id))
    assert older.info().average_depth == 1.0, "snapshots of before have the key, too"
    assert older._readable().sort == sort
    tblctl.from_iceberg(made).recluster(cluster_by="zorder(a, b)", policy="full")
    assert boundaries(made) == kept
    assert version_of(made.refresh()).sort == sort


def test_rows_beyond_the_boundaries_show_and_same_makes_new_ones(lake: Lake) -> None:
    made = small(lake)
    tblctl.from_iceberg(made).recluster(cluster_by="zorder(a, b)", policy="full")
    append(made, a=list(range(10_000, 10_400)), b=[1, 2] * 200, s=["x"] * 400)
    table = tblctl.from_iceberg(made)
    assert dict(table.info().outside) == {"a": 0.5, "b": 0.0}
    rows = all_rows(made)
    outcome = table.recluster(cluster_by="same", policy="full")
    assert outcome.commits == 1
    assert all_rows(made) == rows
    assert dict(tblctl.from_iceberg(made).info().outside)["a"] < 0.5
    assert properties(made)["tblctl.cluster-by"] == "zorder(a, b)"
    assert tblctl.from_iceberg(made).recluster(final=True).commits == 0


def test_same_is_refused_for_a_key_that_is_no_curve(lake: Lake) -> None:
    with pytest.raises(InvalidKeyError, match="makes new boundaries for a zorder or hilbert key"):
        tblctl.from_iceberg(small(lake, "a")).recluster(cluster_by="same")


def test_a_key_of_the_property_alone_gets_its_boundaries_with_the_first_commit(lake: Lake) -> None:
    made = small(lake, "hilbert(a, b)")
    table = tblctl.from_iceberg(made)
    assert table.info().average_depth > 1
    assert list(properties(made)) == ["tblctl.cluster-by"]
    table.recluster(policy="full")
    assert len(properties(made)) == 2
    assert tblctl.from_iceberg(made).recluster(final=True).commits == 0


@pytest.mark.parametrize("text", [None, "", "AAAA", base64.b64encode(zlib.compress(b'{"bits": 3}')).decode()])
def test_boundaries_that_are_lost_or_damaged_are_made_anew(lake: Lake, text: str | None) -> None:
    made = small(lake)
    tblctl.from_iceberg(made).recluster(cluster_by="hilbert(a, b)", policy="full")
    (name,) = (name for name in properties(made) if name.startswith("tblctl.curve."))
    append(made, a=[700, 800], b=[1, 90], s=["x", "y"])
    with made.transaction() as change:
        if text is None:
            change.remove_properties(name)
        else:
            change.set_properties({name: text})
    rows = all_rows(made)
    assert tblctl.from_iceberg(made).recluster(final=True, policy="full").commits == 1
    assert all_rows(made) == rows
    assert boundaries(made)["boundaries"]
    assert tblctl.from_iceberg(made).recluster(final=True).commits == 0


def test_files_along_a_curve_claim_no_sort_order_and_such_a_claim_is_no_curve(lake: Lake) -> None:
    order = SortOrder(
        *(SortField(place, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST) for place in (1, 2))
    )
    made = small(lake, sort_order=order)
    tblctl.from_iceberg(made).recluster(policy="full")
    assert [file.sort_order_id for file in files_of(made)] == [1]
    table = tblctl.from_iceberg(made)
    assert table.recluster(cluster_by="zorder(a, b)", policy="full", final=True).commits == 1
    assert [file.sort_order_id for file in files_of(made)] == [None]


def test_another_recluster_that_set_other_boundaries_meanwhile_is_not_overruled(lake: Lake) -> None:
    made = small(lake)
    key = "hilbert(a, b)"

    def other() -> None:
        append(made.refresh(), a=[9_000], b=[9_000], s=["z"])
        tblctl.from_iceberg(lake.load("t")).recluster(cluster_by=key, policy="full", where="a > 5000")
        more = lake.load("t")
        append(more, a=[9_000], b=[9_000], s=["z"])
        tblctl.from_iceberg(more).recluster(cluster_by=key, policy="full", where="a > 5000")

    with Meanwhile(made, after(other)):
        outcome = tblctl.from_iceberg(made).recluster(cluster_by=key, policy="full", where="a < 5000")
    assert outcome.commits == 0
    assert "other boundaries" in str(outcome.groups)
    assert tblctl.from_iceberg(made.refresh()).recluster(final=True, policy="full").commits == 1


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("hilbert(a)", "takes 2 to 4 columns, not 1"),
        ("zorder(a, b, s, a, b)", "given twice"),
        ("zorder(a, nothing)", "no column nothing|nothing"),
        ("hilbert(a, truncate(2, b))", "without transforms"),
        ("a, hilbert(a, b)", "is a whole cluster key"),
    ],
)
def test_a_wrong_curve_is_refused_and_nothing_changes(lake: Lake, key: str, why: str) -> None:
    made = small(lake, "a")
    before, table = made.metadata_location, tblctl.from_iceberg(made)
    for use in (
        lambda: table.recluster(cluster_by=key, final=True),
        lambda: table.plan(cluster_by=key),
        lambda: table.info(columns=key),
        lambda: table.plan("size", options={"sort_columns": key}),
    ):
        with pytest.raises(InvalidKeyError, match=why):
            use()
    assert made.refresh().metadata_location == before


def test_five_columns_are_too_many(lake: Lake) -> None:
    columns = dict.fromkeys("abcde", LongType())
    made = lake.create("t", fields(**columns))
    append(made, **{name: [1] for name in columns})
    with pytest.raises(InvalidKeyError, match="takes 2 to 4 columns, not 5"):
        tblctl.from_iceberg(made).recluster(cluster_by="hilbert(a, b, c, d, e)")


def test_a_curve_of_a_table_without_rows_is_refused(lake: Lake) -> None:
    made = lake.create("t", fields(a=LongType(), b=LongType()))
    before, table = made.metadata_location, tblctl.from_iceberg(made)
    for use in (
        lambda: table.recluster(cluster_by="hilbert(a, b)"),
        lambda: table.info(columns="hilbert(a, b)"),
    ):
        with pytest.raises(InvalidKeyError, match=r"takes its boundaries from rows, and .* has none: append"):
            use()
    assert made.refresh().metadata_location == before


def test_a_table_whose_property_names_a_curve_may_be_empty_for_a_while(lake: Lake) -> None:
    made = lake.create(
        "t", fields(a=LongType(), b=LongType()), properties={"tblctl.cluster-by": "zorder(a, b)"}
    )
    table = lake.open("t")
    assert table.cluster_by == ("zorder(a, b)",)
    assert table.info().total_block_count == 0
    assert table.check(deep=True).ok
    assert table.recluster(final=True).commits == 0
    for _ in range(2):
        append(made, a=list(range(50)), b=list(range(50)))
    assert table.recluster(final=True, policy="full").commits == 1
    assert [len(values) > 9 for values in boundaries(made)["boundaries"]] == [True, True]


def test_small_files_are_stitched_along_a_curve_that_the_table_then_keeps(lake: Lake) -> None:
    made = small(lake)
    rows = all_rows(made)
    table = tblctl.from_iceberg(made)
    assert table.recluster(policy="size", options={"sort_columns": "zorder(a, b)"}).commits == 1
    assert all_rows(made) == rows
    assert list(properties(made)) != []
    assert "tblctl.cluster-by" not in properties(made)
    again = tblctl.from_iceberg(made).recluster(cluster_by="zorder(a, b)", final=True)
    assert again.commits == 0


def test_long_texts_leave_room_for_the_property(lake: Lake) -> None:
    rng = random.Random(7)
    made = lake.create("t", fields(s=StringType(), r=StringType()))
    starts = ["".join(chr(rng.randrange(0x4E00, 0x9F00)) for _ in range(56)) for _ in range(500)]
    texts = [[rng.choice(starts) + rng.randbytes(4).hex() for _ in range(3000)] for _ in "sr"]
    append(made, s=texts[0], r=texts[1])
    append(made, s=texts[1], r=texts[0])
    tblctl.from_iceberg(made).recluster(cluster_by="hilbert(s, r)", policy="full")
    (text,) = (text for name, text in properties(made).items() if name.startswith("tblctl.curve."))
    assert 10_000 < len(text) <= 30_000
    assert min(map(len, boundaries(made)["boundaries"])) > 50
    assert tblctl.from_iceberg(made).recluster(final=True).commits == 0


def test_a_sample_reads_few_files_and_bounds_stand_for_the_others(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = small(lake)
    monkeypatch.setattr(sampling, "SAMPLED_PLACES", 2)
    opened, real = [], Inputs.open
    monkeypatch.setattr(Inputs, "open", lambda self, file: opened.append(file.path) or real(self, file))
    found = version_of(made).sort_by("zorder(a, b)")
    assert len(opened) == 2
    values = dict(found.parameters)["boundaries"][0]
    assert (values[0], values[-1]) == (0, 400)


def test_columns_that_are_renamed_or_widened_keep_the_boundaries(lake: Lake) -> None:
    made = lake.create("t", fields(a=IntegerType(), b=LongType()))
    for start in range(3):
        append(made, a=list(range(start, 90, 3)), b=list(range(30)))
    tblctl.from_iceberg(made).recluster(cluster_by="hilbert(a, b)", policy="full")
    sort = version_of(made.refresh()).sort
    with made.update_schema() as change:
        change.update_column("a", LongType())
        change.rename_column("b", "c")
    table = tblctl.from_iceberg(made.refresh())
    assert table.recluster(cluster_by="hilbert(a, c)", final=True).commits == 0
    assert version_of(made).clustered_by("hilbert(a, c)").sort == sort


def test_duckdb_reads_a_table_along_a_curve(lake: Lake, duck: Duck) -> None:
    made = small(lake)
    tblctl.from_iceberg(made).recluster(cluster_by="hilbert(a, s)", policy="full")
    rows = duck.sql(f"SELECT a, b, s FROM iceberg_scan('{made.refresh().metadata_location}') ORDER BY a")
    assert rows == [[n, n * 7 % 50, str(n)] for n in range(400)]


def test_the_command_takes_curves(lake: Lake) -> None:
    small(lake)
    options = [f"--catalog-option={name}={value}" for name, value in lake.options.items()]
    where, key = "iceberg://lake/db.t", "hilbert(a, b)"

    def run(*words: str) -> str:
        found = CliRunner().invoke(application, [*words, *options])
        assert found.exit_code == 0, found.output
        return found.stdout

    what_if = json.loads(run("info", where, "--columns", key, "--json"))
    dry = run("recluster", where, "--cluster-by", key, "--policy", "full", "--dry-run")
    assert "depth" in dry
    run("recluster", where, "--cluster-by", key, "--policy", "full")
    figures = json.loads(run("info", where, "--json"))
    assert figures["cluster_by_keys"] == [key]
    assert what_if["average_depth"] > figures["average_depth"] == 1.0
    assert "nothing to do" in run("recluster", where, "--final")
