"""The costs of a merge of lineitem on S3: requests by kind, bytes on the wire, time against the local disk.

All requests go to a separate MinIO (or moto, which is slower, if MinIO is not installed), through the proxy of the
tests. The proxy runs in its own process, counts requests, and can delay each one by the latency of a real object store.
It takes processor time that a network would not take. So compare such runs with each other, not with the disk.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import tblctl
from benchmarks.common import ROOT, Report, lineitem, main, scratch
from tblctl.tableformat.model.options import TableOptions

sys.path.append(str(ROOT / "tests"))
from proxy import CuttingProxy, Exchange
from servers import S3Server, find_minio, run_minio, run_moto

KEY = "l_shipdate"
LATENCIES_MS = (0, 20)
"""20 ms: about the time of S3 to the first byte within a region."""

KINDS = ("GET", "PUT", "HEAD", "LIST", "POST", "DELETE")
SHAPES = {"61 blocks of 100,000 rows": 100_000, "7 blocks of 1,000,000 rows": 1_000_000}


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Requests by kind, and the bytes of objects that were read and written."""

    requests: Counter[str]
    read_bytes: int
    written_bytes: int


def traffic(exchanges: Sequence[Exchange]) -> Traffic:
    """Sum up requests. POST counts uploads in parts and deletes of many objects."""
    kinds = Counter(kind_of(item) for item in exchanges)
    return Traffic(
        requests=kinds,
        read_bytes=sum(item.reply_bytes for item in exchanges if kind_of(item) == "GET"),
        written_bytes=sum(item.request_bytes for item in exchanges if item.method == "PUT"),
    )


def kind_of(exchange: Exchange) -> str:
    """Return the kind under which a request is billed."""
    asked = parse_qs(urlsplit(exchange.path).query, keep_blank_values=True)
    return "LIST" if exchange.method == "GET" and "list-type" in asked else exchange.method


class Merged(NamedTuple):
    """One merge: its time, and its traffic if that was counted."""

    seconds: float
    found: Traffic | None


class Wire:
    """The proxy in its own process."""

    def __init__(self, end: Connection, endpoint_url: str) -> None:
        self._end = end
        self.endpoint_url = endpoint_url

    def begin(self, latency_ms: float) -> None:
        """Reset the counts, and delay requests from here on."""
        self._end.send(latency_ms)
        self._end.recv()

    def taken(self) -> Traffic:
        """Return the counts since the reset."""
        self._end.send(None)
        found: Traffic = self._end.recv()
        return found


@contextmanager
def wire(server: S3Server) -> Iterator[Wire]:
    """Start the proxy before a server."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_forward, args=(theirs, server.host, server.port), daemon=True)
    process.start()
    try:
        yield Wire(mine, mine.recv())
    finally:
        mine.close()
        process.join(10)


def _forward(end: Connection, host: str, port: int) -> None:
    with CuttingProxy(host, port) as proxy:
        end.send(proxy.endpoint_url)
        while True:
            try:
                latency_ms = end.recv()
            except EOFError:
                return
            if latency_ms is None:
                end.send(traffic(proxy.exchanges))
            else:
                proxy.clear()
                proxy.latency_seconds = latency_ms / 1000
                end.send(None)


def measure(report: Report, tiny: bool) -> None:
    scale, runs, rounds = ("0.001", 1, 1) if tiny else ("1", 1, 2)
    shapes = list(SHAPES.items())[-1:] if tiny else SHAPES.items()
    serving = run_minio if find_minio() else run_moto
    with scratch() as folder, serving() as server, wire(server) as counted:
        report.line(
            f"lineitem at scale {scale} on {server.kind}, key {KEY}, row groups of "
            f"{TableOptions().row_group_rows:,} rows, merged as one group in this process; {runs} runs"
        )
        for title, rows in shapes:
            block_rows = max(1, round(rows * float(scale)))
            near = make_table(str(folder / title), {}, lineitem(scale), block_rows)
            options = server.storage_options | {"endpoint_url": counted.endpoint_url}
            far = make_table(server.location().url, options, lineitem(scale), block_rows)
            disk = [merged(near).seconds for _ in range(rounds)][-runs:]
            report.begin(f"{title}, {stored_bytes(far) / 2**20:.0f} MiB")
            report.seconds("seconds on the local disk", disk)
            for latency_ms in LATENCIES_MS:
                runs_over = [merged(far, counted, latency_ms) for _ in range(rounds)][-runs:]
                seconds = [one.seconds for one in runs_over]
                report.seconds(f"seconds over the wire, {latency_ms} ms a request", seconds)
                ratio = statistics.median(seconds) / statistics.median(disk)
                report.figure("  against the local disk", ratio, "x")
            assert runs_over[-1].found is not None
            write_traffic(report, runs_over[-1].found, stored_bytes(far))


def make_table(url: str, storage_options: dict[str, object], source: object, block_rows: int) -> tblctl.Table:
    """Make a table of sorted blocks that all span nearly all keys."""
    table = tblctl.create(
        url,
        tblctl.read_schema(source),
        cluster_by=KEY,
        options={"block_rows": block_rows, "sort_scope": "block"},
        storage_options=storage_options,
    )
    table.append(source)
    table.set_options({"block_rows": max(TableOptions().block_rows, block_rows)})
    return table


def stored_bytes(table: tblctl.Table) -> int:
    return int(table.snapshot.bytes)


def merged(table: tblctl.Table, counted: Wire | None = None, latency_ms: int = 0) -> Merged:
    """Merge all blocks, then restore the table, which does not count."""
    before = table.snapshot.sequence
    if counted:
        counted.begin(latency_ms)
    started = time.perf_counter()
    outcome = table.recluster(policy="full", engine="local")
    seconds = time.perf_counter() - started
    assert outcome.committed_groups == 1, outcome
    found = counted.taken() if counted else None
    table.rollback(before)
    return Merged(seconds, found)


def write_traffic(report: Report, found: Traffic, needed_bytes: int) -> None:
    """Write the traffic of one merge, in relation to the size of its blocks."""
    gib = needed_bytes / 2**30
    for kind in KINDS:
        report.figure(
            f"{kind} requests", found.requests[kind] / gib, f"a GiB ({found.requests[kind]:,} in all)"
        )
    report.figure("all requests", sum(found.requests.values()) / gib, "a GiB")
    report.figure("bytes read / bytes of the blocks", found.read_bytes / needed_bytes, "x")
    report.figure("bytes written / bytes of the blocks", found.written_bytes / needed_bytes, "x")


if __name__ == "__main__":
    main("requests", measure)
