"""Find out, once for each session, what an engine must know of a Spark session and its workers before tasks run."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from tblctl.merger.engines.spark.shipping import Code, stored_zip
from tblctl.tableformat.errors import EngineError, InternalError

NEEDED = {"pyarrow": "23", "numpy": "2", "fsspec": "2025.3", "xxhash": "3.5"}
"""Libraries that tasks import on workers, besides tblctl's code, which is sent to them; each with the oldest version
that works. `pyproject.toml` has them too."""

_LOCK = threading.Lock()
_PREPARED: WeakKeyDictionary[Any, Code] = WeakKeyDictionary()
"""The code that was sent to each session."""

_PARALLELISM: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_LOCAL = re.compile(r"local(\[.*\])?")
"""Masters whose workers are processes of this host; those of `local-cluster` are children of executors."""

_MANY_ROWS = 1 << 20
_REASON_CHARS = 400


def is_connect(session: Any) -> bool:
    """Return whether a session is a Spark Connect session, not a classic one."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def parallelism(session: Any) -> int:
    """Return the session's default number of partitions: its executors' cores, unless settings say otherwise.

    Raises:
        EngineError: the session does not work.
    """
    try:
        if not is_connect(session):
            chosen = session.conf.get("spark.sql.leafNodeDefaultParallelism", None)
            return int(chosen or session.sparkContext.defaultParallelism)
        with _LOCK:
            if (
                session not in _PARALLELISM
            ):  # a Connect client cannot ask for it, but can count the partitions of a range
                parts = session.range(_MANY_ROWS).selectExpr("spark_partition_id() AS part")
                _PARALLELISM[session] = parts.agg({"part": "max"}).collect()[0][0] + 1
            return _PARALLELISM[session]
    except Exception as error:
        raise EngineError(f"the Spark session does not work ({reason(error)}): start a new one") from error


def prepare(session: Any, code: Code) -> None:
    """Ship tblctl's code to the session's workers, once, and check that they can run it.

    Raises:
        EngineError: the session does not work, or workers lack something; the message says what was found on which one.
        InternalError: the session has other code of tblctl, which would hide this.
    """
    tasks = parallelism(session)
    path = stored_zip(code)
    with _LOCK:
        if session in _PREPARED:
            if _PREPARED[session] != code:
                msg = f"a Spark session already has {_PREPARED[session]}, which would hide {code}"
                raise InternalError(msg)
            return
        try:
            session.addArtifacts(str(path), pyfile=True)
        except Exception as error:
            raise EngineError(f"the Spark session does not take tblctl's code ({reason(error)})") from error
        # Classic sessions also put a copy first on this process's own path, where children would find it.
        sys.path[:] = [entry for entry in sys.path if not entry.endswith(f"/{path.name}")]
        if not _are_of_this_installation(session):
            require_fit(look_at_workers(session, tasks), zip_name=path.name)
        _PREPARED[session] = code


def _are_of_this_installation(session: Any) -> bool:
    """Return whether workers are children of this host, and run the Python that runs here: they have what it has.

    The question would be the first job of a session, and take 1 to 2 s.
    """
    if is_connect(session):
        return False
    context = session.sparkContext
    return _LOCAL.fullmatch(context.master) is not None and context.pythonExec == sys.executable


def look_at_workers(session: Any, tasks: int) -> list[dict[str, str]]:
    """Return the findings of a few tasks on their workers: "host", "python" and, by name, each library's version.

    A library that cannot be imported has its error instead, which begins with "!". This uses Spark's plain functions,
    which work without pyarrow.

    Raises:
        EngineError: the workers cannot run even these.
    """
    from pyspark.sql.functions import col, udf

    look = udf(_look(tuple(NEEDED)), "string", useArrow=False)
    try:
        rows = session.range(0, tasks, 1, tasks).select(look(col("id")).alias("found")).collect()
    except Exception as error:
        raise EngineError(
            f"Spark's workers cannot run Python functions for Python {_minor()}: {reason(error)}. {_advice()}"
        ) from error
    return [json.loads(row.found) for row in rows]


def require_fit(found: list[dict[str, str]], *, zip_name: str) -> None:
    """Raise unless every worker has what tasks need.

    Raises:
        EngineError: it lists what is wrong, on which host, and what to do.
    """
    expected = _look(tuple(NEEDED))
    problems = {
        f"{worker['host']}: {problem}"
        for worker in found
        for problem in _problems(worker, json.loads(expected(0)), zip_name)
    }
    if problems:
        raise EngineError(f"Spark's workers cannot run tblctl. {'; '.join(sorted(problems))}. {_advice()}")


def _problems(worker: dict[str, str], here: dict[str, str], zip_name: str) -> list[str]:
    problems = [
        f"{name} cannot be imported ({worker[name][2:]})" for name in NEEDED if worker[name].startswith("!")
    ]
    problems += [
        f"{name} {worker[name]} is too old, tblctl needs {oldest} or newer"
        for name, oldest in NEEDED.items()
        if not worker[name].startswith("!") and _numbers(worker[name]) < _numbers(oldest)
    ]
    for name, parts in (("python", 2), ("pyarrow", 1)):
        found, wanted = (side[name].split(".")[:parts] for side in (worker, here))
        if found != wanted and not worker[name].startswith("!"):
            problems.append(f"{name} is {worker[name]}, but {here[name]} where tblctl was called")
    if zip_name not in worker["tblctl"]:
        problems.append(f"tblctl comes from {worker['tblctl']}, expected the one that was sent, {zip_name}")
    return problems


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: 3 and 5 of `3.5rc1.dev0`."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(number) for number in found.group().split(".")) if found else ()


def _look(names: tuple[str, ...]) -> Callable[[int], str]:
    def look(
        _number: int,
    ) -> str:  # nested, with its own imports: pickled whole, so it runs without any installation
        import importlib
        import json
        import platform
        import socket

        def attribute(name: str, what: str) -> str:
            try:
                return str(getattr(importlib.import_module(name), what))
            except Exception as error:  # noqa: BLE001 (also a library that is there and cannot load)
                return f"! {type(error).__name__}: {error}"

        found = {"host": socket.gethostname(), "python": platform.python_version()}
        own = {"xxhash": "VERSION"}  # libraries with another name for their version
        found |= {name: attribute(name, own.get(name, "__version__")) for name in names}
        return json.dumps(found | {"tblctl": attribute("tblctl", "__file__")})

    return look


def reason(error: Exception) -> str:
    """Return the part of a Spark error that says what happened, without the JVM's stack."""
    text = str(error) or type(error).__name__
    mismatch = re.search(r"Python in worker has different version[^\n]*|Cannot run program[^\n]*", text)
    lost = re.search(r"most recent failure: ([^\n]*)", text)
    line = mismatch.group() if mismatch else lost.group(1) if lost else text.strip().split("\n")[0]
    return line[:_REASON_CHARS].rstrip(". ")


def _minor() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _advice() -> str:
    import pyarrow as pa

    return (
        f"Workers need Python {_minor()} with pyarrow {pa.__version__.split('.')[0]}, numpy, fsspec and xxhash: "
        "install them on every node and name that Python in PYSPARK_PYTHON before the session starts, or send an "
        "environment along (conda-pack or venv-pack, spark.archives)"
    )
