"""Blocks on S3 are read in few requests, ahead of time, and every request is sent again after errors that pass."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tblctl
from tblctl.tableformat.parquet.opened import Tails

ROWS = 60_000
COLUMNS = 8
BLOCKS = 4


def rows(block):
    """Return rows that do not compress: a column of them takes 8 bytes a row."""
    columns = {"k": pa.array([(row * BLOCKS + block) * 7 for row in range(ROWS)])}
    for number in range(1, COLUMNS):
        factor = 2654435761 * (number + block + 1)
        columns[f"c{number}"] = pa.array([row * row * factor % 2**62 for row in range(ROWS)])
    return pa.table(columns)


@pytest.fixture(scope="module")
def blocks():
    return [rows(block) for block in range(BLOCKS)]


@pytest.fixture
def table(proxied, blocks):
    made = tblctl.create(
        proxied.url,
        blocks[0].schema,
        cluster_by="k",
        options={"row_group_rows": 10_000},
        storage_options=proxied.storage_options,
    )
    for block in blocks:
        made.append(block)
    return made


def reads(proxy, *, method="GET"):
    return [item for item in proxy.exchanges if item.method == method and "/data/" in item.path]


def keys(table):
    return table.scan(columns=["k"]).to_arrow()["k"].to_pylist()


EVERY_KEY = sorted(number * 7 for number in range(ROWS * BLOCKS))


def test_a_merge_reads_the_key_column_twice_and_all_else_once(proxy, table):
    needed_bytes = table.snapshot.bytes
    proxy.clear()
    assert table.recluster(policy="full").blocks_in == BLOCKS
    assert len(reads(proxy)) <= BLOCKS * (1 + 6 + 6), "footer; keys of each row group; rows of each row group"
    assert sum(item.reply_bytes for item in reads(proxy)) <= (1 + 1 / COLUMNS) * 1.02 * needed_bytes
    proxy.clear()
    assert keys(table) == EVERY_KEY


def test_a_scan_of_one_column_takes_two_requests_for_each_block(proxy, table):
    proxy.clear()
    assert table.scan(columns=["c3"]).to_arrow().num_rows == ROWS * BLOCKS
    assert len(reads(proxy)) <= 2 * BLOCKS + BLOCKS


@pytest.mark.parametrize("memory_bytes", [16 << 20, 1 << 30])
def test_a_merge_through_a_network_that_fails_now_and_then_ends_right(proxy, table, memory_bytes):
    proxy.clear()
    for nth, action in enumerate(("drop", "reply", "cut reply", "reset")):
        proxy.on("GET", "/data/", action=action, nth=3 * nth + 1)
    proxy.on("PUT", "/data/", action="reply", status=503, times=2)
    proxy.on("PUT", "/data/", action="reset", nth=3)
    outcome = table.recluster(policy="full", options={"memory_bytes": memory_bytes})
    assert (outcome.committed_groups, outcome.failed_groups) == (1, 0)
    assert sum(item.action != "forward" for item in proxy.exchanges) == 4 + 3
    proxy.clear()
    assert keys(table) == EVERY_KEY


def test_row_groups_that_are_copied_take_one_request_each(proxy, proxied):
    first = pa.table({"k": range(60_000), "v": [row * row * 2654435761 % 2**62 for row in range(60_000)]})
    second = first.set_column(0, "k", pa.array(range(59_000, 119_000)))
    table = tblctl.create(
        proxied.url,
        first.schema,
        cluster_by="k",
        options={"row_group_rows": 10_000, "block_rows": 60_000},
        storage_options=proxied.storage_options,
    )
    table.append(first)
    table.append(second)
    proxy.clear()
    assert table.recluster(policy="full").blocks_in == 2
    assert len(reads(proxy)) <= 2 * (2 + 6) + 4, (
        "ends and keys; row groups, copied or not; those around the cut"
    )
    proxy.clear()
    assert sorted(keys(table)) == sorted([*range(60_000), *range(59_000, 119_000)])


def test_a_block_that_may_not_be_read_is_asked_for_once(proxy, table):
    victim = table.files()[0].path
    proxy.on("GET", victim, action="reply", status=403, code="AccessDenied", times=1000)
    outcome = table.recluster(policy="full")
    assert outcome.failed_groups == 1
    assert "access denied" in outcome.groups[0].error
    assert len([item for item in proxy.exchanges if item.action == "reply"]) == 1


def test_a_footer_larger_than_expected_is_read_all_the_same(proxied, proxy):
    columns = {f"column_{number}": pa.array([number, 2]) for number in range(1_500)}
    table = tblctl.create(proxied.url, pa.table(columns).schema, storage_options=proxied.storage_options)
    table.append(pa.table(columns))
    assert table.snapshot.bytes > 128 << 10
    proxy.clear()
    assert table.scan().to_arrow().num_rows == 2
    assert len(reads(proxy)) <= 3


def test_ends_of_blocks_are_kept_until_they_would_take_too_much():
    tails = Tails(most_bytes=10)
    tails.keep("a", b"123456")
    tails.keep("b", b"12345")
    tails.keep("c", b"1234")
    assert [tails.get(name) for name in "abc"] == [b"123456", None, b"1234"]
    tails.drop("a")
    tails.drop("never kept")
    tails.keep("b", b"12345")
    assert tails.get("b") == b"12345"
