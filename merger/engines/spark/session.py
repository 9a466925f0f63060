"""Open Spark sessions for callers that give the address of a master or server instead of a session."""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from tblctl.merger.engines.spark.workers import is_connect, reason
from tblctl.merger.presort.spill import SESSION_PREFIX
from tblctl.tableformat.errors import EngineError, InvalidOptionError, TblctlError

ANSWER_SECONDS = 30.0
"""How long a master or server may take to answer, including the start of the JVM."""

_MASTER = re.compile(
    r"local|local\[(\*|\d+)(,\d+)?\]|local-cluster\[\d+,\d+,\d+\]|yarn|(spark|k8s|mesos)://.+"
)
_CONNECT_MODE = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")
_PROBE_SECONDS = 5.0
_CONNECT_PORT = 15002

_OF_ONE_COMMAND = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Of sessions that are started for one command. Rows are merged in Python: the JVM has descriptions of tasks alone, or
some large binaries. Code that it would generate for them, and plans that it would adapt, take longer than they save.
"""

_ON_THIS_HOST = _OF_ONE_COMMAND | {
    "spark.log.level": "FATAL",  # failures of jobs are reported anyway, without the JVM's stacks
    "spark.driver.defaultJavaOptions": "-Dlog4j2.level=FATAL -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""The same with a local master.

spark.driver.defaultJavaOptions: the same log level, until `spark.log.level` is read; the JVM's fast compiler only,
since its optimising compiler takes a third of the time of a cold command from two processors; no counters for others
to look at.
"""

_ALLOCATOR = {"MIMALLOC_PURGE_DELAY"}
"""Settings of Arrow's allocator in this process's environment (`cli/main.py`), which workers get too."""


def open_session(
    *, master: str | None = None, remote: str | None = None, conf: Mapping[str, str] | None = None
) -> AbstractContextManager[Any]:
    """Return a context manager that starts a session when entered, and stops it at the end.

    A session that is started here is made for merges: it generates no code and adapts no plans, so SQL of one's own is
    slower in it. `conf` can turn that on (`spark.sql.codegen.wholeStage`, `spark.sql.codegen.factoryMode`,
    `spark.sql.adaptive.enabled`).

    Args:
        master: starts Spark with it; `local[*]` if neither this nor `remote` is given. A classic session that
            already runs in this process is used instead if its master is the same or none is given, and goes on.
        remote: address of a Spark Connect server, `sc://host:port`.
        conf: Spark's settings.

    Raises:
        InvalidOptionError: at once if the arguments contradict each other or name no master or server; on entry if they
            contradict the running session.
        EngineError: on entry: pyspark or Java is missing, or nothing answers at the address.
    """
    if master is not None and remote is not None:
        raise InvalidOptionError(
            "master and remote exclude each other: the first starts Spark, the second connects to a server"
        )
    if remote is not None and not remote.startswith("sc://"):
        raise InvalidOptionError(
            f"remote is {_shown(remote)!r}: expected sc://host:port of a Spark Connect server"
        )
    if master is not None and not _MASTER.fullmatch(master):
        raise InvalidOptionError(
            f"master is {_shown(master)!r}: expected local, local[2], local[*], spark://host:7077, yarn, "
            "k8s://https://host:port or mesos://host:port"
        )
    return _session(master, remote, conf or {})


@contextmanager
def _session(master: str | None, remote: str | None, conf: Mapping[str, str]) -> Iterator[Any]:
    running = None if remote is not None else _running_session()
    if running is not None:
        _require_same(running, master, conf)
        yield running
        return
    with _mode_restored() if remote is not None else _folder_of_workers(master) as own:
        session = (
            _connect(remote, conf) if remote is not None else _start(master or "local[*]", {**own, **conf})
        )
        try:
            yield session
        finally:
            with suppress(Exception):  # its results count, and a session that is gone cannot be stopped
                session.stop()


@contextmanager
def _folder_of_workers(master: str | None) -> Iterator[dict[str, str]]:
    """Give settings by which workers on this host have a temporary folder of their own, deleted at the end.

    Spark kills workers of cancelled jobs, and these leave what they spilled.
    """
    if master is not None and not master.startswith("local"):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix=SESSION_PREFIX, ignore_cleanup_errors=True) as folder:
        yield {"spark.executorEnv.TMPDIR": folder}


@contextmanager
def _mode_restored() -> Iterator[dict[str, str]]:
    """Undo what pyspark does at a process's first Connect session: afterwards it could not start a classic one.

    Gives no settings.
    """
    before = {name: os.environ.get(name) for name in _CONNECT_MODE}
    try:
        yield {}
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _pyspark_sessions() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise EngineError(
            f"the Spark engine needs pyspark ({error}): install the extra spark, pip install '.[spark]' "
            "in the checkout, and Java 17 or newer"
        ) from error
    return SparkSession


