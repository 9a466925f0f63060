"""A file of another writer becomes a block undecoded: its pages are copied, and its footer is written anew.

That takes about a quarter of decoding and encoding, most of it to look at text. A file qualifies if its columns are
stored as blocks store them (names, order, types), its column chunks follow each other, and it is a full block and no
more: small files are better joined, large ones cut. Any codec does. The new footer has the table's field ids, and the
checksum of every chunk is worked out from the bytes that are copied.

What a footer says of whole numbers, moments and truth values without nulls is taken. All else is read: text must be
UTF-8, NaN must be counted, bounds of text that writers cut say nothing exact, and writers have counted nulls wrongly,
of fields of structs and of columns of several pages. A file that counts them wrongly is encoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from tblctl.tableformat.errors import InvalidDataError
from tblctl.tableformat.keys.kinds import key_leaves
from tblctl.tableformat.keys.order import is_sorted, key_table
from tblctl.tableformat.model.block import FULL_SHARE
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.schema.field_ids import field_id, named_children, with_id
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import child_fields, with_child_fields
from tblctl.tableformat.parquet.block_writer import PHYSICAL, BlockEncoder, Layout
from tblctl.tableformat.parquet.checked_footer import checked_footer
from tblctl.tableformat.parquet.columns import is_whole
from tblctl.tableformat.parquet.decoded_size import decoded_bytes
from tblctl.tableformat.parquet.dictionaries import plain_inside
from tblctl.tableformat.parquet.footer import TAIL_BYTES, footer_start, read_footer, schema_elements
from tblctl.tableformat.parquet.footer_check import MOST_CHUNK_BYTES
from tblctl.tableformat.parquet.opened import BlockAddress
from tblctl.tableformat.parquet.reader import BlockFile
from tblctl.tableformat.parquet.statistics import Measured, joined, measure
from tblctl.tableformat.parquet.thrift import Struct
from tblctl.tableformat.storage import Storage


@dataclass(frozen=True, kw_only=True)
class WholeFile:
    """A Parquet file of another writer: its storage, its name there, and its size."""

    storage: Storage
    name: str
    size_bytes: int


def may_be_block(rows: np.ndarray, size_bytes: np.ndarray, options: TableOptions) -> np.ndarray:
    """Return which files of some rows and uncompressed bytes may become blocks as they are: full ones, and no more."""
    full = (rows >= FULL_SHARE * options.block_rows) | (size_bytes >= FULL_SHARE * options.block_bytes)
    found: np.ndarray = full & (rows <= options.block_rows) & (size_bytes <= options.block_bytes)
    return found


def copied(file: WholeFile, layout: Layout) -> tuple[BlockEncoder, Sort | None] | None:
    """Return a block with a file's row groups, and the sort whose order it is in; None if it must be encoded.

    Raises:
        InvalidDataError: text is not UTF-8; names file and column.
        ValueError, CorruptTableError: the file is damaged. `read_errors.ARROW_ERRORS` lists what pyarrow raises.
    """
    with file.storage.open_input(file.name, size_bytes=file.size_bytes) as source:

        def fetch(start: int, stop: int) -> pa.Buffer:
            return pa.py_buffer(source.read_at(stop - start, start))

        footer, metadata = checked_footer(fetch, file.size_bytes, row_count=None)
    if not _fits(footer, metadata, layout):
        return None
    address = BlockAddress(
        path=file.name,
        size_bytes=file.size_bytes,
        row_count=metadata.num_rows,
        uncompressed_bytes=MOST_CHUNK_BYTES,
        column_ids=frozenset(),
        seal=None,
    )
    with BlockFile(file.storage, address, named=lambda found, _: _with_ids(found, layout.schema)) as opened:
        return _encoder_of(opened, file, layout)


def _fits(footer: Struct, metadata: pq.FileMetaData, layout: Layout) -> bool:
    """Return whether a file may become a block as it is."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    size = np.array([decoded_bytes(metadata)])
    return (
        bool(may_be_block(np.array([metadata.num_rows]), size, layout.options)[0])
        and _columns_of(footer) == _columns_of(_empty_footer(layout.schema))
        and all(_is_copyable(group) for group in groups)
        and not any(_in_seconds(leaf.type) for leaf in layout.schema.leaves)
    )


def _in_seconds(kind: pa.DataType) -> bool:
    """Return whether values are whole seconds. Parquet has none: a file may have milliseconds between them."""
    return bool((pt.is_timestamp(kind) or pt.is_time(kind)) and kind.unit == "s")


def _is_copyable(group: pq.RowGroupMetaData) -> bool:
    chunks = [group.column(place) for place in range(group.num_columns)]
    return (
        group.num_rows > 0
        and is_whole(group)
        and all(chunk.dictionary_page_offset != 0 for chunk in chunks)  # some writers mean none by 0
        and all(chunk.compression in _CODECS for chunk in chunks)
        and all(_has_whole_bounds(chunk) for chunk in chunks)
        and all(chunk.total_uncompressed_size <= group.total_byte_size for chunk in chunks)
    )


