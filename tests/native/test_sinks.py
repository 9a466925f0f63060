"""A block whose pages are passed on as they are made is the same, byte by byte, as one that was held in memory."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pyarrow.parquet as pq
from arrow_rows import tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.parquet import sinks
from tblctl.tableformat.parquet.block_writer import BlockEncoder, PreparedRows
from tblctl.tableformat.parquet.sinks import HeldPages, StreamedPages

from ..merger.blocks import lake
from ..model.strategies import SCHEMAS


class Received:
    """An upload that holds what it gets."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data) -> None:
        self.data += memoryview(data).cast("B")

    def finish(self) -> None: ...

    def abandon(self) -> None: ...


def both_ways(here, windows):
    """Return the file of windows of rows, held and streamed, and the bytes passed on before the end."""
    held, upload = HeldPages(), Received()
    ends = []
    for sink in (held, StreamedPages(upload)):
        encoder = BlockEncoder(here.io.layout, None, sink)
        for rows in windows:
            sizes = [min(50, rows.num_rows - start) for start in range(0, rows.num_rows, 50)]
            encoder.add(PreparedRows.of(here.conformed(rows), sizes, here.io.layout, None))
        ends.append(encoder.end().to_pybytes())
    return held.pages().to_pybytes() + ends[0], bytes(upload.data) + ends[1], len(upload.data)


@given(st.data())
@settings(max_examples=cases(20), suppress_health_check=list(HealthCheck))
def test_streamed_files_are_equal_to_held_ones(data):
    columns = data.draw(SCHEMAS)
    with lake(Schema.create(columns).logical, ()) as here:
        windows = [
            rows
            for _ in range(data.draw(st.integers(1, 3)))
            if (rows := data.draw(tables(here.io.schema.logical, max_rows=120))).num_rows
        ]
        if windows:
            held, streamed, _ = both_ways(here, windows)
            assert held == streamed


def test_pages_are_passed_on_before_the_next_window_and_only_the_end_is_held(monkeypatch):
    monkeypatch.setattr(sinks, "_BUFFER_BYTES", 1_000)
    rng = random.Random(1)
    windows = [pa.table({"v": [rng.random() for _ in range(1_000)]}) for _ in range(4)]
    with lake(windows[0].schema, ()) as here:
        held, streamed, passed = both_ways(here, windows)
        assert held == streamed
        file = pq.ParquetFile(pa.BufferReader(streamed))
        assert passed == len(streamed) - file.metadata.serialized_size - 8
        upload = Received()
        encoder = BlockEncoder(here.io.layout, None, StreamedPages(upload))
        sizes = []
        for rows in windows:
            encoder.add(PreparedRows.of(here.conformed(rows), [1_000], here.io.layout, None))
            sizes.append(len(upload.data))
        assert all(after - before >= 7_000 for before, after in itertools.pairwise([0, *sizes]))
