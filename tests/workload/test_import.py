"""What engines log of their queries becomes queries of the table; what cannot be used is counted."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import tblctl
from tblctl.errors import InvalidDataError, InvalidOptionError
from tblctl.tableformat.environment import SYSTEM
from tblctl.tableformat.workload.queries import Query
from tblctl.workload.files import MOST_LINE_BYTES, time_of
from tblctl.workload.importing import sampled
from tblctl.workload.spark_log import split_arguments

SAMPLES = Path(__file__).parents[1] / "data" / "query_logs"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
    ]
)
ID, NAME, PRICE = '"id"', '"name"', '"price"'


@pytest.fixture
def events(tmp_path: Path) -> tblctl.Table:
    return tblctl.create(tmp_path / "events", SCHEMA)


def queries(table: tblctl.Table) -> list[Query]:
    return list(table.workload().workload.queries)


def wheres(table: tblctl.Table) -> list[str]:
    return [query.where for query in queries(table)]


def put(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


SPARK = [
    f"{ID} >= 100 AND {ID} < 200",
    f"\"day\" = DATE '2026-02-01' AND {NAME} LIKE 'name 1%' ESCAPE '!'",
    f"\"moment\" >= TIMESTAMP '2026-01-01 05:00:00+00:00' AND ({ID} IN (1, 2, 3) OR {PRICE} > 12.50)",
    "",
    f"{ID} = 5",
    f"{ID} = 5",
]


def test_scans_in_an_event_log_of_spark_are_imported(events: tblctl.Table) -> None:
    (found,) = events.import_workload(SAMPLES / "spark_events.jsonl")
    assert (found.kind, found.queries, found.stand_for, found.was_known) == ("spark", 6, 6, False)
    assert found.unused == {"a query does not read the table": 2}
    assert wheres(events) == SPARK
    first = queries(events)[0]
    assert (first.columns, first.blocks_read, first.bytes_read, first.source) == (
        ("id", "price"),
        1,
        22424,
        "spark",
    )
    assert first.time == pytest.approx(1795669532.021)


@pytest.mark.parametrize("form", ["gz", "zstd", "rolling"])
def test_compressed_and_rolling_event_logs_are_read(events: tblctl.Table, tmp_path: Path, form: str) -> None:
    data = (SAMPLES / "spark_events.jsonl").read_bytes()
    path = tmp_path / f"log.{form}"
    if form == "gz":
        path.write_bytes(gzip.compress(data))
    elif form == "zstd":
        with pa.output_stream(str(path), compression="zstd") as stream:
            stream.write(data)
    else:
        path.mkdir()
        lines = data.splitlines(keepends=True)
        (path / "events_10_local-1").write_bytes(b"".join(lines[9:]))
        (path / "events_2_local-1").write_bytes(b"".join(lines[:9]))
        (path / "appstatus_local-1").write_bytes(b"")
    events.import_workload(path)
    assert wheres(events) == SPARK


def test_a_log_that_ends_in_the_middle_gives_what_it_has(events: tblctl.Table, tmp_path: Path) -> None:
    data = (SAMPLES / "spark_events.jsonl").read_bytes()
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(data * 20)[:-12])
    (found,) = events.import_workload(path, kind="spark")
    assert 5 * 18 < found.queries <= 6 * 20
    assert found.unused["a compressed file is damaged, or not at its end"] == 1


def spark_start(node: dict[str, Any]) -> list[dict[str, Any]]:
    start = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
    return [
        {"Event": "SparkListenerEnvironmentUpdate", "System Properties": {"user.timezone": "Europe/Berlin"}},
        {"Event": start, "executionId": 1, "time": 1000, "sparkPlanInfo": {"children": [node]}},
    ]


def scan_node(*filters: str, location: str = "/data/events") -> dict[str, Any]:
    return {
        "nodeName": "Scan parquet",
        "simpleString": "FileScan parquet",
        "metadata": {
            "Location": f"InMemoryFileIndex(1 paths)[file:{location}]",
            "ReadSchema": "struct<id:bigint,name:string>",
            "PushedFilters": f"[{', '.join(filters)}]",
        },
    }


@pytest.mark.parametrize(
    ("pushed", "where"),
    [
        ("Not(EqualTo(id,5))", f"NOT ({ID} = 5)"),
        ("And(GreaterThan(id,1),LessThanOrEqual(id,9))", f"({ID} > 1 AND {ID} <= 9)"),
        ("EqualTo(name,it's (odd), really)", f"{NAME} = 'it''s (odd), really'"),
        ("In(name, [a,b'c])", f"{NAME} IN ('a', 'b''c')"),
        ("IsNull(id)", f"{ID} IS NULL"),
        ("StringStartsWith(name,50%_!)", f"{NAME} LIKE '50!%!_!!%' ESCAPE '!'"),
        ("GreaterThan(moment,2026-07-01 12:00:00.0)", "\"moment\" > TIMESTAMP '2026-07-01 10:00:00+00:00'"),
        ("GreaterThan(moment,2026-07-01T10:00:00Z)", "\"moment\" > TIMESTAMP '2026-07-01 10:00:00+00:00'"),
        ("StringContains(name,x)", ""),
        ("EqualTo(gone,5)", ""),
        ("EqualTo(id,five)", ""),
        ("Or(EqualTo(id,5),StringContains(name,x))", ""),
        ("Not(StringContains(name,x))", ""),
        ("EqualTo(day,20-1-1)", ""),
        ("nonsense", ""),
        ("Not(" * 5_000, ""),
    ],
)
def test_a_pushed_filter_is_kept_or_left_out_whole(
    events: tblctl.Table, tmp_path: Path, pushed: str, where: str
) -> None:
    log = put(tmp_path / "log", spark_start(scan_node(pushed, "IsNotNull(id)")))
    (found,) = events.import_workload(log)
    assert wheres(events) == [where]
    assert sum(found.left_out.values()) == (not where)


def test_a_scan_of_another_table_is_not_used(events: tblctl.Table, tmp_path: Path) -> None:
    log = put(tmp_path / "log", spark_start(scan_node("EqualTo(id,1)", location="/data/others")))
    assert events.import_workload(log)[0].queries == 0
    assert events.import_workload(log, table="others")[0].queries == 1


def test_an_iceberg_scan_of_spark_has_dates_for_numbers(events: tblctl.Table, tmp_path: Path) -> None:
    filters = "id >= 2500, name = 'it''s', day = 20485, moment >= 1767225610000000, name IS NOT NULL"
    text = f"IcebergScan(table=lake.db.events, snapshotId=7, filters={filters}, runtimeFilters=, groupedBy=)"
    log = put(tmp_path / "log", spark_start({"nodeName": "BatchScan lake.db.events", "simpleString": text}))
    events.import_workload(log)
    (where,) = wheres(events)
    assert where == (
        f"({ID} >= 2500) AND ({NAME} = 'it''s') AND (\"day\" = '2026-02-01') AND "
        f"(\"moment\" >= '2026-01-01 00:00:10+00:00') AND (NOT {NAME} IS NULL)"
    )


def test_commas_in_brackets_and_quotes_part_no_arguments() -> None:
    assert split_arguments("a, f(b,c), 'd, e', [g,h]") == ["a", "f(b,c)", "'d, e'", "[g,h]"]
    assert split_arguments("x,it's,y") == ["x", "it's", "y"]
    assert split_arguments("") == []


def test_profiles_of_duckdb_are_imported(events: tblctl.Table) -> None:
    found = events.import_workload([SAMPLES / f"duckdb_{number}.json" for number in range(4)])
    assert [item.kind for item in found] == ["duckdb"] * 4
    by_where = {query.where: query for query in queries(events)}
    assert sorted(by_where) == [
        "",
        f"({ID} >= 100) AND ({ID} < 200)",
        "(\"moment\" >= CAST('2026-01-01 05:00:00' AS TIMESTAMPNTZ))",
        f"({NAME} >= 'name 1') AND ({NAME} < 'name 2') AND (\"day\" = CAST('2026-02-01' AS DATE))",
    ]
    first = by_where[f"({ID} >= 100) AND ({ID} < 200)"]
    assert (first.columns, first.rows_read, first.blocks_read, first.bytes_read) == (
        ("price", "id"),
        100,
        1,
        37562,
    )
    assert found[3].left_out == {"a condition has a form or a literal that tblctl does not test": 1}


def test_a_profile_of_duckdb_1_is_read(events: tblctl.Table, tmp_path: Path) -> None:
    scan = {
        "operator_type": "TABLE_SCAN",
        "operator_rows_scanned": 9,
        "extra_info": {"Table": "events", "Filters": "id>=5 AND id<9", "Projections": ["id"]},
        "children": [],
    }
    profile = {"query_name": "..", "latency": 0.25, "cpu_time": 0.2, "extra_info": {}, "children": [scan]}
    events.import_workload(put(tmp_path / "p.json", [profile]))
    (query,) = queries(events)
    assert (query.where, query.columns, query.rows_read) == (f"({ID} >= 5) AND ({ID} < 9)", ("id",), 9)
    assert (query.seconds, query.cpu_seconds) == (0.25, 0.2)


REPORT = {
    "table-name": "lake.db.events",
    "snapshot-id": 7,
    "filter": {
        "type": "and",
        "left": {"type": "gt-eq", "term": "id", "value": "(2-digit-int)"},
        "right": {"type": "not", "child": {"type": "in", "term": "name", "values": ["(hash-1)"]}},
    },
    "schema-id": 0,
    "projected-field-names": ["id", "price"],
    "metrics": {
        "result-data-files": {"unit": "count", "value": 3},
        "skipped-data-files": {"unit": "count", "value": 9},
        "total-file-size-in-bytes": {"unit": "bytes", "value": 5000},
    },
}


def test_scan_reports_of_iceberg_weigh_columns_without_ranges(events: tblctl.Table, tmp_path: Path) -> None:
    other = {**REPORT, "table-name": "lake.db.others"}
    (found,) = events.import_workload(
        put(tmp_path / "reports.json", [REPORT, {"report": REPORT, "timestamp": 5}, other])
    )
    assert (found.kind, found.queries, found.unused) == ("iceberg", 2, {"it is of another table": 1})
    late, query = sorted(queries(events), key=lambda item: -item.time)
    assert (query.time, query.where, query.tested) == (5.0, "", (("id", ">="), ("name", "IN")))
    assert (query.blocks_read, query.blocks_total, query.bytes_read, query.snapshot) == (3, 12, 5000, "7")
    report = events.workload()
    assert [(item.column, item.range, item.listed) for item in report.columns] == [
        ("id", 1.0, 0.0),
        ("name", 0.0, 1.0),
    ]
    assert report.without_condition == 0.0
    assert late.columns == ("id", "price")


SQL = """
-- typical ones; of a dashboard
SELECT sum(price) FROM events WHERE id BETWEEN 5 AND 9 AND name = 'a;b';
SELECT e.name, o.x FROM db.events AS e JOIN others o ON e.id = o.id AND e.price > 2
 WHERE o.id = 7 AND e.day >= DATE '2026-01-01' + INTERVAL '1' DAY;
