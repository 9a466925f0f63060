"""Keep what footers say in a cache on this machine, for the next call. A file's entry holds while size and time do."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.folder.layout import Layout
from tblctl.tableformat.folder.listing import Files
from tblctl.tableformat.folder.parts import Part, columns_of
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS
from tblctl.tableformat.storage.file_cache import FileCache

LOG = logging.getLogger("tblctl")

_VERSION = "footers 1"
_STORED = b"stored"
_SETTLED_SECONDS = 2.0
"""Files younger than this are not kept: one that is written again at once may have the same time and size."""

_MOST_BYTES = 2**28


@dataclass(frozen=True, kw_only=True)
class KeptFooters:
    """What is kept of one location.

    Attributes:
        cache: where.
        location: a folder or glob, without secrets.
    """

    cache: FileCache
    location: str

    @property
    def _key(self) -> str:
        return f"{_VERSION} {self.location}"

    def parts(self, files: Files) -> list[Part]:
        """Return what is kept of files, those whose size or time differs left out; nothing if it cannot be read."""
        data = self.cache.get(self._key)
        if data is None:
            return []
        try:
            kept = [_decode(item.as_buffer()) for item in _table(pa.py_buffer(data)).column("part")]
            return [part for part in (_holding(part, files) for part in kept) if len(part.rows)]
        except ARROW_ERRORS as error:
            LOG.warning("what was kept of %s cannot be read: %s", self.location, error)
            return []

    def put(self, parts: list[Part], now_seconds: float) -> None:
        """Keep parts in the place of what was kept. `now_seconds` is the time by this machine's clock."""
        settled = [_settled(part, now_seconds - _SETTLED_SECONDS) for part in parts]
        encoded = [_encode(part) for part in settled if len(part.rows)]
        if encoded and sum(map(len, encoded)) <= _MOST_BYTES:
            data = _stream(pa.table({"part": pa.array(encoded, pa.large_binary())}))
            self.cache.put(self._key, data)


def _settled(part: Part, before_seconds: float) -> Part:
    old = pc.less(part.rows["modified_seconds"], before_seconds)
    return Part(layout=part.layout, rows=part.rows.filter(old))


def _encode(part: Part) -> bytes:
    metadata = {_STORED: part.layout.stored.serialize().to_pybytes()}
    return _stream(part.rows.replace_schema_metadata(metadata))


def _decode(data: pa.Buffer) -> Part:
    rows = _table(data)
    stored = pa.ipc.read_schema(pa.py_buffer((rows.schema.metadata or {})[_STORED]))
    layout = Layout(stored=stored, first=rows["name"][0].as_py())
    expected = columns_of(layout)
    if not rows.schema.equals(expected):
        msg = f"columns {rows.schema.names}, expected {expected.names}"
        raise ValueError(msg)
    return Part(layout=layout, rows=rows.replace_schema_metadata(None))


def _holding(part: Part, files: Files) -> Part:
    """Return the files of a part that are among `files`, with the same size and time."""
    places = pc.index_in(part.rows["name"], files.names).fill_null(-1)
    at = np.asarray(places.combine_chunks())
    rows = part.rows
    same = (at >= 0) & (files.size_bytes[at] == np.asarray(rows["size_bytes"]))
    same &= files.modified_seconds[at] == np.asarray(rows["modified_seconds"])
    return Part(layout=part.layout, rows=rows.filter(pa.array(same)))


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _table(data: pa.Buffer) -> pa.Table:
    found = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
    found.validate(full=True)
    return found
