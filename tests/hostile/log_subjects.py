"""Logs of queries, of tblctl and of engines, and calls that parse them."""

from __future__ import annotations

import functools
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from damage import rows
from hostile.mutations import text_of

from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.workload.lines import Header, decode_header, decode_query, encode_header, encode_query
from tblctl.tableformat.workload.queries import BlockUse, Query
from tblctl.workload.conjuncts import Conditions
from tblctl.workload.importing import ImportRequest, _Source
from tblctl.workload.selects import TableName, asked_of

SAMPLES = Path(__file__).parents[1] / "data" / "query_logs"
FILE = "x.parquet"


@functools.cache
def _schema() -> Schema:
    return Schema.create(rows(0, 3).schema)


def lines() -> Sequence[bytes]:
    use = BlockUse(path="data/a.parquet", rows_read=9, rows_matched=2)
    query = Query(
        time=5.5, where="id = 1", columns=("id",), blocks_read=1, blocks=(use,), tested=(("id", "="),)
    )
    return [
        encode_query(query),
        encode_header(Header(table_id="ab" * 16, dropped=2, kind="spark", imported="x")),
    ]


def parse_line(data: bytes) -> object:
    return decode_query(data), decode_header(data)


def engine_logs(kind: str) -> Callable[[], Sequence[bytes]]:
    def valid() -> Sequence[bytes]:
        if kind == "duckdb":
            return [(SAMPLES / f"duckdb_{number}.json").read_bytes() for number in range(2)]
        events = (SAMPLES / "spark_events.jsonl").read_text(encoding="utf-8").splitlines()
        return [b"[" + ",\n".join(part).encode() + b"]" for part in (events[3:12], events[3:5])]

    return valid


def parse_engine_log(kind: str) -> Callable[[bytes], object]:
    """Return what parses a log, whose lines are the items of a JSON list where it is one."""

    def parse(data: bytes) -> object:
        if kind == "spark":
            data = data[1:-1].replace(b",\n", b"\n")
        return _imported(data, kind, "log.json")

    return parse


def texts() -> Sequence[bytes]:
    return [
        b"SELECT a.id, sum(b.share) FROM db.t a JOIN u b ON a.id = b.id AND a.price > 2 WHERE a.name LIKE 'x%' OR TRUE",
        b"WITH r AS (SELECT * FROM t WHERE id BETWEEN 5 AND 9) SELECT * FROM r WHERE id IN (SELECT id FROM t)",
        b"INSERT INTO u SELECT id FROM t WHERE moment >= DATE '2026-01-31' + INTERVAL '1' MONTH AND flag IS NOT TRUE",
    ]


def parse_text(data: bytes) -> object:
    conditions = Conditions(schema=_schema())
    return [
        asked_of(text_of(data), TableName.of("t"), conditions, dialect)
        for dialect in (None, "clickhouse", "spark")
    ]


def parquet_logs() -> Sequence[bytes]:
    found = io.BytesIO()
    pq.write_table(pa.table({"sql": [text.decode() for text in texts()], "at": [1, 2, 3]}), found)
    return [found.getvalue()]


def parse_parquet_log(data: bytes) -> object:
    return _imported(data, "text", FILE)


def _imported(data: bytes, kind: str, name: str) -> object:
    port: Any = SimpleNamespace(location="/data/events" if kind != "text" else "/data/t")
    version: Any = SimpleNamespace(schema=_schema())
    request = ImportRequest(kind=kind, text_column="sql" if kind == "text" else None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        source = _Source.of(port, version, [path], request)
        return [encode_query(query) for query in source.queries()], json.dumps(source.reading.unused)
