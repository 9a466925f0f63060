"""Objects of the native format, and calls that parse them.

Their checksums are made right after they were changed: whoever can write to a table can do that, too.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from damage import built

import tblctl
from tblctl.errors import CorruptTableError, InvalidDataError, InvalidSchemaError
from tblctl.selector.plan import Plan
from tblctl.tableformat.folder.footers import read_parts
from tblctl.tableformat.folder.kept import KeptFooters
from tblctl.tableformat.folder.listing import Files
from tblctl.tableformat.folder.version import FolderVersion
from tblctl.tableformat.import_lists import COLUMNS, encode_import_list, read_import_list
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.model.snapshot import ImportList, SegmentRef
from tblctl.tableformat.native.blocks import known_ids
from tblctl.tableformat.native.log.head import load_head
from tblctl.tableformat.native.log.names import (
    checked_block_path,
    checked_record_path,
    checked_segment_path,
    claim_of,
    claim_path,
    is_leftover,
    plan_of,
    plan_path,
    sequence_of,
)
from tblctl.tableformat.native.log.segment_reader import blocks_of, read_segment
from tblctl.tableformat.native.log.snapshot_file import decode
from tblctl.tableformat.native.write.input_rows import open_source
from tblctl.tableformat.parquet.checksum import checksum, checksum_text
from tblctl.tableformat.parquet.footer import (
    TAIL_BYTES,
    footer_of,
    footer_start,
    raw_group,
    read_footer,
)
from tblctl.tableformat.parquet.footer_check import check_footer
from tblctl.tableformat.parquet.opened import BlockAddress, require_safe_footer
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.parquet.thrift import read_struct, write_struct
from tblctl.tableformat.pending import decode_pending
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.names import check_name

SEQUENCE = 12
SNAPSHOT = f"metadata/snapshots/{SEQUENCE:020d}.json"
ID = "0" * 32
SEGMENT = f"metadata/segments/{ID}.parquet"
BLOCK = f"data/{ID}.parquet"


@functools.cache
def table() -> tblctl.Table:
    """Return a table with many types, several blocks and segments, two schemas and tombstones."""
    return tblctl.open(built("sorted"))


def _along_a_curve() -> tblctl.Table:
    """Return a table whose key is a curve, with few boundaries, so that a snapshot is small."""
    rows = pa.table({"a": [1, 2, 7], "b": ["x", "y", None]})
    return tblctl.create("memory://hostile/curve", rows.schema, cluster_by="hilbert(a, b)", sample=rows)


def _by_leaf() -> tblctl.Table:
    """Return a table whose key is a tree."""
    rows = pa.table({"a": [1, 2, 7], "b": ["x", "y", None]})
    Storage("memory://hostile/conditions").write("cuts.sql", b"a < 2; b LIKE 'y%'; b IS NULL; a IN (2, 7)")
    key = "qdtree(file:memory://hostile/conditions/cuts.sql, min_rows=1)"
    return tblctl.create("memory://hostile/tree", rows.schema, cluster_by=key, sample=rows)


@functools.cache
def storage() -> Storage:
    """Return where changed objects are put."""
    return Storage("memory://hostile/objects")


def _numbered(data: bytes) -> bytes:
    """Return a snapshot or tombstone with the sequence of the tests, and without its checksum."""
    document = json.loads(data)
    del document["checksum"]
    text = json.dumps(document | {"sequence": SEQUENCE}, separators=(",", ":"))
    return text.encode()


@functools.cache
def snapshots() -> Sequence[bytes]:
    sources = [table()._native.storage, _along_a_curve()._native.storage, _by_leaf()._native.storage]
    objects = [source.read(item.name) for source in sources for item in source.list("metadata/snapshots/")]
    return [_numbered(data) for data in objects]


def parse_snapshot(data: bytes) -> object:
    body = data.removesuffix(b"}")
    return decode(body + f',"checksum":"{checksum_text(body)}"}}'.encode(), SEQUENCE)


def parse_old_snapshot(data: bytes) -> object:
    return decode(data.replace(b'"min_writer_version":2', b'"min_writer_version":1'), SEQUENCE)


def hints() -> Sequence[bytes]:
    return [b'{"sequence": 5}', b'{"sequence": 1, "more": {"a": [1, 2]}}']


def parse_hint(data: bytes) -> object:
    source = table()._native.storage
    source.write("metadata/latest", data)
    return load_head(source)


# -- sealed Parquet


def sealed(data: bytes) -> tuple[bytes, Seal]:
    """Return a Parquet file with right checksums of its pages and its end, whatever these are."""
    try:
        start = footer_start(pa.py_buffer(data))
        metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + data[start:]))
        count = metadata.num_row_groups * metadata.num_columns
    except (ValueError, OSError, pa.ArrowException):
        start, count = max(0, len(data) - TAIL_BYTES), 0
    sums = np.zeros((min(count, 10_000), 2), "<u8")
    sums[:, 0] = start
    sums[:, 1] = checksum(b"")
    if len(sums):
        sums[0, 1] = checksum(data[:start])
    end = (sums.tobytes() + data[start:]).rjust(12, b"\0")
    return data[:start] + end, Seal(footer_bytes=len(end), footer_checksum=checksum(end))


def _unsealed(data: bytes) -> bytes:
    """Return a Parquet file without the table of checksums before its footer."""
    start = footer_start(pa.py_buffer(data))
    metadata = pq.read_metadata(io.BytesIO(data))
    return data[: start - 16 * metadata.num_row_groups * metadata.num_columns] + data[start:]


@functools.cache
def _segment() -> tuple[SegmentRef, pa.Table]:
    ref = max(table()._native.head().segments, key=lambda item: item.block_count)
    return ref, read_segment(table()._native.storage, ref)


@functools.cache
def segments() -> Sequence[bytes]:
    source, refs = table()._native.storage, list(table()._native.head().segments)
    refs.sort(key=lambda item: item.path != _segment()[0].path)
    return [_unsealed(source.read(ref.path)) for ref in refs]


def parse_segment(data: bytes) -> object:
    return _parse_segment(*sealed(data))


def parse_old_segment(data: bytes) -> object:
    return _parse_segment(data, None)


def _parse_segment(data: bytes, seal: Seal | None) -> object:
    ref, _ = _segment()
    storage().write(SEGMENT, data)
    changed = SegmentRef(
        path=SEGMENT,
        size_bytes=max(1, len(data)),
        block_count=ref.block_count,
        row_count=ref.row_count,
        data_bytes=ref.data_bytes,
        bounds=ref.bounds,
        seal=seal,
    )
    return blocks_of(read_segment(storage(), changed))


@functools.cache
def _block() -> Block:
    return _blocks()[0]


def _blocks() -> tuple[Block, ...]:
    return blocks_of(_segment()[1])


@functools.cache
def blocks() -> Sequence[bytes]:
    return [_unsealed(table()._native.storage.read(block.path)) for block in _blocks()[:3]]


def parse_block(data: bytes) -> object:
    """Read it as `check --deep` does: what this accepts ends no reader's process."""
    return _parse_block(*sealed(data))