_CODECS = frozenset(("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI"))
"""Those that every reader of blocks has."""


def _has_whole_bounds(chunk: pq.ColumnChunkMetaData) -> bool:
    """Return whether bounds of text, if there are any, are text: some writers cut them within a character."""
    try:
        found = chunk.statistics if chunk.physical_type == "BYTE_ARRAY" else None
        _ = found is not None and found.has_min_max and (found.min, found.max)
    except UnicodeDecodeError:
        return False
    return True


def _columns_of(footer: Struct) -> list[Struct]:
    """Return the columns that a footer describes, without ids; the name of the root means nothing."""
    root, *columns = schema_elements(footer)
    return [{key: value for key, value in root.items() if key == _CHILDREN}, *columns]


_CHILDREN = 5
"""The field of the root's description with how many columns there are."""


def _empty_footer(schema: Schema) -> Struct:
    """Return the footer of a block without rows."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, plain_inside(schema.written), **PHYSICAL).close()
    data = sink.getvalue()
    return read_footer(data[footer_start(data) : data.size - TAIL_BYTES].to_pybytes())


def _with_ids(found: pa.Schema, schema: Schema) -> pa.Schema:
    """Return some of a file's columns with the ids of the table's of the same names."""
    return pa.schema([_named(mine, schema.written.field(mine.name)) for mine in found])


def _named(mine: pa.Field, item: pa.Field) -> pa.Field:
    id_ = field_id(item)
    assert id_ is not None
    kind = mine.type
    if child_fields(kind):
        pairs = zip(child_fields(kind), child_fields(item.type), strict=True)
        children = tuple(_named(child, other) for child, other in pairs)
        kind = with_child_fields(kind, named_children(kind, children))
    return with_id(mine.with_type(kind), id_)


def _encoder_of(
    opened: BlockFile, file: WholeFile, layout: Layout
) -> tuple[BlockEncoder, Sort | None] | None:
    schema = layout.schema
    groups = range(opened.metadata.num_row_groups)
    counts = [opened.metadata.row_group(group).num_rows for group in groups]
    simple = [leaf for leaf in schema.leaves if len(leaf.path) == 1 and _is_simple(leaf.type)]
    found = opened.stated_figures(groups, simple)
    stated = {id_: figures for id_, figures in found.items() if not figures.null_count}
    others = [leaf for leaf in schema.leaves if leaf.id not in stated]
    keys = None if layout.sort is None else _keys(opened, groups, layout.sort, schema)
    sort = (
        layout.sort if layout.sort is not None and keys is not None and is_sorted(keys, layout.sort) else None
    )
    encoder = BlockEncoder(layout, sort)
    measured: Mapping[int, Measured] = {}
    start = 0
    for group in groups:
        found = _measured(opened, group, file, others, schema)
        if not _counts_alike(opened, group, others, found):
            return None
        stop = start + counts[group]
        encoder.copy(
            opened, group, keys.slice(start, stop - start) if keys is not None and sort else None, found
        )
        measured = joined(measured, found)
        start = stop
    encoder.count(start, opened.decoded_bytes, {**stated, **measured})
    return encoder, sort


def _keys(opened: BlockFile, groups: Sequence[int], sort: Sort, schema: Schema) -> pa.Table:
    names = list(dict.fromkeys(leaf.path[0] for leaf in key_leaves(sort, schema)))
    rows = opened.read(groups, opened.projection(schema, names), use_threads=False)
    return key_table(rows, sort, schema)


def _measured(
    opened: BlockFile, group: int, file: WholeFile, leaves: Sequence[Leaf], schema: Schema
) -> dict[int, Measured]:
    """Return the figures of some columns in a row group, by reading them. Text is checked."""
    if not leaves:
        return {}
    names = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
    rows = opened.read([group], opened.projection(schema, names), use_threads=False)
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            msg = f"{file.storage.url}/{file.name}: column {name!r} has broken values: {str(error)[:200]}"
            raise InvalidDataError(msg, name=file.name) from error
    return measure(rows, leaves)


def _counts_alike(
    opened: BlockFile, group: int, leaves: Sequence[Leaf], measured: Mapping[int, Measured]
) -> bool:
    """Return whether the footer counts as many nulls in a row group as there are: scans skip row groups by it."""
    statistics = opened.statistics([group])
    for leaf in leaves:
        stated = statistics.column(leaf)
        if stated is not None and int(stated.null_count[0]) not in (-1, measured[leaf.id].null_count):
            return False
    return True


def _is_simple(kind: pa.DataType) -> bool:
    """Return whether every writer's bounds of such a column are its least and greatest value."""
    return bool(pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_temporal(kind))
