"""Texts and values that people and engines write, and calls that parse them."""

from __future__ import annotations

import functools
import io
import json
import tempfile
from collections.abc import Sequence
from typing import Any

import click
import pyarrow as pa
from click import ClickException
from damage import rows
from hostile.mutations import text_of

import tblctl
from tblctl.as_of import version_as_of
from tblctl.cli.arguments import params
from tblctl.cli.commands.recluster import read_plan
from tblctl.cli.config import read_profile
from tblctl.errors import InputError
from tblctl.merger.engines.spark.session import _hosts
from tblctl.spark.options import SourceOptions
from tblctl.statement import parse_statement as read_statement
from tblctl.storage_text import read_storage_options
from tblctl.tableformat.iceberg import location as iceberg_location
from tblctl.tableformat.model.cluster_key import parse_key
from tblctl.tableformat.model.options import TableOptions, parse_duration
from tblctl.tableformat.model.options import parse_size as read_size
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.predicate.resolve import resolve
from tblctl.tableformat.predicate.rows import filter_table
from tblctl.tableformat.predicate.sql.condition_file import split_predicates
from tblctl.tableformat.predicate.sql.conditions import parse_assignments as read_assignments
from tblctl.tableformat.predicate.sql.conditions import parse_where as read_where
from tblctl.tableformat.storage import location

__all__ = ["ClickException"]