def _running_session() -> Any | None:
    sessions = _pyspark_sessions()
    try:
        return sessions.active()
    except Exception:  # noqa: BLE001 (how pyspark says that there is none)
        return None


def _require_same(running: Any, master: str | None, conf: Mapping[str, str] | None) -> None:
    own = None if is_connect(running) else running.sparkContext.master
    if master not in {None, own} or conf:
        kind = "a Spark Connect session" if own is None else f"a Spark session with master {own}"
        raise InvalidOptionError(
            f"{kind} already runs in this process with its own settings: pass it as spark=, or stop it first"
        )


def _start(master: str, conf: Mapping[str, str]) -> Any:
    sessions = _pyspark_sessions()
    is_local, is_cluster = master.startswith("local"), master.startswith("spark://")
    allocator = {f"spark.executorEnv.{name}": os.environ[name] for name in _ALLOCATOR & os.environ.keys()}
    settings = {**(_ON_THIS_HOST if is_local else _OF_ONE_COMMAND), **allocator, **conf}
    builder = sessions.builder.appName("tblctl").master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = _registered(builder.getOrCreate, master) if is_cluster else builder.getOrCreate()
    except TblctlError:
        raise
    except Exception as error:
        if "JAVA_GATEWAY_EXITED" in str(error):
            text = (
                "Spark needs Java 17 or newer, and could not start it: install a JRE, or set JAVA_HOME to one"
            )
        else:
            text = f"Spark did not start with master {master!r}: {reason(error)}"
        raise EngineError(f"{text}; --engine local needs none") from error
    python = settings.get("spark.pyspark.python", sys.executable if is_local else None)
    if python is not None:  # pyspark reads only the environment, and otherwise takes the `python3` of PATH
        session.sparkContext.pythonExec = python
    return session


def _connect(remote: str, conf: Mapping[str, str]) -> Any:
    sessions = _pyspark_sessions()
    _require_listener(remote)
    builder = sessions.builder.appName("tblctl").remote(remote)
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        _require_grpc(remote)
        session = builder.create()
        session.version  # noqa: B018 (asks the server)
    except EngineError:
        raise
    except Exception as error:
        raise EngineError(f"no Spark session at {_shown(remote)}: {reason(error)}") from error
    return session


def _require_grpc(remote: str) -> None:
    """Raise unless a gRPC server answers in time. pyspark itself would try for ten minutes, and block the exit."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    with DefaultChannelBuilder(remote).toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(ANSWER_SECONDS)
        except grpc.FutureTimeoutError:
            raise _no_answer(remote) from None


def _registered(start: Callable[[], Any], master: str) -> Any:
    """Return the result of `start`, unless it waits too long for the master. Spark itself waits a minute."""
    _require_listener(master)
    answers: list[Any] = []
    answered = threading.Condition()
    waits = True

    def ask() -> None:
        found: Any
        try:
            found = start()
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            found = error
        with answered:
            answers.append(found)
            answered.notify()
            if waits or isinstance(found, BaseException):
                return
        found.stop()  # it came too late, so no caller will stop it

    threading.Thread(target=ask, daemon=True).start()
    with answered:
        waits = answered.wait_for(lambda: answers, timeout=ANSWER_SECONDS) != []
        if not waits:
            raise _no_answer(master)
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


def _no_answer(address: str) -> EngineError:
    return EngineError(f"no Spark answers at {_shown(address)}: is it running, and the address right?")


def _require_listener(address: str) -> None:
    """Raise if all of the address's hosts refuse to be connected to."""
    if all(_refuses(host, port) for host, port in _hosts(address)):
        raise _no_answer(address)


def _hosts(address: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of `sc://host:port/;..` or `spark://host:port,host:port`.

    Raises:
        InvalidOptionError: it is neither.
    """
    scheme, _, rest = address.partition("://")
    try:
        parts = [urlsplit(f"{scheme}://{host}") for host in rest.split("/")[0].split(",")]
        return [(part.hostname or "", part.port or _CONNECT_PORT) for part in parts]
    except ValueError as error:
        raise InvalidOptionError(f"{_shown(address)} is not an address: {error}") from error


def _refuses(host: str, port: int) -> bool:
    """Return whether nothing listens there. Spark finds other obstacles, such as a proxy."""
    try:
        socket.create_connection((host, port), timeout=_PROBE_SECONDS).close()
    except (ConnectionRefusedError, socket.gaierror):
        return True
    except OSError:
        return False
    return False


def _shown(address: str) -> str:
    """Return an address without its parameters, which may contain a token."""
    return address.partition("/;")[0].partition("?")[0]
