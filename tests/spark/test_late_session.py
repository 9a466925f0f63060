"""A master that answers too late: its session is stopped, although no caller gets it."""

from __future__ import annotations

import threading

import pytest

from tblctl.errors import EngineError, InvalidOptionError
from tblctl.merger.engines.spark import session as spark_session


class Session:
    def __init__(self) -> None:
        self.stopped = threading.Event()

    def stop(self) -> None:
        self.stopped.set()


def test_a_session_that_comes_too_late_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "_require_listener", lambda _: None)
    monkeypatch.setattr(spark_session, "ANSWER_SECONDS", 0.05)
    session, answer = Session(), threading.Event()

    def start() -> Session:
        assert answer.wait(30)
        return session

    with pytest.raises(EngineError, match="no Spark answers at spark://nowhere:1"):
        spark_session._registered(start, "spark://nowhere:1")
    answer.set()
    assert session.stopped.wait(30)


def test_a_connect_session_that_runs_is_used_but_not_for_another_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session()
    monkeypatch.setattr(spark_session, "_running_session", lambda: session)
    monkeypatch.setattr(spark_session, "is_connect", lambda _: True)
    with spark_session.open_session() as found:
        assert found is session
    assert not session.stopped.is_set()
    with (
        pytest.raises(InvalidOptionError, match="a Spark Connect session already runs"),
        spark_session.open_session(master="local[2]"),
    ):
        pass


def test_a_session_that_comes_in_time_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "_require_listener", lambda _: None)
    session = Session()
    assert spark_session._registered(lambda: session, "spark://here:1") is session
    assert not session.stopped.is_set()

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        spark_session._registered(fail, "spark://here:1")
