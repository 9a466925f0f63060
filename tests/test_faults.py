"""The fault tools themselves keep the promises of their docstring."""

from __future__ import annotations

import threading

import pytest
from faults import Faults, Killed, inject, interleavings, kill_points, run_interleaved, storage_calls

from tblctl.tableformat.errors import StorageError
from tblctl.tableformat.storage import Storage


@pytest.fixture
def storage(memory_url):
    return Storage(memory_url)


def test_a_fault_after_a_call_hides_what_happened(storage):
    faults = Faults()
    faults.fail(operation="create", name="snap", nth=2, at="after")
    with inject(faults):
        storage.create("snap/1", b"")
        with pytest.raises(StorageError, match="injected"):
            storage.create("snap/2", b"")
    assert [call.name for call in faults.fired] == ["snap/2"]
    assert None not in storage.modified(["snap/1", "snap/2"])


def test_the_dead_do_nothing_more(storage):
    faults = Faults()
    faults.kill(nth=2)
    with inject(faults):
        storage.write("a", b"")
        for _ in range(3):
            with pytest.raises(Killed):
                storage.write("b", b"")
    assert [at is None for at in storage.modified(["a", "b"])] == [False, True]


def test_a_delete_can_be_killed_in_its_middle(storage):
    names = ["a", "b", "c"]
    states = set()
    for name in names:
        storage.write(name, b"")
    assert [call.names for call in storage_calls(lambda: storage.delete(names))] == [("a",), ("b",), ("c",)]
    for name in names:
        storage.write(name, b"")
    for point in kill_points(lambda: storage.delete(names)):
        for name in names:
            storage.write(name, b"")
        point.kill(lambda: storage.delete(names))
        times = storage.modified(names)
        states.add("".join(name for name, at in zip(names, times, strict=True) if at is None))
    assert states == {"", "a", "ab", "abc"}


def test_a_paused_call_lets_others_pass(storage):
    faults = Faults()
    pause = faults.pause(operation="create", name="x")
    results = []
    with inject(faults):
        slow = threading.Thread(target=lambda: results.append(storage.create("x", b"slow")))
        slow.start()
        pause.wait_until_reached()
        assert storage.create("x", b"quick") is True
        pause.resume()
        slow.join()
    assert results == [False]
    assert storage.read("x") == b"quick"


def test_interleavings_are_all_orders():
    assert sorted(interleavings(a=2, b=1)) == ["aab", "aba", "baa"]
    assert len(interleavings(a=3, b=3)) == 20
    assert len(interleavings(a=1, b=1, c=2)) == 12


def test_the_schedule_decides_who_wins(storage):
    for number, (schedule, winner) in enumerate([("aabb", "a"), ("bbaa", "b"), ("abba", "b"), ("baab", "a")]):

        def write(actor, number=number):
            storage.modified([f"{number}/look"])
            return storage.create(f"{number}/x", actor.encode())

        outcomes = run_interleaved(schedule, {"a": lambda: write("a"), "b": lambda: write("b")})
        assert [actor for actor, outcome in outcomes.items() if outcome.result] == [winner], schedule
        assert storage.read(f"{number}/x") == winner.encode()


def test_an_actor_that_ends_early_gives_its_turns_away(storage):
    def broken():
        storage.read("none")

    outcomes = run_interleaved(
        "abababab", {"a": broken, "b": lambda: [storage.write("x", b"") for _ in range(9)]}
    )
    assert isinstance(outcomes["a"].error, StorageError)
    assert outcomes["b"].error is None