def parse_old_block(data: bytes) -> object:
    return _parse_block(data, None)


def _parse_block(data: bytes, seal: Seal | None) -> object:
    storage().write(BLOCK, data)
    head = table()._native.head()
    schema = head.schemas[_block().schema_id]
    address = BlockAddress(
        path=BLOCK,
        size_bytes=len(data),
        row_count=_block().row_count,
        uncompressed_bytes=_block().uncompressed_bytes,
        column_ids=known_ids(
            BLOCK, _block().schema_id, {key: item.ids for key, item in head.schemas.items()}
        ),
        seal=seal,
    )
    require_safe_footer(storage(), address)
    return read_everything(storage(), address, schema)


def read_everything(at: Storage, address: BlockAddress, schema: object, **more: object) -> object:
    """Read a block's statistics and its rows, and its row groups undecoded."""
    with BlockFile(at, address, **more) as file:
        groups = list(range(file.metadata.num_row_groups))
        for leaf in schema.leaves:
            file.stored_nulls(groups, leaf)
        file.stated_figures(groups, schema.leaves)
        projection = file.projection(schema)
        rows = file.read(groups, projection, use_threads=False)
        rows.validate()  # (text is not checked: Parquet may hold any bytes in it)
        for group in groups:
            file.raw_group(group)
        return rows


@functools.cache
def footers() -> Sequence[bytes]:
    found = [*blocks(), *segments()]
    return [data[footer_start(pa.py_buffer(data)) : -TAIL_BYTES] for data in found]


def parse_thrift(data: bytes) -> object:
    tree, _ = read_struct(data)
    assert read_struct(write_struct(tree))[0] == tree
    return read_footer(data)


def parse_raw_footer(data: bytes) -> object:
    def between(start: int, stop: int) -> pa.Buffer:
        return pa.py_buffer(data[start:stop])

    footer, start = footer_of(between, len(data))
    check_footer(footer, pages_stop=start, row_count=_block().row_count, most_chunk_bytes=1 << 20)
    return [
        raw_group(footer, number, lambda start, size: data[start : start + size])[0]
        for number in range(len(footer[4][1][1]))
    ]


PENDING = plan_path(ID, 86400)


@functools.cache
def pending_plans() -> Sequence[bytes]:
    """Return pending plans without their checksums."""
    found = [
        table().plan(policy=policy, options={"include_unclustered": True}) for policy in ("full", "levels")
    ]
    documents = [{"pending_version": 1, "plan": plan.to_json()} for plan in found]
    return [json.dumps(document, separators=(",", ":")).encode() for document in documents]


