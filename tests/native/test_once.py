"""Work done only once: a recluster opens a block once, the head is decoded once, a condition is resolved once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from faults import Call, storage_calls
from pyiceberg import expressions as ice

import tblctl
from tblctl.tableformat.native.log import head
from tblctl.tableformat.parquet.opened import IdleBlocks
from tblctl.tableformat.predicate import resolve

BLOCKS = 6
ROWS = 200


@pytest.fixture
def location(tmp_path) -> str:
    """Return the location of a table whose blocks all overlap, with several row groups each."""
    location = str(tmp_path / "table")
    table = tblctl.create(location, "k: int64, v: string", cluster_by="k", options={"row_group_rows": 50})
    for block in range(BLOCKS):
        keys = [row * BLOCKS + block for row in range(ROWS)]
        table.append(pa.table({"k": keys, "v": [f"v{key}" for key in keys]}))
    return location


@contextmanager
def counted(patch: pytest.MonkeyPatch, module: Any, name: str) -> Iterator[list[tuple[Any, ...]]]:
    """Record the arguments of every call of a function while open."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(module, name)
    with patch.context() as inner:
        inner.setattr(module, name, lambda *given: calls.append(given) or real(*given))
        yield calls


def opened_blocks(calls: list[Call]) -> Counter[str]:
    return Counter(call.name for call in calls if call.operation == "open" and call.name.startswith("data/"))


def test_a_recluster_opens_each_block_once_and_decodes_the_head_once(location, monkeypatch):
    blocks = {block.path for block in tblctl.open(location).files()}
    newest = tblctl.open(location).snapshot.sequence
    with counted(monkeypatch, head, "decode") as decoded:
        calls = storage_calls(lambda: tblctl.open(location).recluster(policy="full"))
    assert opened_blocks(calls) == dict.fromkeys(blocks, 1)
    assert [sequence for _, sequence in decoded] == [newest]
    assert tblctl.open(location).scan().to_arrow()["k"].to_pylist() == list(range(BLOCKS * ROWS))


WAYS: dict[str, Callable[[tblctl.Table, Any], Any]] = {
    "scan": lambda table, where: table.scan(where).to_arrow(),
    "scan as a stream": lambda table, where: table.scan(where).to_reader().read_all(),
    "explain": lambda table, where: table.scan(where).explain(),
    "delete": lambda table, where: table.delete(where),
    "update": lambda table, where: table.update({"v": "new"}, where),
    "overwrite": lambda table, where: table.overwrite(pa.table({"k": [7], "v": ["x"]}), where),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_condition_is_resolved_once_however_many_blocks_are_read(location, monkeypatch, way):
    condition = ice.And(ice.GreaterThanOrEqual("k", 11), ice.LessThan("k", ROWS * BLOCKS - 11))
    with counted(monkeypatch, resolve, "resolve") as resolved:
        WAYS[way](tblctl.open(location), condition)
    assert len(resolved) == 1


class File:
    """A fake open block. Records whether it was closed."""

    def __init__(self, footer_memory_bytes: int = 1) -> None:
        self.footer_memory_bytes = footer_memory_bytes
        self.is_closed = False
        self.source = self

    def close(self) -> None:
        self.is_closed = True


def test_idle_blocks_are_closed_when_they_are_too_many_and_the_first_goes_first():
    idle, files = IdleBlocks(most_files=2), [File() for _ in range(3)]
    for number, file in enumerate(files):
        idle.keep(str(number), file)
    assert [file.is_closed for file in files] == [True, False, False]
    assert [idle.take(str(number)) for number in range(3)] == [None, *files[1:]]
    assert idle.take("1") is None, "it was taken"


def test_idle_blocks_are_closed_when_their_footers_take_too_much():
    idle, small, large = IdleBlocks(most_bytes=10), File(4), File(8)
    idle.keep("small", small)
    idle.keep("large", large)
    assert (small.is_closed, large.is_closed) == (True, False)
    huge = File(11)
    idle.keep("huge", huge)
    assert huge.is_closed
    assert large.is_closed


def test_of_a_block_that_is_kept_twice_one_stays_open():
    idle, first, second = IdleBlocks(), File(), File()
    idle.keep("a", first)
    idle.keep("a", second)
    assert (first.is_closed, second.is_closed) == (True, False)
    assert idle.take("a") is second
