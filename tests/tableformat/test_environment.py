"""Turns of threads in one process."""

import pickle
import threading
from collections.abc import Callable

import pytest

from tblctl.tableformat import environment
from tblctl.tableformat.environment import SYSTEM, Environment


def test_as_a_rule_nobody_waits() -> None:
    env = Environment()
    with env.turn("a") as first, env.turn("a") as second:
        assert (first, second) == (False, False)


def test_one_thread_at_a_time_is_in_the_turn_of_a_name() -> None:
    inside = threading.Event()
    waited: list[bool] = []

    def second() -> None:
        inside.set()
        with SYSTEM.turn("table") as had_to_wait:
            waited.append(had_to_wait)

    with SYSTEM.turn("table") as had_to_wait:
        thread = threading.Thread(target=second)
        thread.start()
        inside.wait()
        assert not had_to_wait
        thread.join(timeout=0.2)
        assert thread.is_alive(), "the other one waits"
        assert waited == []
    thread.join()
    assert len(waited) == 1, "and then has its turn"


def test_turns_of_other_names_are_independent() -> None:
    with SYSTEM.turn("one"), SYSTEM.turn("two") as waited:
        assert not waited


def test_one_who_waits_too_long_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_LONGEST_TURN_SECONDS", 0.01)
    with SYSTEM.turn("table"), SYSTEM.turn("table") as waited:
        assert waited
    with SYSTEM.turn("table") as waited:
        assert not waited, "it gave back only what it had"


def test_a_turn_ends_with_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), SYSTEM.turn("table"):
        raise ValueError("inside")
    with SYSTEM.turn("table") as waited:
        assert not waited


def test_names_without_a_turn_are_forgotten() -> None:
    for number in range(100):
        with SYSTEM.turn(f"table {number}"):
            pass
    assert len(environment._TURNS) < 10


def test_a_beat_comes_again_and_again_until_its_body_ends() -> None:
    thirds, beats = threading.Event(), []

    def beat(_is_over: Callable[[], bool]) -> None:
        beats.append(threading.current_thread())
        if len(beats) == 3:
            thirds.set()

    with SYSTEM.beat(0.001, beat):
        assert thirds.wait(60)
    count = len(beats)
    assert threading.current_thread() not in beats
    assert not beats[0].is_alive(), "no beat comes after the body"
    assert len(beats) == count


def test_a_beat_that_fails_is_logged_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    second, beats = threading.Event(), []

    def beat(_is_over: Callable[[], bool]) -> None:
        beats.append(None)
        if len(beats) > 1:
            second.set()
        raise OSError("the pool is closed")

    with SYSTEM.beat(0.001, beat):
        assert second.wait(60)
    assert "a beat beside a round failed" in caplog.text
    assert "the pool is closed" in caplog.text


def test_a_beat_learns_that_its_body_has_ended() -> None:
    begun, ended = threading.Event(), []

    def beat(is_over: Callable[[], bool]) -> None:
        begun.set()
        while not is_over():
            pass
        ended.append(None)

    with SYSTEM.beat(0.001, beat):
        assert begun.wait(60)
    assert ended == [None]


def test_a_body_that_ends_before_the_first_beat_does_not_wait_for_it() -> None:
    beats: list[None] = []
    with pytest.raises(ValueError, match="inside"), SYSTEM.beat(10.0**6, lambda _: beats.append(None)):
        raise ValueError("inside")
    with Environment().beat(0.0, lambda _: beats.append(None)):
        pass
    assert beats == []


def test_an_environment_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(SYSTEM)) == SYSTEM
