"""A Spark session that a command started ends with the command's process."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace

from tblctl.cli.arguments.engines import _to_the_end


def test_what_pyspark_waits_for_after_its_jvm_has_stopped_is_not_waited_for():
    released, stopped = Event(), Event()

    @contextmanager
    def session():
        found = SimpleNamespace(_sc=SimpleNamespace(_jsc="runs"))
        yield found
        stopped.set()
        found._sc._jsc = None
        released.wait(60)

    with _to_the_end(session) as given:
        assert given._sc._jsc == "runs"
    assert stopped.is_set()
    assert not released.is_set()
    released.set()


def test_a_session_of_spark_connect_is_stopped_first():
    stopped = []

    @contextmanager
    def session():
        yield SimpleNamespace()
        stopped.append(True)

    with _to_the_end(session):
        assert not stopped
    assert stopped


def test_a_session_that_cannot_be_stopped_does_not_hold_up_the_command():
    @contextmanager
    def session():
        yield SimpleNamespace(_sc=SimpleNamespace(_jsc="runs"))

    with _to_the_end(session):
        pass
