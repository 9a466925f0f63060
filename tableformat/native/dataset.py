"""A snapshot as a pyarrow dataset whose fragments say what they hold, so that other engines skip blocks.

A fragment's guarantee is a conjunction over its columns. With nulls each side of a range allows for null,
`(c >= low or c is null) and (c <= high or c is null)`: engines prune by that form, and never by `range or null`. Floats
are promised only where no NaN is, since engines place NaN differently.

Blocks written under another schema (renamed, retyped or re-added columns) cannot be matched by name, and Parquet keeps
only dictionaries of text: such blocks are handed out as Arrow files of the present schema, converted in memory when
one is opened.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs
import pyarrow.ipc

from tblctl.tableformat.model.field_ids import field_id
from tblctl.tableformat.model.schema import Leaf, Schema
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.model.types import (
    child_fields,
    is_any_binary,
    is_any_string,
    is_orderable,
    read_type,
)
from tblctl.tableformat.native.block_file import BlockAddress, BlockFile
from tblctl.tableformat.native.metadata import BlockMetadata, block_metadata
from tblctl.tableformat.projection import Projection
from tblctl.tableformat.storage import Storage


def to_dataset(storage: Storage, snapshot: Snapshot) -> pads.Dataset:
    """Return the rows of a snapshot as a dataset; nothing is read but metadata."""
    metadata = block_metadata(storage, snapshot)
    if len(metadata) == 0:
        return pads.dataset(pa.Table.from_batches([], snapshot.schema.read_schema))
    leaves = [leaf for leaf in snapshot.schema.leaves if _is_promised(leaf)]
    metadata.fetch(["path", "size_bytes", "row_count", "schema_id"])
    metadata.fetch_statistics(leaves)
    schema_ids = metadata.values("schema_id").to_numpy()
    guarantees = _guarantees(metadata, leaves)
    by_name = {key: _readable_by_name(schema, snapshot.schema) for key, schema in snapshot.schemas.items()}
    direct = np.array([by_name.get(key, False) for key in schema_ids.tolist()], dtype=bool)
    children = [
        _fragments(storage, metadata, np.flatnonzero(chosen), guarantees, converted=converted)
        for converted, chosen in ((False, direct), (True, ~direct))
        if chosen.any()
    ]
    return children[0] if len(children) == 1 else pads.UnionDataset(snapshot.schema.read_schema, children)


def _fragments(
    storage: Storage,
    metadata: BlockMetadata,
    rows: np.ndarray,
    guarantees: list[pc.Expression],
    *,
    converted: bool,
) -> pads.Dataset:
    system, root = _converting_filesystem(storage, metadata) if converted else storage.arrow_filesystem()
    form = pads.IpcFileFormat() if converted else pads.ParquetFileFormat()
    paths = metadata.values("path").take(pa.array(rows)).to_pylist()
    sizes = metadata.values("size_bytes").take(pa.array(rows)).to_pylist()
    fragments = [
        form.make_fragment(
            f"{root.rstrip('/')}/{path}" if root else path,
            system,
            guarantees[row],
            file_size=None if converted else size,
        )
        for row, path, size in zip(rows.tolist(), paths, sizes, strict=True)
    ]
    return pads.FileSystemDataset(fragments, metadata.schema.read_schema, form, system)


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
    """Return for every block what its statistics promise of its rows."""
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
    """Tell whether a file of the schema `written` read by name gives the columns of `now`.

    Every column must have its id then and now under the same name and type, or not be in the file under any id.
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
    """Tell whether pyarrow reads a type from Parquet as it was.

    It keeps dictionaries of text only, and not inside others (we write those as plain values). Fixed-size lists inside
    others can show nulls that their parents hide, which it refuses to view as a type that may hold none.
    """
    if nested and pa.types.is_fixed_size_list(kind):
        return False
    if not pa.types.is_dictionary(kind):
        return all(_survives_parquet(child.type, nested=True) for child in child_fields(kind))
    return not nested and (is_any_string(kind.value_type) or is_any_binary(kind.value_type))


class _ConvertingHandler(pyarrow.fs.FileSystemHandler):  # type: ignore[misc]
    """Files that hold the blocks of a table in its present schema, made when opened."""

    def __init__(self, storage: Storage, schema: Schema, addresses: dict[str, BlockAddress]) -> None:
        self._storage = storage
        self._schema = schema
        self._addresses = addresses

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
            projection = Projection.plan(file.schema, self._schema, None)
            rows = file.read(range(file.metadata.num_row_groups), projection, use_threads=False)
        sink = pa.BufferOutputStream()
        # One dictionary a column: Arrow files cannot replace one half-way.
        with pa.ipc.new_file(
            sink, rows.schema, options=pa.ipc.IpcWriteOptions(unify_dictionaries=True)
        ) as writer:
            writer.write_table(rows)
        return pa.BufferReader(sink.getvalue())

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def _refuse(self, *_: Any) -> Any:
        msg = "a dataset of tblctl is for reading"
        raise OSError(msg)

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


def _converting_filesystem(storage: Storage, metadata: BlockMetadata) -> tuple[pyarrow.fs.FileSystem, str]:
    columns = [metadata.values(name).to_pylist() for name in ("path", "size_bytes", "row_count")]
    addresses = {
        path: BlockAddress(path=path, size_bytes=size, row_count=rows)
        for path, size, rows in zip(*columns, strict=True)
    }
    return pyarrow.fs.PyFileSystem(_ConvertingHandler(storage, metadata.schema, addresses)), ""