WITH recent AS (SELECT * FROM events WHERE id > 100) SELECT count(*) FROM recent WHERE id < 5;
SELECT id FROM events WHERE upper(name) = 'X' AND (id = 1 OR price = 2);
SELECT a.id FROM events a LEFT JOIN events b ON a.id = b.id AND b.price = 1 WHERE b.id IS NULL AND a.name = 'n';
INSERT INTO t SELECT id FROM "EVENTS" WHERE ID = 3;
SELECT * FROM others WHERE id = 1;
DELETE FROM events WHERE id = 1;
SELECT FROM WHERE events;
SELECT id FROM events WHERE id IN (SELECT id FROM others);
"""


def test_statements_of_sql_are_imported(events: tblctl.Table, tmp_path: Path) -> None:
    path = tmp_path / "queries.sql"
    path.write_text(SQL)
    (found,) = events.import_workload(path)
    assert [(query.where, tuple(sorted(query.columns))) for query in queries(events)] == [
        (f"({ID} <= 9 AND {ID} >= 5) AND ({NAME} = 'a;b')", ("id", "name", "price")),
        (
            f"(\"day\" >= CAST('2026-01-02' AS DATE)) AND ({PRICE} > 2)",
            ("day", "id", "name", "price"),
        ),
        (f"({ID} > 100)", ()),
        (f"({ID} = 1 OR {PRICE} = 2)", ("id", "name", "price")),
        (f"({NAME} = 'n')", ("id", "name")),
        ("", ("id", "price")),
        (f"({ID} = 3)", ("id",)),
        ("", ("id",)),
    ]
    assert found.kind == "sql"
    assert found.unused["it is of another table"] >= 1
    assert found.unused["it is no query"] == 1


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (
            "databend",
            [
                {"log_type_name": state, "query_text": "SELECT id FROM events WHERE id = 5", "scan_bytes": size,
                 "query_start_time": "2026-06-12 03:31:35.041725", "query_duration_ms": 250, "scan_rows": 9,
                 "scan_partitions": 2, "total_partitions": 8}
                for state, size in (("Start", 0), ("Finish", 77))
            ],
        ),
        (
            "clickhouse",
            [
                {"type": state, "query": "SELECT id FROM db.events WHERE id = 5 FORMAT Null", "read_rows": 9,
                 "query_start_time": "2026-06-12 03:31:35", "query_duration_ms": "250", "read_bytes": "77"}
                for state in ("QueryStart", "QueryFinish")
            ],
        ),
        (
            "snowflake",
            [
                {"QUERY_TEXT": "SELECT id FROM DB.PUBLIC.EVENTS WHERE id = 5",
                 "START_TIME": "2026-06-12 03:31:35.041 +0000",
                 "EXECUTION_STATUS": state, "TOTAL_ELAPSED_TIME": 250, "BYTES_SCANNED": 77, "PARTITIONS_SCANNED": 2,
                 "PARTITIONS_TOTAL": 8}
                for state in ("FAIL", "SUCCESS")
            ],
        ),
        (
            "dremio",
            [
                {"queryId": "1", "queryText": 'SELECT id FROM lake."events" WHERE id = 5', "start": 1781235095041,
                 "outcome": state, "inputRecords": 9, "inputBytes": 77}
                for state in ("FAILED", "COMPLETED")
            ],
        ),
        (
            "trino",
            [
                {"metadata": {"query": "SELECT id FROM lake.db.events WHERE id = 5", "queryState": state},
                 "createTime": "2026-06-12T03:31:35.041Z",
                 "statistics": {"physicalInputRows": 9, "physicalInputBytes": 77}}
                for state in ("FAILED", "FINISHED")
            ],
        ),
        (
            "trino-mysql",
            [
                {"query_id": "1", "query": "SELECT id FROM lake.db.events WHERE id = 5", "query_state": state,
                 "physical_input_rows": 9, "physical_input_bytes": 77, "wall_time_millis": 250}
                for state in ("FAILED", "FINISHED")
            ],
        ),
    ],
)  # fmt: skip
def test_query_histories_are_told_from_their_columns(
    events: tblctl.Table, tmp_path: Path, kind: str, rows: list[dict[str, Any]]
) -> None:
    (found,) = events.import_workload(put(tmp_path / "history.json", rows))
    assert (found.kind, found.queries) == (kind, 1)
    assert found.unused == {"it did not finish, or a line tells of its start only": 1}
    (query,) = queries(events)
    assert (query.where, query.columns, query.bytes_read, query.source) == (f"({ID} = 5)", ("id",), 77, kind)
    if kind != "trino-mysql":
        assert query.time == pytest.approx(1781235095.0, abs=0.05)


@pytest.mark.parametrize("ending", ["csv", "parquet", "json", "csv.gz"])
def test_text_in_a_named_column_is_imported_from_any_form(
    events: tblctl.Table, tmp_path: Path, ending: str
) -> None:
    moments = [
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    ]
    texts = ["SELECT id FROM events WHERE id = 5", "SELECT id FROM events WHERE\nname = 'a, \"b\"'"]
    path = tmp_path / f"audit.{ending}"
    rows = pa.table({"at": moments, "sql": texts})
    if ending == "parquet":
        pq.write_table(rows, path)
    elif ending == "json":
        put(path, [{"at": str(at), "sql": sql} for at, sql in zip(moments, texts, strict=True)])
    else:
        with pa.output_stream(str(path), compression="gzip" if ending.endswith("gz") else None) as stream:
            pacsv.write_csv(rows, stream)
    (found,) = events.import_workload(path, text_column="sql", time_column="at")
    assert (found.kind, found.queries, dict(found.unused)) == ("text", 2, {})
    assert [(query.where, query.time) for query in queries(events)] == [
        (f"({ID} = 5)", 1767225600.0),
        (f"({NAME} = 'a, \"b\"')", 1767312000.0),
    ]


def test_a_column_of_times_that_no_row_has_is_refused_and_times_that_cannot_be_read_are_counted(
    events: tblctl.Table, tmp_path: Path
) -> None:
    row = {"sql": "SELECT id FROM events WHERE id = 5"}
    path = put(tmp_path / "log.json", [{**row, "at": at} for at in ("2026-01-01", "soon", None)])
    with pytest.raises(InvalidOptionError, match=r"no row has a time in 'ta'; the first has: sql, at"):
        events.import_workload(path, text_column="sql", time_column="ta")
    assert queries(events) == []
    (found,) = events.import_workload(path, text_column="sql", time_column="at")
    assert (found.queries, found.undated) == (3, 2)
    (plain,) = events.import_workload(put(tmp_path / "more.json", [row]), text_column="sql")
    assert plain.undated == 0, "nobody said that it has times"


def test_a_file_is_imported_once_whatever_it_is_called(events: tblctl.Table, tmp_path: Path) -> None:
    path = tmp_path / "a.sql"
    path.write_text("SELECT id FROM events WHERE id = 5")
    shutil.copy(path, tmp_path / "b.sql")
    first, again = events.import_workload([path, tmp_path / "b.sql"])
    assert (first.was_known, again.was_known, again.queries) == (False, True, 0)
    assert events.import_workload(path)[0].was_known
    assert len(queries(events)) == 1


def test_of_too_many_queries_a_sample_with_weights_is_kept(events: tblctl.Table, tmp_path: Path) -> None:
    path = tmp_path / "a.sql"
    path.write_text(";".join(f"SELECT id FROM events WHERE id = {number}" for number in range(100)))
    (found,) = events.import_workload(path, limit=20)
    assert (found.queries, found.stand_for) == (20, 100)
    report = events.workload()
    assert (report.query_count, report.weight) == (20, pytest.approx(100))


def test_a_sample_takes_each_query_with_the_same_chance() -> None:
    drawn = iter([0.9, 0.1, 0.5])
    env = dataclasses.replace(SYSTEM, random=lambda: next(drawn))
    given = [Query(time=float(number), where="", weight=2.0) for number in range(5)]
    kept, total = sampled(given, 2, env)
    assert [query.time for query in kept] == [3.0, 1.0], (
        "place 2 is none, place 0 is replaced, place 2 is none"
    )
    assert total == 5
    assert {query.weight for query in kept} == {5.0}


def test_lines_that_are_no_objects_are_counted(events: tblctl.Table, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    good = json.dumps({"sql": "SELECT id FROM events WHERE id = 5"}).encode()
    path.write_bytes(
        b"\n".join([good, b"{", b"\xff\xfe", b"[1]", b"x" * (MOST_LINE_BYTES + 1), b'{"sql": 5}', good[:-3]])
    )
    (found,) = events.import_workload(path, text_column="sql")
    assert found.queries == 1
    assert found.unused == {
        "a line is damaged, or half a line": 4,
        "a line has more than 32 MiB": 1,
        "a row has no text in sql": 1,
    }


def test_a_log_of_unknown_kind_and_a_missing_file_are_refused(events: tblctl.Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match="of what kind this log is cannot be told"):
        events.import_workload(put(tmp_path / "x.json", [{"a": 1}]))
    with pytest.raises(InvalidDataError, match="there is no such file"):
        events.import_workload(tmp_path / "missing")
    with pytest.raises(InvalidDataError, match="no rolling event log"):
        events.import_workload(tmp_path)
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and more")
    with pytest.raises(InvalidDataError, match="is no Parquet file"):
        events.import_workload(tmp_path / "x.parquet", text_column="sql")


def test_wrong_arguments_are_named_together(events: tblctl.Table) -> None:
    with pytest.raises(InvalidOptionError, match=r"kind is 'oracle'.*limit is 0.*dialect is 'klingon'"):
        events.import_workload([], kind="oracle", limit=0, dialect="klingon")
    with pytest.raises(InvalidOptionError, match="the kind text needs text_column"):
        events.import_workload([], kind="text")


def test_literals_of_imported_queries_are_rounded_if_the_table_says_so(
    events: tblctl.Table, tmp_path: Path
) -> None:
    events.set_options({"recluster.record_literals": "rounded"})
    path = tmp_path / "a.sql"
    path.write_text("SELECT id FROM events WHERE name = 'secret' AND id > 12345")
    events.import_workload(path)
    assert wheres(events) == [f"({NAME} LIKE 'se%' AND {ID} > 12000)"]
    assert b"secret" not in b"".join(
        file.read_bytes() for file in (tmp_path / "events" / "workload").iterdir()
    )


def test_a_condition_that_cannot_be_rounded_is_not_kept_and_ends_no_import(
    events: tblctl.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise OverflowError

    monkeypatch.setattr("tblctl.tableformat.workload.rounding.rounded_where", fail)
    events.set_options({"recluster.record_literals": "rounded"})
    path = tmp_path / "a.sql"
    path.write_text("SELECT id FROM events WHERE id = 12345")
    (found,) = events.import_workload(path)
    assert found.queries == 1
    assert wheres(events) == [""]


def test_a_pinned_handle_imports_nothing(events: tblctl.Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="is pinned to snapshot"):
        tblctl.open(events.location, as_of=1).import_workload(tmp_path)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1_781_235_095, 1_781_235_095.0), (1_781_235_095_041, 1_781_235_095.041),
        ("1781235095041000", 1_781_235_095.041), ("2026-06-12 03:31:35.000 +0000", 1_781_235_095.0),
        (1_781_235_095_041_000_000, 1_781_235_095.041), ("2026-06-12T03:31:35Z", 1_781_235_095.0),
        ("2026-06-12 05:31:35+02:00", 1_781_235_095.0), ("soon", None), (-1, None), (None, None), (True, None),
        (float("nan"), None), (1e300, None),
    ],
)  # fmt: skip
def test_times_are_read_in_any_unit(value: Any, seconds: float | None) -> None:
    found = time_of(value)
    assert found == (seconds if seconds is None else pytest.approx(seconds))


def test_an_import_is_as_old_as_its_file_where_the_log_has_no_times(
    events: tblctl.Table, tmp_path: Path
) -> None:
    path = tmp_path / "a.sql"
    path.write_text("SELECT id FROM events WHERE id = 5")
    os.utime(path, (1_000_000, 1_000_000))
    events.import_workload(path)
    assert [query.time for query in queries(events)] == [1_000_000.0]
