"""A planted secret is shown nowhere: not in logs, errors and their causes, output, plans, reprs, or the table itself.

Spark's events, plans and messages are searched in tests/spark (`test_secrets_are_in_no_plan_event_or_message`).
"""

from __future__ import annotations

import json
import logging
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from iceberg.lake import Lake, append, fields
from pyiceberg.types import LongType
from servers import S3Server
from tables import objects_of

import tblctl
from tblctl.cli.main import application

SECRET = "PLANTED/secret+0123456789="


def forms(secret: str) -> Iterator[str]:
    """Yield how a secret may be written: as it is, quoted for a URL, in JSON, in hexadecimal."""
    yield secret
    yield urllib.parse.quote(secret, safe="")
    yield json.dumps(secret)[1:-1]
    yield secret.encode().hex()


def assert_hidden(text: str | bytes, secret: str = SECRET) -> None:
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    assert not [form for form in forms(secret) if form.encode() in data]


@pytest.mark.parametrize("form", forms(SECRET))
def test_a_secret_is_found_in_each_of_its_forms(form: str) -> None:
    with pytest.raises(AssertionError):
        assert_hidden(f"before {form} after")


def told(error: BaseException | None) -> str:
    """Return all that an error, its causes and contexts, their details and notes say."""
    parts = []
    while error is not None:
        parts.append(f"{error!r} {error} {getattr(error, 'details', '')} {getattr(error, '__notes__', '')}")
        error = error.__cause__ or error.__context__
    return "\n".join(parts)


WRONG: dict[str, dict[str, Any]] = {
    "a key that is not known": {"secret": SECRET},
    "a server that is not there": {"secret": SECRET, "endpoint_url": "http://127.0.0.1:9"},
    "a password in the endpoint": {
        "endpoint_url": f"http://user:{urllib.parse.quote(SECRET, safe='')}@127.0.0.1:9"
    },
    "a nested token": {"client_kwargs": {"aws_session_token": SECRET, "region_name": "us-east-1"}},
    "an option that is none": {"token": SECRET, "no_such_option": SECRET},
}


@pytest.mark.parametrize("name", WRONG)
def test_no_error_of_a_storage_shows_a_secret(
    minio: S3Server, s3_clock: object, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.DEBUG, "tblctl")
    options = minio.storage_options | WRONG[name]
    location = minio.location().url
    with pytest.raises(Exception) as caught:
        tblctl.open(location, storage_options=options)
    assert_hidden(told(caught.value))
    words = [f"--storage-option={key}={_word(value)}" for key, value in options.items()]
    done = CliRunner().invoke(application, ["info", location, "--debug", *words])
    assert done.exit_code
    assert_hidden(done.output)
    assert_hidden(caplog.text)


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


LOCATIONS = [
    f"s3://user:{SECRET}@bucket/table",
    f"https://user:{SECRET}@127.0.0.1:9/table",
    f"simplecache::https://user:{urllib.parse.quote(SECRET, safe='')}@127.0.0.1:9/table?token={SECRET}",
]


@pytest.mark.parametrize("location", LOCATIONS)
@pytest.mark.parametrize("command", [["info"], ["scan", "--json"], ["history"], ["recluster", "--dry-run"]])
def test_no_error_shows_a_password_of_a_location(location: str, command: list[str]) -> None:
    done = CliRunner().invoke(application, [*command[:1], location, *command[1:], "--debug"])
    assert done.exit_code
    assert_hidden(done.output)


POSTGRES = f"postgresql+psycopg2://user:{urllib.parse.quote(SECRET, safe='')}@127.0.0.1:9/db"


@pytest.mark.parametrize(
    "options",
    [
        {"type": "sql", "uri": POSTGRES},
        {"type": "rest", "uri": "http://127.0.0.1:9", "token": SECRET},
        {"type": "rest", "uri": f"http://user:{urllib.parse.quote(SECRET, safe='')}@127.0.0.1:9"},
        {"type": "none", "s3.secret-access-key": SECRET},
    ],
)
def test_no_error_of_a_catalog_shows_a_secret(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tblctl")
    with pytest.raises(Exception) as caught:
        tblctl.open("iceberg://lake/db.t", catalog_options=options)
    assert_hidden(told(caught.value))
    words = [f"--catalog-option={key}={value}" for key, value in options.items()]
    done = CliRunner().invoke(application, ["info", "iceberg://lake/db.t", "--debug", *words])
    assert done.exit_code
    assert_hidden(done.output)
    assert_hidden(caplog.text)


USES: dict[str, Callable[[Any], object]] = {
    "append": lambda table: table.append(pa.table({"a": [3, 1, 2]})),
    "scan": lambda table: table.scan("a > 1").explain().to_dict(),
    "info": lambda table: table.info().to_dict(),
    "plan": lambda table: table.plan(policy="full").to_json(),
    "recluster": lambda table: table.recluster(policy="full").to_dict(),
    "history": lambda table: [item.to_dict() for item in table.history()],
    "gc": lambda table: table.gc(keep=1, older_than=0).to_dict(),
    "repr": repr,
    "parts": lambda table: [
        repr(value) for value in (table.snapshot, table._native, table._native.storage, table._port)
    ],
}


def test_what_is_written_logged_and_returned_has_no_secret(
    minio: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tblctl")
    url = minio.location().url
    table = tblctl.create(url, "a: int64", cluster_by="a", storage_options=minio.storage_options)
    table.append(pa.table({"a": [2, 1]}))
    for use in USES.values():
        assert_hidden(repr(use(table)), minio.secret)
    for name, data in objects_of(url, minio.storage_options).items():
        assert_hidden(name, minio.secret)
        assert_hidden(data, minio.secret)
    assert_hidden(caplog.text, minio.secret)


def test_nothing_in_an_iceberg_table_or_its_results_has_a_secret(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tblctl")
    lake = Lake(tmp_path, **{"s3.secret-access-key": SECRET, "tblctl.token": SECRET})
    made = lake.create("t", fields(id=LongType()), properties={"tblctl.cluster-by": "id"})
    for _ in range(2):
        append(made, id=[1, 2, 3])
    table = lake.open("t")
    for found in (
        table.info().to_dict(),
        table.plan(policy="full").to_json(),
        table.recluster(policy="full").to_dict(),
        [item.to_dict() for item in table.history()],
        table,
        table._port,
    ):
        assert_hidden(repr(found))
    for path in (tmp_path / "tables").rglob("*"):
        if path.is_file():
            assert_hidden(path.read_bytes())
    assert_hidden(caplog.text)
