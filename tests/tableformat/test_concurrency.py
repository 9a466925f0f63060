"""Work that begins before its result is needed."""

from __future__ import annotations

import threading

import pytest

from tblctl.tableformat.concurrency import ahead


def test_results_come_in_order_while_as_many_threads_are_ahead() -> None:
    begun: list[int] = []
    both = threading.Barrier(2, timeout=30)

    def work(item: int) -> int:
        begun.append(item)
        if item < 2:
            both.wait()  # neither ends alone
        return 10 * item

    found = ahead(work, range(5), threads=2)
    assert begun == []
    assert next(found) == 0
    assert set(begun) <= {0, 1, 2}
    assert list(found) == [10, 20, 30, 40]


def test_a_failure_is_raised_in_its_turn() -> None:
    found = ahead(lambda item: 1 // item, [1, 0, 1], threads=1)
    assert next(found) == 1
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_closing_stops_what_has_not_begun() -> None:
    begun: list[int] = []
    found = ahead(begun.append, range(100), threads=1)
    next(found)
    found.close()
    assert len(begun) <= 3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tblctl")]
