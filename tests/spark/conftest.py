"""Spark sessions of every kind. `spark` runs a test on each: `.session`, `.kind`, `.traces()` for all that Spark said.

Sessions start once a kind; pytest runs the tests of a kind together, and in one process (xdist_group). Classic
sessions have workers apart from the driver, Connect ones a server with master local[2]; a classic one with that master,
which has nothing that these two have not, is of `make test-thorough`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jvm import quick_java
from profiles import THOROUGH

from tblctl.merger.engines.spark.session import open_session

if TYPE_CHECKING:
    from .standalone import Cluster

READY_SECONDS = 120
CONNECT_MODE = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))


@dataclass(frozen=True, kw_only=True)
class RunningSpark:
    """A session, and where it logs its events and the server its messages."""

    kind: str
    session: Any
    folder: Path

    def traces(self) -> bytes:
        """Return the event log, which the UI is drawn from, and what the server printed."""
        return b"\n".join(path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file())

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the log."""
        lines = [line for line in self.traces().splitlines() if line.startswith(b'{"Event":')]
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def java() -> None:
    """Fail with CI=true, skip elsewhere, if Java or pyspark is missing."""
    missing = (
        "no java in PATH or JAVA_HOME" if not (shutil.which("java") or os.environ.get("JAVA_HOME")) else ""
    )
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        missing = str(error)
    if missing:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"Spark cannot run: {missing}")
    os.environ |= quick_java()


def settings(folder: Path) -> dict[str, str]:
    """Return the settings of a test session: where its events go, and few partitions for few rows."""
    return {
        "spark.sql.shuffle.partitions": "2",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": folder.as_uri(),
    }


KINDS = [
    *(["local[2]"] if THOROUGH else []),
    pytest.param("local-cluster[2,1,1024]", marks=pytest.mark.slow),
    "connect",
]


@pytest.fixture(scope="session", params=KINDS)
def spark(
    request: pytest.FixtureRequest, java: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("events")
    if request.param == "connect":
        with connect_server(folder) as url, open_session(remote=url) as session:
            yield RunningSpark(kind="connect", session=session, folder=folder)
    else:
        with open_session(master=request.param, conf=settings(folder)) as session:
            yield RunningSpark(kind=request.param, session=session, folder=folder)


@pytest.fixture(scope="session")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a standalone cluster, one for all tests: each is an application of its own there."""
    from .standalone import standalone_cluster

    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def unmarked_environment() -> dict[str, str]:
    """Return the variables without those by which another test's Connect session makes every session its own kind."""
    return {name: value for name, value in os.environ.items() if name not in CONNECT_MODE}


def python(program: str, *, words: tuple[Any, ...] = (), **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, where nothing of Spark has been used yet."""
    command = [sys.executable, "-c", program, *words]
    options = {"env": unmarked_environment(), "capture_output": True, "text": True, "timeout": 300} | more
    return subprocess.run(command, **options)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def connect_server(folder: Path, *, master: str = "local[2]") -> Iterator[str]:
    """Run a Spark Connect server as a process of its own, which logs into `folder`, and give its address."""
    import pyspark

    home = Path(pyspark.__file__).parent
    port = free_port()
    conf = settings(folder) | {
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    command = [
        str(home / "bin" / "spark-submit"),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        *("--name", "tblctl tests", "--master", master),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
    ]
    variables = unmarked_environment() | {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home)}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=variables)
        try:
            wait_for(port, server)
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(READY_SECONDS)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(READY_SECONDS * 5):
        assert server.poll() is None, "the Connect server ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError("the Connect server did not start")