def parse_pending_plan(data: bytes) -> object:
    body = data.removesuffix(b"}")
    value = decode_pending(body + f',"checksum":"{checksum_text(body)}"}}'.encode(), PENDING)
    try:
        return Plan.from_json(value).to_json()
    except InvalidDataError as error:  # whoever reads it adds the id
        raise InvalidDataError(f"{PENDING}: {error}") from error


def names() -> Sequence[bytes]:
    return [
        BLOCK.encode(),
        SEGMENT.encode(),
        SNAPSHOT.encode(),
        f"metadata/records/{ID}.json".encode(),
        *_pending_names(),
    ]


def _pending_names() -> list[bytes]:
    return [PENDING.encode(), claim_path(ID, 12, 3).encode()]


def parse_names(data: bytes) -> object:
    """A name that is accepted leads nowhere else, and says the same to all who parse it."""
    name = data.decode("utf-8", "surrogateescape")
    is_leftover(name)
    assert (sequence_of(name) is None) == (name != f"metadata/snapshots/{sequence_of(name) or 0:020d}.json")
    assert (plan := plan_of(name)) is None or name == plan_path(*plan)
    assert (claim := claim_of(name)) is None or name == claim_path(*claim)
    for check in (checked_block_path, checked_segment_path, checked_record_path):
        try:
            accepted = check(name)
        except CorruptTableError as error:
            assert str(error).isprintable()  # noqa: PT017 (any name may be refused)
        else:
            assert accepted.isascii()
            assert ".." not in accepted
    return check_name(name)


# -- files that people append


@functools.cache
def arrow_files() -> Sequence[bytes]:
    names = ["id", "title", "mode", "place", "pairs", "large"]
    rows = table().scan("id < 10").to_arrow().select(names).unify_dictionaries().combine_chunks()
    found = []
    for make in (
        pa.ipc.new_file,
        pa.ipc.new_stream,
    ):  # (not compressed: Arrow believes the lengths that these claim)
        sink = pa.BufferOutputStream()
        with make(sink, rows.schema) as writer:
            writer.write_table(rows)
        found.append(sink.getvalue().to_pybytes())
    return found


def parse_input(kind: str) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        storage().write(f"x.{kind}", data)
        parts = list(open_source(f"x.{kind}", lambda _folder: storage()).read())
        for part in parts:
            part.validate(full=True)
        return parts

    return parse


def _folder_files(data: bytes) -> Files:
    return Files(
        names=pa.array(["x.parquet"], pa.large_string()),
        size_bytes=np.array([len(data)]),
        modified_seconds=np.array([1.0]),
    )


def parse_folder(data: bytes) -> object:
    """Measure a folder of one file by all its columns."""
    storage().write("x.parquet", data)
    files = _folder_files(data)
    return _measured(FolderVersion("folder", files, lambda: read_parts(storage(), files)))


def _measured(version: FolderVersion) -> object:
    try:
        leaves = version.schema.leaves
    except InvalidSchemaError:  # names of columns, or types, that no table can have: it says so
        return None
    return [(version.measured.column(leaf), version.measured.is_exact(leaf)) for leaf in leaves]


IMPORT_LIST = f"metadata/imports/{ID}.arrow"


@functools.cache
def import_lists() -> Sequence[bytes]:
    """Return two lists of imported files."""
    found = []
    for number in (1, 2):
        files = {"path": [f"s3://b/{n}.parquet" for n in range(3)], "size_bytes": [number, 2, 3]}
        rows = pa.table({**files, "modified_us": [0, 1, 2**50]}, schema=COLUMNS)
        found.append(encode_import_list(rows, IMPORT_LIST)[1].to_pybytes())
    return found


def parse_import_list(data: bytes) -> object:
    storage().write(IMPORT_LIST, data)
    ref = ImportList(path=IMPORT_LIST, size_bytes=len(data), checksum=checksum(data), file_count=3)
    return read_import_list(storage(), ref).to_pylist()


@functools.cache
def kept_footers() -> Sequence[bytes]:
    found = []
    for data in blocks():
        storage().write("x.parquet", data)
        kept = KeptFooters(cache=_OneFile(), location="folder")
        kept.put(read_parts(storage(), _folder_files(data)), now_seconds=100.0)
        found.append(kept.cache.data)
    return found


def parse_kept_footers(data: bytes) -> object:
    files = _folder_files(blocks()[0])
    parts = KeptFooters(cache=_OneFile(data), location="folder").parts(files)
    return _measured(FolderVersion("folder", files, lambda: parts)) if parts else None


class _OneFile:
    """A cache of one file, in memory."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def get(self, url: str) -> bytes:
        del url
        return self.data

    def put(self, url: str, data: bytes) -> None:
        del url
        self.data = data
