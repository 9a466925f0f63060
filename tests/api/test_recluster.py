"""`Table.plan` and `Table.recluster` on real tables: the golden cases, arguments, outcomes, records."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from servers import Location

import tblctl
from tblctl import errors
from tblctl.maintain.choose_engine import engines
from tblctl.merger.engines.local import LocalEngine
from tblctl.tableformat.storage import Storage

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "recluster.json").read_text())["cases"]
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])


def blocks_of(table: tblctl.Table) -> list[list[int]]:
    """Return [min, max, level, rows] of every block."""
    return sorted([block.min[0], block.max[0], block.level, block.rows] for block in table.files())


def rows_of(table: tblctl.Table) -> list[tuple[int, int]]:
    return sorted((row["k"], row["n"]) for row in table.scan().to_arrow().to_pylist())


def table_of(url: str, *inserts: list[int], **options: Any) -> tblctl.Table:
    """Make a table with one block for each insert; `n` numbers the rows."""
    table = tblctl.create(url, SCHEMA, cluster_by=["k"], options={"block_rows": 4, **options})
    for place, keys in enumerate(inserts):
        append(table, keys, first=1000 * place)
    return table


def append(table: tblctl.Table, keys: list[int], *, first: int = 10**6, **how: Any) -> tblctl.WriteOutcome:
    data = pa.table({"k": keys, "n": range(first, first + len(keys))}, schema=SCHEMA)
    return table.append(data, **how)


@pytest.fixture
def overlapping(tmp_path: Path) -> tblctl.Table:
    """Two pairs of blocks that overlap, far from each other."""
    return table_of(
        str(tmp_path / "t"), [1, 3, 5, 7], [2, 4, 6, 8], [101, 103, 105, 107], [102, 104, 106, 108]
    )


def test_final_says_which_limit_kept_it_from_the_rest(memory_url: str) -> None:
    table = table_of(memory_url, [1, 3], [2, 4], [101, 103, 105, 107], [102, 104, 106, 108])
    outcome = table.recluster(final=True, options={"max_group_bytes": 100})
    assert (outcome.rounds, outcome.committed_groups) == (1, 1)
    assert "Raise max_group_bytes, now 100: two blocks of average size take 128 bytes" in outcome.note


@pytest.mark.parametrize("option", ["threshold", "ratio"])
def test_options_may_hold_what_another_policy_asks_for(overlapping: tblctl.Table, option: str) -> None:
    assert overlapping.plan(policy="full", options={option: 1}).groups


@pytest.mark.parametrize("policy", [None, "levels"])
@pytest.mark.parametrize("case", GOLDEN, ids=[case["name"] for case in GOLDEN])
def test_golden(case: dict[str, Any], policy: str | None, memory_url: str) -> None:
    table = table_of(memory_url, *case["inserts"], block_rows=case["block_rows"])
    rows = rows_of(table)
    for step, expected in case["steps"]:
        if step == "levels":
            by_path = {block.path: block.level for block in table.files()}
            assert sorted(by_path.values()) == sorted(expected)
            continue
        before = table.snapshot.sequence
        outcome = table.recluster(policy=policy, final=step == "recluster_final")
        if expected == "no-op":
            assert (outcome.snapshot, outcome.rounds) == (None, 0)
            assert outcome.note.startswith("nothing to do: ")
            assert table.snapshot.sequence == before
        elif step == "recluster":
            assert blocks_of(table) == sorted(expected)
            assert outcome.snapshot == table.snapshot.sequence == before + 1
        else:
            assert all(figures.average_depth <= 2 for _, figures in table.info().levels)
        assert rows_of(table) == rows
        assert table.check(deep=True).problems == ()


def test_an_outcome_says_what_info_says_before_and_after(overlapping: tblctl.Table) -> None:
    before = overlapping.info()
    outcome = overlapping.recluster()
    after = overlapping.info()
    assert (outcome.depth_before, outcome.overlaps_before) == (before.average_depth, before.average_overlaps)
    assert (outcome.depth_after, outcome.overlaps_after) == (after.average_depth, after.average_overlaps)
    assert (outcome.depth_before, outcome.depth_after) == (2.0, 1.0)
    found = outcome.to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found.items() >= {
        "rounds": 1, "committed_groups": 2, "conflicted_groups": 0, "failed_groups": 0, "blocks_in": 4,
        "blocks_out": 4, "rows": 16, "snapshot": 6, "policy": "levels", "engine": "local", "note": "",
    }.items()  # fmt: skip
    assert [group["status"] for group in found["groups"]] == ["committed", "committed"]


def test_history_keeps_the_outcome_and_names_the_record(overlapping: tblctl.Table) -> None:
    planned = overlapping.plan()
    outcome = overlapping.recluster(planned)
    info = overlapping.history(1)[0]
    assert (info.operation, info.rows_added, info.rows_removed) == ("recluster", 0, 0)
    assert (info.blocks_added, info.blocks_removed) == (4, 4)
    kept = info.detail["recluster"]
    told = outcome.to_dict()
    assert {name: kept[name] for name in kept.keys() & told.keys()} == {
        name: told[name] for name in kept.keys() & told.keys()
    }
    record = json.loads(Storage(overlapping.location).read(info.detail["record"]))
    first = record["groups"][0]
    assert {item["path"] for item in first["removed"]} == set(planned.groups[0].blocks)
    assert sorted((item["min"], item["max"], item["rows"]) for item in first["removed"]) == [
        ([1], [7], 4),
        ([2], [8], 4),
    ]
    added = {path for group in record["groups"] for path in group["added"]}
    assert added == {block.path for block in overlapping.files()}
    assert (first["status"], first["sort_id"], first["level"], first["rows"]) == ("committed", 1, 1, 8)


def test_each_commit_of_a_round_has_a_record_of_its_own_groups(overlapping: tblctl.Table) -> None:
    outcome = overlapping.recluster(commit_every=1)
    assert (outcome.rounds, outcome.commits, outcome.committed_groups, outcome.snapshot) == (1, 2, 2, 7)
    second, first = overlapping.history(2)
    records = [
        json.loads(Storage(overlapping.location).read(one.detail["record"])) for one in (first, second)
    ]
    assert sorted([group["number"] for group in record["groups"]] for record in records) == [[0], [1]]
    told = [one.detail["recluster"] for one in (first, second)]
    assert [one["planned_on"] for one in told] == [5, 5]
    figures = [outcome.depth_before, 1.5, outcome.depth_after]
    assert [(one["depth_before"], one["depth_after"]) for one in told] == list(itertools.pairwise(figures))
    depths = {point.snapshot: point.average_depth for point in overlapping.depth_history()}
    assert [depths[number] for number in (5, 6, 7)] == figures


def test_who_ends_a_run_early_is_told_what_is_committed(
    overlapping: tblctl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []

    def stop(done: int, _total: int | None, unit: str) -> None:
        if unit == "groups":
            groups.append(done)
            if done == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        overlapping.recluster(commit_every=1, progress=stop)
    assert caught.value.__notes__ == ["groups reclustered up to snapshot 6 are committed and stay"]
    assert sorted(block[2] for block in blocks_of(overlapping)) == [0, 0, 1, 1]


def test_final_goes_on_until_the_policy_finds_nothing(memory_url: str) -> None:
    table = table_of(memory_url, *([start, start + 10, start + 20, start + 30] for start in range(24)))
    rows = rows_of(table)
    outcome = table.recluster(final=True)
    assert outcome.rounds >= 1
    assert not table.plan().groups
    assert table.recluster(final=True).rounds == 0
    assert rows_of(table) == rows


def test_final_sorts_in_blocks_of_an_older_key_unless_told_not_to(overlapping: tblctl.Table) -> None:
    overlapping.set_cluster_key("n")
    assert overlapping.recluster().snapshot is None
    assert overlapping.recluster(final=True, options={"include_unclustered": False}).snapshot is None
    assert overlapping.info().unclustered_block_count == 4
    overlapping.recluster(final=True)
    assert overlapping.info().unclustered_block_count == 0


def test_full_sorts_everything_at_once(overlapping: tblctl.Table) -> None:
    outcome = overlapping.recluster(policy="full")
    assert (outcome.committed_groups, outcome.policy) == (1, "full")
    assert blocks_of(overlapping) == [[1, 4, 1, 4], [5, 8, 1, 4], [101, 104, 1, 4], [105, 108, 1, 4]]


def test_a_plan_reads_as_json_and_is_carried_out_later(overlapping: tblctl.Table) -> None:
    plan = tblctl.Plan.from_json(json.loads(json.dumps(overlapping.plan().to_json())))
    append(overlapping, [50])
    outcome = overlapping.recluster(plan)
    assert outcome.committed_groups == 2
    assert overlapping.recluster(plan).conflicted_groups == 2


def test_where_takes_any_column_by_statistics(overlapping: tblctl.Table) -> None:
    assert overlapping.recluster(where="n >= 2000 and n < 3000").committed_groups == 0  # one block alone
    outcome = overlapping.recluster(where="n >= 2000")
    assert outcome.committed_groups == 1
    assert [block[2] for block in blocks_of(overlapping)] == [0, 0, 1, 1]
    with pytest.raises(errors.InputError, match="zz"):
        overlapping.recluster(where="zz > 1")


def test_options_are_a_mapping_or_a_value(overlapping: tblctl.Table) -> None:
    assert len(overlapping.plan(options={"max_groups": 1}).groups) == 1
    assert len(overlapping.plan(options=tblctl.SelectOptions(max_groups=1)).groups) == 1
    found = overlapping.plan(options={"max_group_bytes": "2GiB", "memory_bytes": "64MiB"}).options
    assert (found.policy["max_group_bytes"], found.memory_bytes) == (2**31, 2**26)
    with pytest.raises(errors.InvalidOptionError, match="did you mean max_groups"):
        overlapping.plan(options={"max_group": 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "levls"}, "did you mean levels"),
        ({"engine": "flink"}, "expected 'auto', 'local' or 'spark'"),
        ({"engine": "local", "spark": object()}, "a session was given"),
        ({"on_conflict": "retry"}, "expected 'salvage' or 'fail'"),
        ({"commit_every": "often"}, "commit_every is 'often', expected a number of groups"),
        ({"options": {"threshold": 2, "ratio": 0.1}}, "threshold and ratio"),
        ({"plan": True, "policy": "levels"}, "a plan fixes"),
        ({"plan": True, "where": "k > 1"}, "a plan fixes"),
        ({"plan": True, "options": {}}, "a plan fixes"),
        ({"plan": True, "final": True}, "a plan fixes"),
    ],
)
def test_wrong_arguments_are_refused(
    overlapping: tblctl.Table, arguments: dict[str, Any], message: str
) -> None:
    if "plan" in arguments:
        arguments = {**arguments, "plan": overlapping.plan()}
    before = overlapping.snapshot
    with pytest.raises(errors.InvalidOptionError, match=message):
        overlapping.recluster(**arguments)
    assert overlapping.snapshot == before


def test_a_plan_of_another_table_is_refused(overlapping: tblctl.Table, tmp_path: Path) -> None:
    other = table_of(str(tmp_path / "other"), [1, 3, 5, 7], [2, 4, 6, 8])
    for plan in (overlapping.plan(), overlapping.plan(where="k > 1000")):
        with pytest.raises(errors.InvalidOptionError, match="another table"):
            other.recluster(plan)
    assert not overlapping.plan(where="k > 1000").groups


def test_a_table_without_key_says_what_to_do(memory_url: str) -> None:
    table = tblctl.create(memory_url, SCHEMA)
    append(table, [1, 2])
    for act in (table.plan, table.recluster):
        with pytest.raises(errors.InvalidKeyError, match="--cluster-by"):
            act()


def test_a_pinned_table_is_planned_but_not_changed(overlapping: tblctl.Table) -> None:
    append(overlapping, [1, 2])
    pinned = tblctl.open(overlapping.location, as_of=5)
    assert pinned.plan().snapshot == 5
    with pytest.raises(errors.InvalidOptionError, match="pinned"):
        pinned.recluster()


def test_an_empty_table_has_nothing_to_do(memory_url: str) -> None:
    outcome = table_of(memory_url).recluster(final=True)
    assert outcome.note == "nothing to do: the table has no blocks"
    assert (outcome.depth_before, outcome.depth_after, outcome.engine) == (0.0, 0.0, None)


def test_progress_counts_rows_and_groups(overlapping: tblctl.Table) -> None:
    seen: list[tuple[int, int | None, str]] = []
    overlapping.recluster(progress=lambda *report: seen.append(report))
    assert {(16, 16, "rows"), (2, 2, "groups")} <= set(seen)


def test_a_missing_block_fails_its_group_and_the_rest_goes_on(overlapping: tblctl.Table) -> None:
    lost = overlapping.plan().groups[0].blocks[0]
    Storage(overlapping.location).delete([lost])
    outcome = overlapping.recluster(final=True)
    assert (outcome.committed_groups, outcome.failed_groups) == (1, 1)
    assert outcome.note == "2 blocks of groups that failed are left as they are"
    failed = [group for group in outcome.groups if group.status == "failed"]
    assert all(lost in group.error for group in failed)


Write = Callable[[tblctl.Table], tblctl.WriteOutcome]
WRITES: dict[str, Write] = {
    "append": lambda table: append(table, [3, 4, 5, 6]),
    "delete": lambda table: table.delete("k = 1"),
    "update": lambda table: table.update({"n": 0}, "k = 1"),
    "overwrite": lambda table: table.overwrite(pa.table({"k": [1], "n": [0]}, schema=SCHEMA), where="k = 1"),
}


@pytest.mark.parametrize("write", WRITES)
def test_recluster_auto_runs_a_round_after_every_write(overlapping: tblctl.Table, write: str) -> None:
    assert append(overlapping, [103, 104]).recluster is None
    overlapping.set_options({"recluster.auto": "true"})
    outcome = WRITES[write](overlapping)
    assert outcome.recluster is not None
    assert outcome.recluster.snapshot == overlapping.snapshot.sequence
    assert outcome.to_dict()["recluster"] == outcome.recluster.to_dict()


def test_an_append_may_ask_for_a_round_of_its_own(overlapping: tblctl.Table) -> None:
    outcome = append(overlapping, [3, 4, 5, 6], recluster=True)
    assert outcome.recluster is not None
    assert outcome.recluster.committed_groups > 0


def test_a_round_after_a_write_that_fails_is_a_warning(
    overlapping: tblctl.Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    overlapping.set_options({"recluster.auto": True})

    def fail(*_: Any, **__: Any) -> None:
        raise errors.StorageError("the disk is full")

    monkeypatch.setattr("tblctl.maintain.recluster.merge_round", fail)
    outcome = append(overlapping, [3])
    assert (outcome.rows_added, outcome.recluster) == (1, None)
    (record,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert record.message == (
        f"snapshot {outcome.snapshot} of {overlapping.location} is written, but not reclustered: the disk is full"
    )


def test_a_round_after_a_write_whose_commit_is_in_doubt_is_told_as_such(
    overlapping: tblctl.Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lose_the_reply(*_: Any, **__: Any) -> None:
        raise errors.CommitOutcomeUnknownError("no reply")

    monkeypatch.setattr("tblctl.maintain.recluster.merge_round", lose_the_reply)
    assert append(overlapping, [3], recluster=True).recluster is None
    assert "is written; it is not known whether it was also reclustered: no reply" in caplog.text
    assert "not reclustered" not in caplog.text


def test_who_interrupts_the_round_after_a_write_learns_of_the_write(
    overlapping: tblctl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tblctl.maintain.recluster.merge_round", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        append(overlapping, [3], recluster=True)
    (note,) = caught.value.__notes__
    assert note.startswith(f"snapshot {overlapping.snapshot.sequence} of {overlapping.location} is written; ")


def test_a_table_without_key_is_written_quietly_with_recluster_auto(
    memory_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = tblctl.create(memory_url, SCHEMA, options={"recluster.auto": "true"})
    assert append(table, [1]).recluster is None
    assert "not reclustered" not in caplog.text


class FakeSpark:
    """A fake Spark engine. `sessions` records the sessions that it was made with."""

    sessions: ClassVar[list[Any]] = []

    def __new__(cls, session: Any, _code: Any) -> Any:
        cls.sessions.append(session)
        engine = LocalEngine()
        engine.name = "spark"
        return engine


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    FakeSpark.sessions = []
    monkeypatch.setattr("tblctl.merger.engines.spark.engine.SparkEngine", FakeSpark)
    return FakeSpark.sessions


def open_fake_session(opened: list[str]) -> Callable[[], Any]:
    @contextlib.contextmanager
    def open_session() -> Iterator[str]:
        opened.append("opened")
        yield "ours"
        opened.append("stopped")

    return open_session


def test_auto_merges_here_and_on_a_session_that_is_given(overlapping: tblctl.Table, spark: list[Any]) -> None:
    assert overlapping.recluster(options={"max_groups": 1}).engine == "local"
    assert overlapping.recluster(spark="yours").engine == "spark"
    assert spark == ["yours"]


@pytest.mark.parametrize("name", ["auto", "spark"])
def test_a_session_is_opened_for_what_is_large_or_asked_for_and_stopped_again(
    overlapping: tblctl.Table, spark: list[Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("tblctl.merger.engines.spark.session.open_session", open_fake_session(opened))
    with engines(name, None, overlapping.location, local_bytes=0) as engine:
        assert engine(overlapping.plan()).name == "spark"
    assert (spark, opened) == (["ours"], ["opened", "stopped"])
    if name == "spark":
        assert overlapping.recluster(engine="spark", final=True).engine == "spark"
        assert (spark, opened) == (["ours"] * 2, ["opened", "stopped"] * 2)


def test_auto_chooses_for_every_round_and_opens_one_session(
    overlapping: tblctl.Table, spark: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("tblctl.merger.engines.spark.session.open_session", open_fake_session(opened))
    large, small = overlapping.plan(), overlapping.plan(options={"max_groups": 1})
    most = small.groups[0].decoded_bytes
    with engines("auto", None, overlapping.location, local_bytes=most) as engine:
        assert [engine(plan).name for plan in (small, large, small, large)] == ["local", "spark"] * 2
    assert (spark, opened) == (["ours"], ["opened", "stopped"])


def test_without_java_auto_merges_here_and_spark_says_what_to_install(
    overlapping: tblctl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise errors.EngineError("Java is missing: install a JRE")

    monkeypatch.setattr("tblctl.merger.engines.spark.session.open_session", refuse)
    with pytest.raises(errors.EngineError, match="install"):
        overlapping.recluster(engine="spark")
    with engines("auto", None, overlapping.location, local_bytes=0) as engine:
        assert engine(overlapping.plan()).name == "local"


@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_what_opens_a_session_and_was_not_entered_is_refused_with_what_to_write(
    overlapping: tblctl.Table, engine: str
) -> None:
    before = overlapping.snapshot.sequence
    not_entered = tblctl.spark_session(master="local[1]")
    with pytest.raises(errors.InvalidOptionError, match=r"with tblctl\.spark_session\(\.\.\.\) as spark"):
        overlapping.recluster(engine=engine, spark=not_entered)
    assert overlapping.snapshot.sequence == before


@pytest.mark.parametrize("words", [{"engine": "spark"}, {"spark": "yours"}])
def test_a_table_in_memory_is_not_for_spark(memory_url: str, words: dict[str, Any]) -> None:
    table = table_of(memory_url, [1, 3], [2, 4])
    with pytest.raises(errors.InvalidOptionError, match="in the memory of this process"):
        table.recluster(**words)
    assert table.recluster().committed_groups == 1


def test_nothing_to_do_opens_no_session(overlapping: tblctl.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    overlapping.recluster(final=True)
    opened: list[str] = []
    monkeypatch.setattr("tblctl.merger.engines.spark.session.open_session", open_fake_session(opened))
    assert overlapping.recluster(engine="spark").note.startswith("nothing to do")
    assert overlapping.recluster(spark=open_fake_session(opened)).note.startswith("nothing to do")
    assert opened == []


def test_what_opens_a_session_is_called_once_and_what_it_opened_is_stopped(
    overlapping: tblctl.Table, spark: list[Any]
) -> None:
    opened: list[str] = []
    assert overlapping.recluster(spark=open_fake_session(opened), final=True).engine == "spark"
    assert (spark, opened) == (["ours"], ["opened", "stopped"])


def test_every_storage_backend_is_reclustered_and_collected(location: Location) -> None:
    table = tblctl.create(
        location.url,
        SCHEMA,
        cluster_by=["k"],
        options={"block_rows": 4},
        storage_options=location.storage_options,
    )
    for start in (1, 2, 101, 102):
        append(table, [start, start + 2, start + 4, start + 6], first=start * 100)
    rows = rows_of(table)
    outcome = table.recluster(final=True)
    assert (outcome.committed_groups, outcome.depth_after) == (2, 1.0)
    assert rows_of(table) == rows
    table.gc(keep=1, older_than=0)
    assert table.check(deep=True).problems == ()
    assert rows_of(table) == rows


ADVERSARIAL = {
    "all keys equal": [[7, 7, 7]] * 8,
    "two alternating keys": [[1, 1, 1, 2], [1, 2, 2, 2]] * 6,
    "nested ranges": [[low, 20, 20, 40 - low] for low in range(12)],
    "one row over the limit": [[low, low + 1, low + 2, low + 3, low + 4] for low in range(8)],
    "every block full range": [[0, 10 + place, 20 + place, 99] for place in range(10)],
}


@pytest.mark.parametrize("policy", ["levels", "full"])
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_final_ends_on_adversarial_tables(memory_url: str, name: str, policy: str) -> None:
    table = table_of(memory_url, *ADVERSARIAL[name], block_rows=5)
    table.set_options({"block_rows": 4})
    rows = rows_of(table)
    outcome = table.recluster(final=True, policy=policy)
    assert outcome.rounds <= 5
    assert table.recluster(final=True, policy=policy).rounds == 0
    assert rows_of(table) == rows
    assert max(block.rows for block in table.files()) <= 5
    assert table.check(deep=True).problems == ()


WIDTHS: dict[str, Callable[[int], int]] = {
    "wide rows in the middle": lambda key: 5000 if 400 < key < 450 else 20,
    "wider and wider": lambda key: key,
    "few rows above block_bytes": lambda key: 100_000 if key % 97 == 0 else 10,
    "one side empty": lambda key: 900 if key < 300 else 0,
}


@pytest.mark.parametrize("policy", ["levels", "full"])
@pytest.mark.parametrize("name", WIDTHS)
def test_final_ends_where_some_keys_have_wide_rows(memory_url: str, name: str, policy: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
    options = {"block_rows": 1000, "block_bytes": 64 << 10, "row_group_rows": 100}
    table = tblctl.create(memory_url, schema, cluster_by=["k"], options=options)
    rng = random.Random(1)
    for _ in range(12):
        keys = [rng.randrange(1000) for _ in range(100)]
        table.append(pa.table({"k": keys, "s": ["x" * WIDTHS[name](key) for key in keys]}, schema=schema))
    widths = sorted((row["k"], len(row["s"])) for row in table.scan().to_arrow().to_pylist())
    outcome = table.recluster(final=True, policy=policy)
    assert 1 <= outcome.rounds <= 5
    assert not table.plan(policy, options={"include_unclustered": True}).groups
    assert sorted((row["k"], len(row["s"])) for row in table.scan().to_arrow().to_pylist()) == widths
    assert table.check(deep=True).problems == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"options": [1]}, "options is .*expected a mapping"),
        ({"policy": 5}, "policy is 5, expected the name of one, or an object with decide"),
        ({"progress": 5}, "progress is 5, expected a function of"),
        ({"plan": {"version": 1}}, "plan is a dict, expected a Plan; Plan.from_json reads"),
    ],
)
def test_arguments_of_another_kind_are_told(
    overlapping: tblctl.Table, words: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.InvalidOptionError, match=message):
        overlapping.recluster(**words)
