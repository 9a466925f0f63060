"""How ranges become requests, and that fetched ranges are read from memory once and then freed."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.tableformat.storage.ranges import RangedInput, RangeFile, joined

CONTENT = bytes(range(256)) * 40
RANGES = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60)).map(lambda item: (item[0], sum(item))))


@pytest.mark.parametrize(
    ("ranges", "requests"),
    [
        pytest.param([], [], id="none"),
        pytest.param([(10, 20), (0, 5)], [(0, 20)], id="near ones share a request"),
        pytest.param([(0, 5), (16, 20)], [(0, 5), (16, 20)], id="over a wider gap they do not"),
        pytest.param([(0, 30), (5, 8)], [(0, 30)], id="one within another"),
        pytest.param([(0, 250)], [(0, 83), (83, 166), (166, 250)], id="a long one is cut evenly"),
        pytest.param([(0, 60), (65, 120)], [(0, 60), (60, 120)], id="and so are many near ones"),
    ],
)
def test_ranges_become_few_requests_of_bounded_length(ranges, requests):
    assert joined(ranges, gap_bytes=10, most_bytes=100) == requests


@given(RANGES, st.integers(0, 40), st.integers(1, 200))
def test_requests_cover_what_is_asked_for_and_beyond_it_nothing_but_gaps(ranges, gap_bytes, most_bytes):
    requests = joined(ranges, gap_bytes=gap_bytes, most_bytes=most_bytes)
    fetched = [place for start, stop in requests for place in range(start, stop)]
    wanted = {place for start, stop in ranges for place in range(start, stop)}
    assert len(fetched) == len(set(fetched))
    assert wanted <= set(fetched)
    assert all(0 < stop - start <= most_bytes for start, stop in requests)
    extra = sorted(set(fetched) - wanted)
    for place in extra:
        assert any(near in wanted for near in range(place + 1, place + gap_bytes + 1))
        assert any(near in wanted for near in range(place - gap_bytes, place))


class Store:
    """Records requests. Answers at once, or on command."""

    def __init__(self, *, at_once=True):
        self.requests = []
        self.futures = []
        self._at_once = at_once

    def fetch(self, start, end):
        self.requests.append((start, end))
        self.futures.append(Future())
        if self._at_once:
            self.futures[-1].set_result(CONTENT[start:end])
        return self.futures[-1]


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def file(store):
    with RangedInput(RangeFile(len(CONTENT), store.fetch), mode="r") as opened:
        yield opened


def test_what_was_fetched_ahead_is_read_from_memory(store, file):
    with file.ranges.begin([(100, 200), (300, 400)]):
        assert store.requests == [(100, 400)]
        assert file.read_at(100, 100) == CONTENT[100:200]
        assert file.read_at(50, 350) == CONTENT[350:400]
        assert store.requests == [(100, 400)]
    assert file.read_at(100, 100) == CONTENT[100:200]
    assert store.requests[1:] == [(100, 200)], "after the context it is no longer held"


def test_bytes_are_handed_out_without_a_copy(store, file):
    with file.ranges.begin([(0, 1_000)]):
        first, second = (file.read_buffer(10) for _ in range(2))
        assert second.address - first.address == 10


def test_a_read_may_begin_in_one_request_and_end_in_another_or_beyond_all(store):
    ranges = RangeFile(len(CONTENT), store.fetch)
    with ranges.keep(50, CONTENT[50:60]), ranges.keep(60, CONTENT[60:70]), ranges.keep(80, CONTENT[80:90]):
        ranges.seek(45)
        assert ranges.read(50) == CONTENT[45:95]
    assert store.requests == [(45, 50), (70, 80), (90, 95)]


def test_what_is_in_memory_is_not_fetched_again(store, file):
    with file.ranges.begin([(0, 100)]), file.ranges.begin([(20, 40), (5_000_000, 5_000_001)]):
        assert store.requests == [(0, 100), (5_000_000, 5_000_001)]


def test_closing_calls_off_what_is_still_on_its_way():
    store = Store(at_once=False)
    file = RangedInput(RangeFile(len(CONTENT), store.fetch), mode="r")
    file.ranges.begin([(0, 10)])
    kept = file.ranges.begin([(2_000_000, 2_000_010)])
    kept.close()
    assert [future.cancelled() for future in store.futures] == [False, True]
    file.close()
    assert all(future.cancelled() for future in store.futures)


def test_an_object_that_ends_early_reads_as_what_there_is():
    store = Store()
    ranges = RangeFile(len(CONTENT) + 10, store.fetch)
    ranges.seek(-20, 2)
    assert ranges.read() == CONTENT[-10:]


def test_a_request_that_failed_is_raised_where_it_is_read():
    store = Store(at_once=False)
    with RangedInput(RangeFile(len(CONTENT), store.fetch), mode="r") as file, file.ranges.begin([(0, 10)]):
        store.futures[0].set_exception(PermissionError("no"))
        with pytest.raises(PermissionError, match="no"):
            file.read_at(10, 0)
