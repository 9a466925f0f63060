"""Which engine merges a plan: this process, or Spark if the caller asks for it or its start pays off."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from tblctl.merger.engines.engine import Engine
from tblctl.merger.engines.local import LocalEngine
from tblctl.selector.plan import Plan
from tblctl.tableformat.errors import (
    EngineError,
    InvalidOptionError,
)

LOCAL_BYTES = 64 * 2**30
"""`auto` merges up to this many decoded bytes in this process (about six minutes on two processors), and more on Spark
if it can be started."""


def likely_name(name: str, session: Any) -> str:
    """Return the name of the engine that `engines` will most likely give: all but the largest plans are merged here."""
    return "spark" if name == "spark" or session is not None else "local"


@contextmanager
def engines(
    name: str, session: Any, location: str, *, local_bytes: int = LOCAL_BYTES
) -> Iterator[Callable[[Plan], Engine]]:
    """Give what names the engine for a plan of the table at `location`; what is opened for it is stopped at the end.

    Args:
        name: auto, local or spark.
        session: a SparkSession, or what opens one, which is called when the first plan is to be carried out.
        location: of the table.
        local_bytes: `auto` takes Spark for plans of more decoded bytes.

    Raises:
        InvalidOptionError: the name is unknown, the engine needs no session, `session` is a context manager that was
            not entered, or Spark cannot reach the table.
        EngineError: Spark was asked for, and cannot be started here.
    """
    if name not in ("auto", "local", "spark"):
        msg = f"engine is {name!r}, expected 'auto', 'local' or 'spark'"
        raise InvalidOptionError(msg)
    if name == "local" and session is not None:
        msg = "engine='local' runs without Spark, yet a session was given; leave one of them out"
        raise InvalidOptionError(msg)
    if isinstance(session, AbstractContextManager) and not hasattr(session, "createDataFrame"):
        msg = (
            f"spark is a {type(session).__name__}, a context manager and not a session: write "
            "`with tblctl.spark_session(...) as spark:` and pass that, or pass a function that returns it, "
            "`spark=lambda: tblctl.spark_session(...)`"
        )
        raise InvalidOptionError(msg)
    in_memory = location.startswith("memory:")
    if in_memory and (name == "spark" or session is not None):
        msg = f"{location} is in the memory of this process, where Spark's workers cannot see it: use engine='local'"
        raise InvalidOptionError(msg)
    asked = likely_name(name, session) == "spark"
    with ExitStack() as opened:

        @functools.cache  # a session is opened once, or found missing once
        def spark() -> Engine:
            return _spark(session, opened, instead=None if asked else LocalEngine())

        def engine(plan: Plan) -> Engine:
            large = sum(group.decoded_bytes for group in plan.groups) > local_bytes
            wanted = asked or (name == "auto" and large and not in_memory)
            return spark() if wanted else LocalEngine()

        yield engine


def _spark(session: Any, opened: ExitStack, *, instead: Engine | None) -> Engine:
    from tblctl.merger.engines.spark.engine import SparkEngine
    from tblctl.merger.engines.spark.session import open_session
    from tblctl.spark.code import CODE

    try:
        if session is None or callable(session):
            session = opened.enter_context((session or open_session)())
        return SparkEngine(session, CODE)
    except EngineError:
        if instead is None:
            raise
        return instead