def _encoded(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


@functools.cache
def _rows() -> pa.Table:
    return rows(0, 30)


@functools.cache
def _rows_by_leaf() -> pa.Table:
    """Return the rows as conditions are tested on them: a field of a struct is a column with a dotted name."""
    found = _rows()
    return found.append_column(
        "place.x", pa.chunked_array([part.field("x") for part in found["place"].chunks])
    )


@functools.cache
def _schema() -> Schema:
    return Schema.create(_rows().schema)


def conditions() -> Sequence[bytes]:
    return _encoded(
        "id >= 5 AND (name LIKE 'name 1%' ESCAPE '\\' OR NOT share < 0.5) AND price BETWEEN 1.50 AND 99",
        "moment >= TIMESTAMP '2026-01-01 12:00:00Z' AND day <> DATE '2026-01-05' AND code = X'010203'",
        'id IN (1, 2, 3) OR flag IS NOT TRUE OR mode IS NULL OR "place".x = -1e3',
        "(id, name) > (3, 'x') AND large < 123456789012345678901234567890.5",
    )


def parse_where(data: bytes) -> object:
    found = read_where(text_of(data), _schema())
    resolve(found, _schema())
    return filter_table(_rows_by_leaf(), found, _schema())


def assignments() -> Sequence[bytes]:
    return _encoded("name = 'x', share = NULL, price = 1.25", "flag = true, moment = TIMESTAMP '2026-01-01'")


def parse_assignments(data: bytes) -> object:
    return read_assignments(text_of(data), _schema())


def statements() -> Sequence[bytes]:
    return _encoded(
        'ALTER TABLE lake."line item" RECLUSTER FINAL WHERE id > 5;',
        "OPTIMIZE TABLE IF EXISTS 's3://bucket/table' RECLUSTER",
        "ALTER TABLE /data/t-1 RECLUSTER WHERE name = 'it''s'",
    )


def parse_statement(data: bytes) -> object:
    found = read_statement(text_of(data))
    return found.name, found.location


def condition_files() -> Sequence[bytes]:
    return _encoded("WHERE id = 1; -- one\nname = 'a;b' /* two */;\nshare > 1", "id = 1\nid = 2\n")


def parse_condition_file(data: bytes) -> object:
    found = []
    for part in split_predicates(text_of(data))[:20]:
        try:
            found.append(read_where(part.padded, _schema()))
        except InputError as error:
            found.append(error)
    return found


def cluster_keys() -> Sequence[bytes]:
    return _encoded(
        "day(moment), bucket(16, id) desc nulls first",
        'truncate(3, name), "place".x',
        "mode asc, id",
        'hilbert(id, "place".x, name)',
        'qdtree(file:"odd, name.sql", min_rows=100, by="day(moment) desc, ""place"".x")',
    )


def parse_cluster_key(data: bytes) -> object:
    """A key that is accepted is written as a text that gives it again."""
    key = parse_key(text_of(data), _schema())
    assert parse_key(", ".join(key.texts(_schema())), _schema()) == key
    return key


def schemas() -> Sequence[bytes]:
    return _encoded(
        'id: int64 not null, "odd, name": timestamp[us, tz=UTC], tags: list<string>, p: decimal128(9, 2)',
        "s: struct<x: float, y: map<string, int32>>, d: dictionary<int32, string>, f: fixed_size_binary[16]",
    )


def parse_schema(data: bytes) -> object:
    columns = tblctl.parse_schema(text_of(data))
    made = Schema.create(columns)
    assert Schema.from_json(json.loads(json.dumps(made.to_json()))) == made
    return made


@functools.cache
def plans() -> Sequence[bytes]:
    table = tblctl.create("memory://hostile/plan", _rows().schema, cluster_by="id", options={"block_rows": 8})
    table.append(_rows())
    table.append(_rows())
    found = [table.plan(policy=policy).to_json() for policy in ("full", "levels")]
    table.set_options({"block_rows": 1000})
    found.append(table.plan(policy="size", options={"sort_columns": "zorder(id, name)"}).to_json())
    return [json.dumps(item).encode() for item in found]


def parse_plan(data: bytes) -> object:
    plan = read_plan(_Named(text_of(data)))
    return json.dumps(plan.to_json())


class _Named(io.StringIO):
    name = "plan.json"


def table_options() -> Sequence[bytes]:
    return [
        b'{"block_rows": 1000, "block_bytes": "64MiB", "compression": "zstd", "compression_level": 3}',
        b'{"recluster.auto": true, "row_group_rows": 65536}',
        b'{"recluster.mode": "schedule", "recluster.every": "10"}',
    ]


def parse_table_options(data: bytes) -> object:
    given = _json(data)
    return TableOptions.from_mapping(given) if isinstance(given, dict) else None


def _json(data: bytes) -> Any:
    """Return a value for a parser of values; None if the bytes are no JSON, which others refuse."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def storage_options() -> Sequence[bytes]:
    return _encoded(
        'client_kwargs.region_name=eu-west-1\nkey=abc\nconfig={"a": [1]}\nanon=true',
        "endpoint_url=http://h:1",
    )


def parse_storage_options(data: bytes) -> object:
    pairs = [line.partition("=")[::2] for line in text_of(data).split("\n")]
    return read_storage_options(dict(pairs))


def source_options() -> Sequence[bytes]:
    return [
        b'{"path": "/data/t", "as_of": "7", "columns": "a,b", "where": "a > 1", "memory_bytes": "1GiB"}',
        b'{"path": "s3://b/t", "storage.anon": "true", "storage.config_kwargs": "{\\"a\\": 1}"}',
    ]


def parse_source_options(data: bytes) -> object:
    given = _json(data)
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        return None  # Spark passes text only
    return SourceOptions.of(given)


def sizes() -> Sequence[bytes]:
    return _encoded("1.5GiB", "500 MB", "1024", "7d", "12h")


def parse_size(data: bytes) -> object:
    try:
        return parse_duration(text_of(data))
    except InputError:
        return read_size(text_of(data))


def locations() -> Sequence[bytes]:
    return _encoded(
        "s3://bucket/a/b",
        "/data/t",
        "file:///data/t",
        "simplecache::s3://user:pass@host/x?token=abc",
        "memory://x",
    )


def parse_location(data: bytes) -> object:
    """No part of a password is shown."""
    text = text_of(data)
    shown = location.shown_url(text)
    location.secrets_of(text)
    assert "pass@host" not in shown
    return location.parse_location(text)


def iceberg_locations() -> Sequence[bytes]:
    return _encoded('iceberg://prod/sales."a.b"', "iceberg://c/n.t", 'iceberg://c/"a""b".c')


def parse_iceberg_location(data: bytes) -> object:
    """A location that is accepted is written as a text that gives it again."""
    text = text_of(data)
    if not iceberg_location.is_iceberg(text):
        return None
    found = iceberg_location.parse_location(text)
    assert iceberg_location.parse_location(str(found)) == found
    return found


def times() -> Sequence[bytes]:
    return _encoded("9999-01-31T12:00:00Z", "2026-01-31", "1", "v1", "0001-01-01T00:00:00+23:59")


@functools.cache
def _port() -> Any:
    return tblctl.create("memory://hostile/times", _rows().schema)._port


def parse_as_of(data: bytes) -> object:
    return version_as_of(_port(), text_of(data))


def words() -> Sequence[bytes]:
    return _encoded('a, b, "odd, name"', "block_rows=5", '"a b": int64', "2GiB", "12345")


def parse_words(data: bytes) -> object:
    """Parse a word of the command line in every way that one is parsed; each may refuse it."""
    text: Any = text_of(data)
    nothing: Any = None
    reads = (
        lambda: params.read_names(nothing, nothing, text),
        lambda: params.read_pairs((text, text + "2"), option="--set"),
        lambda: params.read_column(text, option="--add"),
        lambda: params.read_size(nothing, nothing, text),
        lambda: params.read_as_of(nothing, nothing, text),
        lambda: params.read_storage_options((text,)),
    )
    found = []
    for read in reads:
        try:
            found.append(read())
        except click.ClickException as error:
            found.append(error)
    return found


def masters() -> Sequence[bytes]:
    return _encoded("spark://host:7077,other:7078", "sc://host:15002/;token=abc", "sc://[::1]:5")


def parse_master(data: bytes) -> object:
    return _hosts(text_of(data))


def profiles() -> Sequence[bytes]:
    return _encoded(
        'profile = "prod"\n[profiles.prod]\nengine = "auto"\nprice_per_gib = 0.02\n',
        'profile = "prod"\n[profiles.prod.storage.s3]\nendpoint_url = "https://x"\nkey = { env = "KEY" }\n',
        '[profiles.prod]\n[profiles.prod.catalogs.lake]\nuri = "https://x"\ntoken = { file = "/run/token" }\n',
    )


def parse_profile(data: bytes) -> object:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        return read_profile((), {"TBLCTL_CONFIG": file.name})
