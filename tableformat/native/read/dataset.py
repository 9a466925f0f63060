"""A snapshot as a pyarrow dataset. Its fragments have guarantees, so that other engines skip blocks.

A fragment's guarantee is a conjunction over its columns. With nulls each side of a range allows null,
`(c >= low or c is null) and (c <= high or c is null)`: engines prune by this form, and never by `range or null`. Floats
have guarantees only without NaN, since engines place NaN differently.

Blocks of another schema (renamed, retyped or re-added columns) cannot be matched by name, and Parquet keeps only
dictionaries of text. Such blocks are exposed as Arrow files of the present schema. They are converted in memory when
opened.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs
import pyarrow.ipc

from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
from tblctl.tableformat.model.schema.field_ids import field_id
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import (
    child_fields,
    is_any_binary,
    is_any_string,
    is_orderable,
    read_type,
    statistic_type,
)
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.read.handed_out import verify_block
from tblctl.tableformat.native.read.metadata import ADDRESS_COLUMNS, BlockMetadata, block_metadata
from tblctl.tableformat.parquet.opened import BlockAddress
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.storage import Storage


class _Kind(enum.Enum):
    """How a block is exposed."""

    AS_IT_IS = enum.auto()
    CONVERTED = enum.auto()  # as an Arrow file


def to_dataset(storage: Storage, snapshot: Snapshot) -> pads.Dataset:
    """Return the rows of a snapshot as a dataset. Reads metadata and the footers of all blocks, one request each.

    The footer of every exposed file was verified here; a footer without checksums, of an older tblctl, was checked.
    Engines verify the checksums of pages as they read. These leave out page headers: an engine may miss damage there,
    or raise its own error (not for tables in memory, whose blocks are verified whole here). A Python file that verifies
    more is not exposed: engines that hold Python's lock while they wait for Arrow's threads would hang (seen with
    DuckDB 2.0).

    Raises:
        CorruptTableError: metadata or a block's footer is damaged.
    """
    metadata = block_metadata(storage, snapshot)
    if len(metadata) == 0:
        return pads.dataset(pa.Table.from_batches([], snapshot.schema.read_schema))
    leaves = [leaf for leaf in snapshot.schema.leaves if _is_promised(leaf)]
    floats = [leaf for leaf in snapshot.schema.leaves if pa.types.is_floating(statistic_type(leaf.type))]
    metadata.fetch_statistics([*leaves, *floats], ADDRESS_COLUMNS)
    kinds = _kinds(metadata, snapshot, floats)
    guarantees = _guarantees(metadata, leaves)
    addresses = metadata.addresses(np.arange(len(metadata)), snapshot.column_ids)
    as_they_are = [item for item, kind in zip(addresses, kinds, strict=True) if kind is _Kind.AS_IT_IS]
    buffers = in_parallel(lambda item: verify_block(storage, item), as_they_are, threads=IO_THREADS)
    held = {
        item.path: buffer for item, buffer in zip(as_they_are, buffers, strict=True) if buffer is not None
    }
    _, root = storage.arrow_filesystem()
    children = [
        _fragments(
            storage,
            snapshot.schema,
            kind,
            root,
            [(addresses[row], guarantees[row]) for row in rows],
            held=held,
        )
        for kind in _Kind
        if (rows := [row for row, mine in enumerate(kinds) if mine is kind])
    ]
    return children[0] if len(children) == 1 else pads.UnionDataset(snapshot.schema.read_schema, children)


def _kinds(metadata: BlockMetadata, snapshot: Snapshot, floats: Sequence[Leaf]) -> list[_Kind]:
    """Return how each block is exposed.

    An older block that may have NaN is converted: engines would believe that its row groups' bounds include all values.
    """
    by_name = {key: _readable_by_name(schema, snapshot.schema) for key, schema in snapshot.schemas.items()}
    sealed = metadata.values("footer_bytes").is_valid().to_pylist()
    with_nan = np.zeros(len(metadata), dtype=bool)
    for leaf in floats:
        statistics = metadata.column(leaf)
        with_nan |= True if statistics is None or statistics.nan_count is None else statistics.nan_count != 0
    kinds = []
    for schema_id, is_sealed, has_nan in zip(
        metadata.values("schema_id").to_pylist(), sealed, with_nan.tolist(), strict=True
    ):
        if not by_name.get(schema_id) or (has_nan and not is_sealed):
            kinds.append(_Kind.CONVERTED)
        else:
            kinds.append(_Kind.AS_IT_IS)
    return kinds


def _fragments(
    storage: Storage,
    schema: Schema,
    kind: _Kind,
    root: str,
    blocks: Sequence[tuple[BlockAddress, pc.Expression]],
    *,
    held: Mapping[str, pa.Buffer],
) -> pads.Dataset:
    converted = kind is _Kind.CONVERTED
    places = {
        address.path: f"{root.rstrip('/')}/{address.path}" if root else address.path for address, _ in blocks
    }
    if converted:
        addresses = {places[address.path]: address for address, _ in blocks}
        system = pyarrow.fs.PyFileSystem(_ConvertingHandler(storage, addresses, schema))
    else:
        system, _ = storage.arrow_filesystem()
    options = pads.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = (
        pads.IpcFileFormat() if converted else pads.ParquetFileFormat(default_fragment_scan_options=options)
    )
    fragments = [
        form.make_fragment(held[address.path], partition_expression=guarantee)
        if address.path in held
        else form.make_fragment(
            places[address.path], system, guarantee, file_size=None if converted else address.size_bytes
        )
        for address, guarantee in blocks
    ]
    return pads.FileSystemDataset(fragments, schema.read_schema, form, system)


def _is_promised(leaf: Leaf) -> bool:
    kind = leaf.type
    return (
        len(leaf.path) == 1
        and is_orderable(kind)
        and not pa.types.is_dictionary(kind)
        and not pa.types.is_float16(kind)
        and not pa.types.is_boolean(kind)
    )


def _guarantees(metadata: BlockMetadata, leaves: list[Leaf]) -> list[pc.Expression]:
    """Return the guarantee of every block from its statistics."""
    parts: list[list[pc.Expression]] = [[] for _ in range(len(metadata))]
    for leaf in leaves:
        statistics = metadata.column(leaf)
        if statistics is None:
            continue
        kind = read_type(leaf.type)
        low, high = statistics.min.cast(kind), statistics.max.cast(kind)
        column = pc.field(leaf.name)
        is_null = column.is_null()
        all_null = (statistics.null_count == metadata.row_count).tolist()
        some_null = (statistics.null_count != 0).tolist()
        some_nan = [False] * len(metadata)
        if statistics.nan_count is not None:
            some_nan = (statistics.nan_count != 0).tolist()
        for row, (least, greatest) in enumerate(zip(low, high, strict=True)):
            if all_null[row]:
                parts[row].append(is_null)
                continue
            if some_nan[row]:
                continue
            sides = []
            if least.is_valid:
                sides.append(column >= least)
            if greatest.is_valid:
                sides.append(column <= greatest)
            parts[row] += [side | is_null for side in sides] if some_null[row] else sides
    return [_conjunction(items) for items in parts]


def _conjunction(items: list[pc.Expression]) -> pc.Expression:
    result = pc.scalar(True) if not items else items[0]  # noqa: FBT003
    for item in items[1:]:
        result &= item
    return result


def _readable_by_name(written: Schema, now: Schema) -> bool:
    """Return whether reading a file of the schema `written` by name gives the columns of `now`.

    Every column must have the same id, name and type in both schemas, or be absent from the file.
    """
    then = {item.name: item for item in written.arrow}
    ids = {field_id(item) for item in written.arrow}
    for item in now.arrow:
        old = then.get(item.name)
        if old is None:
            if field_id(item) in ids:
                return False
            continue
        same = field_id(old) == field_id(item) and old.type.equals(item.type, check_metadata=True)
        if not same or not _survives_parquet(item.type):
            return False
    return True


def _survives_parquet(kind: pa.DataType, *, nested: bool = False) -> bool:
    """Return whether pyarrow reads a type from Parquet unchanged.

    It keeps only dictionaries of text, and none inside other types (we write those as plain values). Fixed-size lists
    inside other types can expose nulls that their parents hide. pyarrow refuses to view these as a non-nullable type.
    """
    if nested and pa.types.is_fixed_size_list(kind):
        return False
    if not pa.types.is_dictionary(kind):
        return all(_survives_parquet(child.type, nested=True) for child in child_fields(kind))
    return not nested and (is_any_string(kind.value_type) or is_any_binary(kind.value_type))


class _ConvertingHandler(pyarrow.fs.FileSystemHandler):  # type: ignore[misc]
    """Files of blocks in the table's present schema, by the names of their fragments. Made when opened."""

    def __init__(self, storage: Storage, addresses: dict[str, BlockAddress], schema: Schema) -> None:
        self._storage = storage
        self._addresses = addresses
        self._schema = schema

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def get_type_name(self) -> str:
        return "tblctl"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[pyarrow.fs.FileInfo]:
        return [pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.File) for path in paths]

    def get_file_info_selector(self, _selector: Any) -> list[pyarrow.fs.FileInfo]:
        return []

    def open_input_file(self, path: str) -> pa.NativeFile:
        with BlockFile(self._storage, self._addresses[path]) as file:
            projection = file.projection(self._schema)
            rows = file.read(range(file.metadata.num_row_groups), projection, use_threads=False)
        sink = pa.BufferOutputStream()
        # One dictionary for each column: Arrow files cannot replace a dictionary half-way.
        with pa.ipc.new_file(
            sink, rows.schema, options=pa.ipc.IpcWriteOptions(unify_dictionaries=True)
        ) as writer:
            writer.write_table(rows)
        return pa.BufferReader(sink.getvalue())

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def _refuse(self, *_: Any) -> Any:
        msg = "a dataset of tblctl is read only"
        raise OSError(msg)

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse
