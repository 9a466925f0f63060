"""Register the data source in sessions, under one name for each set of storage options."""

from __future__ import annotations

import pickle
import threading
from typing import Any
from weakref import WeakKeyDictionary

from tblctl.merger.engines.spark import workers
from tblctl.spark.code import CODE
from tblctl.tableformat.errors import EngineError
from tblctl.tableformat.storage import Storage

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

_FILTERS_MIXED_UP = (4, 1)  # known; later versions are tested, see probe.py
_LEAST_VERSION = (4, 1)
_LOCK = threading.RLock()
_CAN_PUSH: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_NAMES: WeakKeyDictionary[Any, dict[bytes, str]] = WeakKeyDictionary()


def register_source(session: Any, name: str, storage: Storage) -> None:
    """Register the source under a name. It opens tables with the options of `storage`.

    Raises:
        EngineError: see `tblctl.spark.register`.
    """
    from tblctl.spark.source import source_class

    version = spark_version(session)
    workers.prepare(session, CODE)
    parallelism = workers.parallelism(session)
    try:
        pushdown = version > _FILTERS_MIXED_UP and can_push_filters(session)
        source = source_class(name, storage, parallelism=parallelism, pushdown=pushdown)
        session.dataSource.register(source)
    except Exception as error:
        reason = workers.reason(error)
        raise EngineError(f"the Spark session does not take the data source {name} ({reason})") from error


def name_for(session: Any, storage: Storage) -> str:
    """Return the name under which a session has the source with `storage`'s options; register it at first use.

    A table's handle has its own storage options. They must not be shown, and must not replace those of "tblctl".
    """
    key = pickle.dumps(storage.elsewhere("/"))
    with _LOCK:
        names = _NAMES.setdefault(session, {})
        if key not in names:
            name = f"tblctl_{len(names) + 1}"
            register_source(session, name, storage)
            names[key] = name
        return names[key]


def can_push_filters(session: Any) -> bool:
    """Return whether a session's source may accept filters. If so, make Spark offer them."""
    from tblctl.spark.probe import keeps_filters_apart

    with _LOCK:
        if session not in _CAN_PUSH:
            before = session.conf.get(PUSHDOWN)
            session.conf.set(PUSHDOWN, "true")
            _CAN_PUSH[session] = keeps_filters_apart(session)
            if not _CAN_PUSH[session]:
                session.conf.set(PUSHDOWN, before)
        return _CAN_PUSH[session]


def spark_version(session: Any) -> tuple[int, ...]:
    """Return the major and minor version of a session's Spark.

    Raises:
        EngineError: the version is too old for the source, or the session does not work.
    """
    try:
        version = str(session.version)
    except Exception as error:
        reason = workers.reason(error)
        raise EngineError(f"the Spark session does not work ({reason}): start a new one") from error
    found = tuple(int(part) for part in version.split(".")[:2])
    if found < _LEAST_VERSION:
        raise EngineError(
            f"this is Spark {version}; tblctl's data source needs 4.1 or newer, merges need 4.0"
        )
    return found
