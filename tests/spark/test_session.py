"""Sessions that tblctl opens: their settings, the error if there is none, and who stops them."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tblctl.merger.engines.spark import session
from tblctl.merger.engines.spark.session import open_session
from tblctl.tableformat.errors import EngineError, InvalidOptionError

from .conftest import CONNECT_MODE, free_port, python, unmarked_environment

LIFE = """
import os, sys
from pyspark.sql import SparkSession
from tblctl.merger.engines.spark.session import open_session
from tblctl.tableformat.errors import InvalidOptionError

with open_session(master="local[1]", conf={"spark.app.name": "mine"}) as first:
    context = first.sparkContext
    print("master", context.master, context.appName, context.pythonExec == sys.executable)
    where = first.range(1).rdd.map(lambda _: __import__("sys").executable).collect()
    print("workers", where == [sys.executable])
    print(first.range(1).rdd.map(lambda _: __import__("os").environ.get("MIMALLOC_PURGE_DELAY")).collect())
    (left,) = first.range(1).rdd.map(lambda _: __import__("tempfile").mkdtemp()).collect()
    print("temporary", os.path.exists(left))
    with open_session() as second:
        print("same", second is first)
    print("goes on", first.range(3).count())
    for words in ({"master": "local[2]"}, {"conf": {"spark.sql.shuffle.partitions": "3"}}):
        try:
            with open_session(**words):
                print("not refused")
        except InvalidOptionError as error:
            print("refused", "local[1]" in str(error))
print("stopped", context._jsc is None)
print("left", os.path.exists(left), os.path.exists(os.path.dirname(left)))
with open_session() as third:
    print("default", third.sparkContext.master)
"""


def test_a_session_is_local_by_default_shared_while_it_runs_and_stopped_by_who_started_it(
    java: None, tmp_path: Path
) -> None:
    done = python(LIFE, cwd=tmp_path, env=unmarked_environment() | {"MIMALLOC_PURGE_DELAY": "7000"})
    assert done.stdout.splitlines() == [
        "master local[1] mine True",
        "workers True",
        "['7000']",
        "temporary True",
        "same True",
        "goes on 3",
        "refused True",
        "refused True",
        "stopped True",
        "left False False",
        "default local[*]",
    ], done.stderr
    assert "\r" not in done.stderr  # no progress bars of Spark's own
    assert " WARN " not in done.stderr


def test_without_java_it_is_said_what_to_install(java: None, tmp_path: Path) -> None:
    for name in ("bash", "dirname", "basename", "env", "readlink", "tr", "cat"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    variables = unmarked_environment()
    variables.pop("JAVA_HOME", None)
    program = (
        "from tblctl.merger.engines.spark.session import open_session\n"
        "from tblctl.tableformat.errors import EngineError\n"
        "try:\n    open_session(master='local[1]').__enter__()\nexcept EngineError as error:\n    print(error)"
    )
    done = python(program, env=variables | {"PATH": str(tmp_path)}, cwd=tmp_path)
    assert "Java 17 or newer" in done.stdout, done.stderr
    assert "JAVA_HOME" in done.stdout
    assert "--engine local" in done.stdout


def test_without_pyspark_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(EngineError, match=r"pip install '\.\[spark\]'"), open_session():
        pass


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"master": "local[1]", "remote": "sc://h"}, "exclude each other"),
        ({"remote": "http://h:1"}, "expected sc://host:port"),
        ({"remote": "sc://h:port"}, "is not an address"),
    ],
)
def test_words_that_make_no_session_are_refused(words: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidOptionError, match=expected), open_session(**words):
        pass


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ({"master": "spark://127.0.0.1:{port}"}, "spark://127.0.0.1:{port}"),
        ({"remote": "sc://127.0.0.1:{port}/;token=PASSWORD"}, "sc://127.0.0.1:{port}"),
    ],
)
def test_an_address_where_nothing_listens_is_named_without_its_token(
    java: None, words: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_running_session", lambda: None)  # those of other tests
    for name in CONNECT_MODE:
        monkeypatch.delenv(name, raising=False)
    port = free_port()
    with (
        pytest.raises(EngineError) as caught,
        open_session(**{name: value.format(port=port) for name, value in words.items()}),
    ):
        pass
    assert address.format(port=port) + ":" in str(caught.value)
    assert "PASSWORD" not in str(caught.value)


SILENCE = """
import sys
from tblctl.merger.engines.spark import session as spark_session
from tblctl.tableformat.errors import EngineError

spark_session.ANSWER_SECONDS = 2.0
try:
    with spark_session.open_session(**{sys.argv[1]: sys.argv[2]}):
        pass
except EngineError as error:
    print(error)
"""


def test_a_connect_session_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> SimpleNamespace:
        os.environ.update(dict.fromkeys(("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"), "1"))
        return SimpleNamespace(stop=lambda: None)

    monkeypatch.setattr(session, "_connect", connect)
    monkeypatch.setenv("SPARK_REMOTE", "mine")
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    with open_session(remote="sc://h"):
        assert os.environ["SPARK_CONNECT_MODE_ENABLED"] == "1"
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ
    assert os.environ["SPARK_REMOTE"] == "mine"


@pytest.mark.parametrize(("word", "scheme"), [("remote", "sc"), ("master", "spark")])
def test_a_server_that_takes_connections_and_says_nothing_is_given_up(
    java: None, word: str, scheme: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        done = python(SILENCE, words=(word, address), cwd=tmp_path)
    assert done.stdout.startswith(f"no Spark answers at {address}:"), done.stderr
    assert done.returncode == 0
