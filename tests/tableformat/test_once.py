"""Properties that are worked out once."""

from __future__ import annotations

import threading

import pytest

from tblctl.tableformat.once import once

WAIT_SECONDS = 30.0


class Reader:
    def __init__(self, work):
        self.work = work

    @once
    def content(self):
        """What it reads."""
        return self.work()


def test_it_is_worked_out_once_for_each_object():
    numbers = iter(range(10))
    one, other = Reader(numbers.__next__), Reader(numbers.__next__)
    assert [one.content, one.content, other.content, one.content] == [0, 0, 1, 0]


def test_while_one_object_waits_for_the_storage_others_of_its_class_go_on():
    waiting, answered = threading.Event(), threading.Event()

    def wait():
        waiting.set()
        return answered.wait(WAIT_SECONDS)

    slow = Reader(wait)
    thread = threading.Thread(target=lambda: slow.content)
    thread.start()
    assert waiting.wait(WAIT_SECONDS)
    other = Reader(lambda: answered.set() or "read")
    second = threading.Thread(target=lambda: other.content)
    second.start()
    second.join(WAIT_SECONDS / 3)
    assert not second.is_alive()
    thread.join()
    assert slow.content is True


def test_an_error_is_not_kept():
    answers = iter([OSError("lost"), "read"])

    def work():
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    reader = Reader(work)
    with pytest.raises(OSError, match="lost"):
        _ = reader.content
    assert reader.content == "read"


def test_it_keeps_its_text():
    assert Reader.content.__doc__ == "What it reads."
