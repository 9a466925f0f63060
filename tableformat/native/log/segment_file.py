"""Segments as Parquet files: one row a block, one column a fact.

docs/FORMAT.md describes the columns. Metadata stays columnar up to the decision: rows become `Block` values only
for the blocks that something is done with.

A statistics column that a row has no value for (`column_<id>_null_count` is null) says that the block is older than
the table's column: every row reads as null. Unknown is -1 for counts and null for bounds.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tblctl.tableformat.errors import CorruptTableError, ObjectNotFoundError
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.model.block import Block, ClusterStatistics
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import can_widen, is_orderable, statistic_type
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.model.snapshot import ColumnBounds, SegmentRef
from tblctl.tableformat.model.values import python_value, value_to_json
from tblctl.tableformat.native.log.names import are_block_paths, checked_block_path
from tblctl.tableformat.parquet.damage import ARROW_ERRORS, read_error
from tblctl.tableformat.parquet.footer import footer_of, footer_start
from tblctl.tableformat.parquet.footer_check import check_footer, coded_columns
from tblctl.tableformat.parquet.sealed import (
    Place,
    Sealed,
    VerifiedFile,
    open_verified,
    reader,
    seal,
    verified_end,
)
from tblctl.tableformat.storage import Storage

BASE_COLUMNS = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("uncompressed_bytes", pa.int64(), nullable=False),
        pa.field("decoded_bytes", pa.int64(), nullable=False),
        pa.field("schema_id", pa.int32(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("run_id", pa.string()),
        pa.field("cluster_key_id", pa.int32()),
        pa.field("same_key_rows", pa.int64()),
        pa.field("footer_bytes", pa.int64()),
        pa.field("footer_checksum", pa.uint64()),
    ]
)

_ADDED_LATER = frozenset({"same_key_rows", "footer_bytes", "footer_checksum"})
"""Columns of these that older segments lack: null in every row then."""

SEAL_COLUMNS = ("footer_bytes", "footer_checksum")

BOUNDED_COLUMNS = 32
"""A segment's summary bounds the cluster key's columns and others up to this many: it is read by every scan."""

_BLOCK_FACTS = (
    "path",
    "row_count",
    "size_bytes",
    "uncompressed_bytes",
    "decoded_bytes",
    "schema_id",
    "run_id",
)
_MOST_COUNT = 2**43
"""Of rows or bytes of a block: a million of these can be added up."""

_COUNTS = frozenset({"null_count", "nan_count", "compressed_bytes", "uncompressed_bytes"})
_MOST_BYTES, _MOST_RATIO = 64 << 20, 2_000
"""What the columns that are read of a segment may take: so many bytes, and as many for each byte of its file.

10,000 blocks that are all equal but for their names take 13 to 115 bytes for each byte of the file: 4 to 100 columns,
words of 8 to 5,000 letters, with and without a key of them. Keys of long strings of 4 bytes a
letter take more.
"""

_PLAIN = frozenset({"PLAIN", "RLE", "BIT_PACKED"})
"""Encodings of columns in which every value is stored; the last two are those of levels."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
"""Bytes of a value in memory, by its type in the file; of byte arrays, besides their bytes."""

_WHOLE_FILE_BYTES = 1 << 20  # below this one request for all is cheaper than two for parts


def statistic_names(leaf: Leaf) -> dict[str, pa.DataType]:
    """Return the names and types of a column's statistics in a segment."""
    kind = statistic_type(leaf.type)
    prefix = f"column_{leaf.id}_"
    names: dict[str, pa.DataType] = {}
    if is_orderable(leaf.type):
        names |= {f"{prefix}min": kind, f"{prefix}max": kind, f"{prefix}exact": pa.bool_()}
    names[f"{prefix}null_count"] = pa.int64()
    if pa.types.is_floating(kind):
        names[f"{prefix}nan_count"] = pa.int64()
    return names | {f"{prefix}compressed_bytes": pa.int64(), f"{prefix}uncompressed_bytes": pa.int64()}


def key_names(sort_id: int, term_count: int) -> tuple[list[str], list[str], str]:
    """Return the columns' names for the least and greatest keys of a sort, and for the mark that they are exact."""
    terms = range(term_count)
    return (
        [f"key_{sort_id}_min_{term}" for term in terms],
        [f"key_{sort_id}_max_{term}" for term in terms],
        f"key_{sort_id}_exact",
    )


def key_kinds(sorts: Iterable[Sort], schema: Schema) -> dict[str, pa.DataType]:
    """Return the types of the keys of blocks by sorts, where the schema has their columns.

    Blocks that are older than the widening of a column have keys of a narrower type.
    """
    kinds: dict[str, pa.DataType] = {}
    for sort in sorts:
        types = key_maker(sort).types(schema)
        lows, highs, _ = key_names(sort.id, len(types))
        for low, high, kind in zip(lows, highs, types, strict=True):
            if kind is not None:
                kinds[low] = kinds[high] = kind
    return kinds


def segment_table(records: Sequence[BlockRecord], schema: Schema, sorts: Iterable[Sort]) -> pa.Table:
    """Return the rows of a segment that lists `records`, blocks written with `schema` or an older one.

    All bounds, keys by `sorts` too, come in their types by `schema`, whichever the records have them in.

    Raises:
        pa.ArrowInvalid: an older block has values that its column's type now has not.
    """
    columns: dict[str, pa.Array] = {
        item.name: pa.array([getattr(record, item.name) for record in records], item.type)
        for item in BASE_COLUMNS
    }
    for leaf in schema.leaves:
        for name, kind in statistic_names(leaf).items():
            fact = name.removeprefix(f"column_{leaf.id}_")
            known = [record.columns.get(leaf.id) for record in records]
            columns[name] = _array([getattr(item, fact) if item else None for item in known], kind)
    kinds = key_kinds(sorts, schema)
    for sort_id in sorted({record.cluster_key_id for record in records if record.cluster_key_id is not None}):
        columns |= _key_columns(records, sort_id, kinds)
    return pa.table(columns)


def _key_columns(
    records: Sequence[BlockRecord], sort_id: int, known: Mapping[str, pa.DataType]
) -> dict[str, pa.Array]:
    """Return the columns of one sort; those that are not `known` are of a dropped column."""
    mine = [record if record.cluster_key_id == sort_id else None for record in records]
    term_count = next(len(item.key_min) for item in mine if item is not None)
    lows, highs, exact = key_names(sort_id, term_count)
    columns = {exact: pa.array([None if item is None else item.key_exact for item in mine], pa.bool_())}
    for term, (low, high) in enumerate(zip(lows, highs, strict=True)):
        kind = known.get(low)
        if kind is None:
            kind = _widest(dict.fromkeys(item.key_min[term].type for item in mine if item is not None))
        columns[low] = _array([None if item is None else item.key_min[term] for item in mine], kind)
        columns[high] = _array([None if item is None else item.key_max[term] for item in mine], kind)
    return columns


def _widest(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """Return which of the types that a column had the others were widened to."""
    return functools.reduce(lambda one, other: other if can_widen(one, other) else one, kinds)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return scalars or Python values as an array without passing scalars through Python, which loses nanoseconds."""
    if any(isinstance(value, pa.Scalar) for value in values):
        null = pa.scalar(None, kind)
        return pa.array([null if value is None else value.cast(kind) for value in values], kind)
    return pa.array(values, kind)


def concat_segments(tables: Sequence[pa.Table], schema: Schema, sorts: Iterable[Sort]) -> pa.Table:
    """Return the rows of several segments in one table, with the statistics that `schema` now has columns for.

    Keys by `sorts` come in their types now, those of dropped columns in the widest that a segment has.
    """
    wanted = {name: kind for leaf in schema.leaves for name, kind in statistic_names(leaf).items()}
    wanted |= _kinds_of_all_keys(tables) | key_kinds(sorts, schema)
    return pa.concat_tables(
        [_aligned(table, wanted) for table in tables], promote_options="permissive"
    ).combine_chunks()


def _kinds_of_all_keys(tables: Iterable[pa.Table]) -> dict[str, pa.DataType]:
    """Return the widest types that the tables have keys in: pyarrow puts no dates and timestamps together."""
    found: dict[str, list[pa.DataType]] = {}
    for table in tables:
        for name, kind in zip(table.column_names, table.schema.types, strict=True):
            if name.startswith("key_"):
                found.setdefault(name, []).append(kind)
    return {name: _widest(kinds) for name, kinds in found.items()}


def _aligned(table: pa.Table, wanted: Mapping[str, pa.DataType]) -> pa.Table:
    names, columns = [], []
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = wanted.get(name)
        if kind is None and name.startswith("column_"):
            continue
        names.append(name)
        columns.append(column if kind in (None, column.type) else column.cast(kind))
    return pa.table(columns, names=names)


def encode_segment(table: pa.Table) -> Sealed:
    """Return the object. About 40 ms for 10,000 blocks of 16 columns."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=max(table.num_rows, 1),
        compression="zstd",
        compression_level=1,
        use_dictionary=["run_id"],
        write_page_checksum=True,
        write_statistics=False,
        store_schema=False,
    )
    data = sink.getvalue()
    start = footer_start(data)
    return seal(data[:start], data[start:])


def segment_ref(
    table: pa.Table, path: str, schema: Schema, sort: Sort | None, *, size_bytes: int, seal: Seal | None
) -> SegmentRef:
    """Return how a snapshot names the segment with these rows, its summary included."""
    present = frozenset(table.column_names)
    return SegmentRef(
        path=path,
        size_bytes=size_bytes,
        block_count=table.num_rows,
        row_count=pc.sum(table["row_count"]).as_py(),
        data_bytes=pc.sum(table["size_bytes"]).as_py(),
        bounds={leaf.id: _column_bounds(table, present, leaf) for leaf in _bounded_leaves(schema, sort)},
        seal=seal,
    )


def _bounded_leaves(schema: Schema, sort: Sort | None) -> list[Leaf]:
    key_ids = frozenset(key_maker(sort).column_ids if sort else ())
    leaves = [leaf for leaf in schema.leaves if is_orderable(leaf.type)]
    leaves.sort(key=lambda leaf: leaf.id not in key_ids)
    return leaves[:BOUNDED_COLUMNS]


def _column_bounds(table: pa.Table, present: frozenset[str], leaf: Leaf) -> ColumnBounds:
    prefix = f"column_{leaf.id}_"
    if f"{prefix}null_count" not in present:
        return ColumnBounds(min=None, max=None, null_count=pc.sum(table["row_count"]).as_py())
    counts = pc.coalesce(table[f"{prefix}null_count"], table["row_count"])
    nothing = pa.nulls(table.num_rows, statistic_type(leaf.type))
    # Blocks may all be older than the column's present type: all null then.
    if f"{prefix}min" not in present:
        table = table.append_column(f"{prefix}min", nothing).append_column(f"{prefix}max", nothing)
    low, high = table[f"{prefix}min"], table[f"{prefix}max"]
    some_values = pc.less(counts, table["row_count"])  # an unknown count, -1, may have values
    unknown_low = pc.any(pc.and_(some_values, low.is_null())).as_py()
    unknown_high = pc.any(pc.and_(some_values, high.is_null())).as_py()
    return ColumnBounds(
        min=None if unknown_low else value_to_json(pc.min_max(low)["min"]),
        max=None if unknown_high else value_to_json(pc.min_max(high)["max"]),
        null_count=-1 if pc.any(pc.less(counts, 0)).as_py() else pc.sum(counts).as_py(),
    )


def read_segment(
    storage: Storage, ref: SegmentRef, columns: Sequence[str] | None = None, *, keys: bool = False
) -> pa.Table:
    """Return the rows of a segment; of `columns`, those that it has, and with `keys` the bounds by every sort.

    Raises:
        CorruptTableError: the object is missing, is not Parquet, or does not say what its summary says.
    """
    try:
        if ref.size_bytes <= _WHOLE_FILE_BYTES:
            source = pa.BufferReader(storage.read(ref.path))
        else:
            source = storage.open_input(ref.path, size_bytes=ref.size_bytes)
        with source:
            size = source.size()
            if size != ref.size_bytes:
                msg = f"{size} bytes, expected {ref.size_bytes}"
                raise ValueError(msg)
            file = _opened(source, ref, None if keys else columns)
            if file.metadata.num_rows != ref.block_count:
                msg = f"{file.metadata.num_rows} blocks, expected {ref.block_count}"
                raise ValueError(msg)
            present = file.schema_arrow.names
            wanted = present if columns is None else [name for name in columns if name in present]
            if columns is not None and keys:
                wanted = [*wanted, *(name for name in present if name.startswith("key_"))]
            _check_sizes(file.metadata, wanted, _most_decoded_bytes(ref))
            table = _decoded(file.read(columns=wanted, use_threads=False), _most_decoded_bytes(ref))
            for item in BASE_COLUMNS:
                if item.name in _ADDED_LATER - set(present) and (columns is None or item.name in columns):
                    table = table.append_column(item, pa.nulls(table.num_rows, item.type))
        _check_base_columns(table, present)
        _check_fact_types(table)
        _check_sums(table, ref)
    except ObjectNotFoundError as error:
        msg = f"{ref.path} is missing; the snapshot that names it cannot be read"
        raise CorruptTableError(msg, name=ref.path) from error
    except CorruptTableError as error:
        if error.details.get("name") == ref.path:
            raise
        raise CorruptTableError(f"{ref.path}: {error}", name=ref.path) from error
    except ARROW_ERRORS as error:
        raise read_error(storage, ref.path, error) from error
    return table


def _opened(source: pa.NativeFile, ref: SegmentRef, columns: Sequence[str] | None) -> pq.ParquetFile:
    """Return the file to read `columns` of (None: all), verified as far as it has checksums.

    Text stays as it is stored where a word may stand for many: one that 10,000 rows share would be decoded as often.
    """
    fetch = reader(source)
    if ref.seal is None:
        footer, start = footer_of(fetch, ref.size_bytes)
        limit = _most_decoded_bytes(ref)
        check_footer(footer, pages_stop=start, row_count=ref.block_count, most_chunk_bytes=limit)
        source.seek(0)
        return pq.ParquetFile(
            source,
            pre_buffer=True,
            page_checksum_verification=True,
            read_dictionary=coded_columns(footer),
        )
    place = Place(name=ref.path, title=ref.path)
    end = fetch(max(0, ref.size_bytes - ref.seal.footer_bytes), ref.size_bytes)
    if isinstance(source, pa.BufferReader):
        end = verified_end(place, ref.seal, ref.size_bytes, end)
        file = pq.ParquetFile(source)
        VerifiedFile(place, end, file.metadata, ref.size_bytes, fetch).whole()
        shared = _shared_words(file.metadata, columns)
        return pq.ParquetFile(source, metadata=file.metadata, read_dictionary=shared) if shared else file
    verified, metadata = open_verified(place, ref.seal, ref.size_bytes, end, fetch)
    return pq.ParquetFile(
        pa.PythonFile(verified, mode="r"),
        metadata=metadata,
        pre_buffer=True,
        read_dictionary=_shared_words(metadata, columns),
    )


def _shared_words(metadata: pq.FileMetaData, columns: Sequence[str] | None) -> list[str]:
    """Return the columns of text of which one stored word may stand for many: it is not stored plainly."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = (group.column(place) for group in groups for place in range(metadata.num_columns))
    return [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.physical_type == "BYTE_ARRAY"
        and not _PLAIN.issuperset(chunk.encodings)
        and (columns is None or chunk.path_in_schema in columns)
    ]


def _most_decoded_bytes(ref: SegmentRef) -> int:
    """Return how much memory the columns read of a segment may take: docs/FORMAT.md has the limit."""
    return _MOST_BYTES + _MOST_RATIO * ref.size_bytes


def _check_sizes(metadata: pq.FileMetaData, names: Sequence[str], most_bytes: int) -> None:
    """Refuse columns that take more than `most_bytes`, as far as the footer tells: words may be shared.

    About 0.01 ms a column.
    """
    wanted = frozenset(names)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    size = 0
    for place in range(metadata.num_columns):
        column = metadata.schema.column(place)
        path = column.path
        if path not in wanted and ("." not in path or path.partition(".")[0] not in wanted):
            continue
        if path != column.name or column.max_repetition_level:
            msg = f"column {column.path} is nested"
            raise ValueError(msg)
        width = _WIDTHS.get(column.physical_type, column.length)
        is_text = column.physical_type == "BYTE_ARRAY"
        stored = sum(group.column(place).total_uncompressed_size for group in groups)
        fixed = metadata.num_rows * width
        size += fixed + stored if is_text else max(fixed, stored)
    _refuse_beyond(most_bytes, size)


def _decoded(table: pa.Table, most_bytes: int) -> pa.Table:
    """Return the table with its coded columns decoded, where all of it takes no more than `most_bytes` so."""
    coded = [place for place, item in enumerate(table.schema) if pa.types.is_dictionary(item.type)]
    size = sum(table.column(place).nbytes for place in set(range(table.num_columns)) - set(coded))
    for place in coded:
        size += sum(
            pc.sum(pc.binary_length(chunk.dictionary).cast(pa.int64()).take(chunk.indices)).as_py() or 0
            for chunk in table.column(place).chunks
        )
    _refuse_beyond(most_bytes, size)
    for place in coded:
        item = table.schema.field(place)
        table = table.set_column(place, item.name, table.column(place).cast(item.type.value_type))
    return table


def _refuse_beyond(most_bytes: int, size: int) -> None:
    if size > most_bytes:
        msg = f"its columns would take {size} bytes, at most {most_bytes} are allowed for a file of its size"
        raise ValueError(msg)


def _check_base_columns(table: pa.Table, present: Sequence[str]) -> None:
    read = frozenset(table.column_names)
    for item in BASE_COLUMNS:
        if item.name not in present and item.name not in _ADDED_LATER:
            msg = f"it has no column {item.name}"
            raise ValueError(msg)
        if item.name not in read:
            continue
        column = table.column(item.name)
        if column.type != item.type:
            msg = f"column {item.name} is {column.type}, expected {item.type}"
            raise ValueError(msg)
        if not item.nullable and column.null_count:
            msg = f"column {item.name} has nulls"
            raise ValueError(msg)
    for name in ("row_count", "size_bytes"):
        if name in read and pc.any(pc.less(table[name], 1)).as_py():
            msg = f"a block with {name} below 1"
            raise ValueError(msg)
    if {"same_key_rows", "row_count"} <= read:
        same = table["same_key_rows"]
        if pc.any(pc.or_(pc.less(same, 1), pc.greater(same, table["row_count"]))).as_py():
            msg = "a block with same_key_rows below 1 or above its row_count"
            raise ValueError(msg)


def _check_fact_types(table: pa.Table) -> None:
    """Refuse statistics of a type that they never have; bounds are checked where the column's type is known."""
    if len(set(table.column_names)) != table.num_columns:
        msg = "two columns of one name"
        raise ValueError(msg)
    counts = []
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if not name.startswith(("column_", "key_")):
            continue
        fact = name.split("_", 2)[-1]
        expected = pa.bool_() if fact == "exact" else pa.int64() if fact in _COUNTS else kind
        if kind != expected:
            msg = f"column {name} is {kind}, expected {expected}"
            raise ValueError(msg)
        if fact in _COUNTS:
            counts.append(name)
    if _has_wild_count(table, counts):
        wild = next(name for name in counts if _has_wild_count(table, [name]))
        msg = f"{wild} is from {pc.min(table[wild])} to {pc.max(table[wild])}, expected -1 to {_MOST_COUNT}"
        raise ValueError(msg)


def _has_wild_count(table: pa.Table, names: Sequence[str]) -> bool:
    chunks = [chunk for name in names for chunk in table[name].chunks]
    ends = pc.min_max(pa.chunked_array(chunks, pa.int64())).as_py()
    return (ends["min"] or 0) < -1 or (ends["max"] or 0) > _MOST_COUNT


def _check_sums(table: pa.Table, ref: SegmentRef) -> None:
    """Refuse what does not add up to the summary, and names that are no block's, which nobody may follow."""
    for name, stated in (("row_count", ref.row_count), ("size_bytes", ref.data_bytes)):
        if name in table.column_names and pc.sum(table[name]).as_py() != stated:
            msg = f"its {name} adds up to {pc.sum(table[name])}, the snapshot says {stated}"
            raise ValueError(msg)
    if "path" in table.column_names:
        valid = are_block_paths(table["path"])
        if not pc.all(valid).as_py():
            checked_block_path(table["path"].filter(pc.invert(valid))[0].as_py())


def blocks_of(table: pa.Table) -> tuple[Block, ...]:
    """Return rows of a segment as `Block` values, from BASE_COLUMNS and the keys. About 10 s for 1,000,000."""
    base = [table[name].to_pylist() for name in _BLOCK_FACTS]
    return tuple(
        Block(**dict(zip(_BLOCK_FACTS, facts, strict=True)), cluster=cluster, seal=seal)
        for *facts, cluster, seal in zip(*base, _clusters(table), seals_of(table), strict=True)
    )


def seals_of(table: pa.Table) -> list[Seal | None]:
    """Return the seals of blocks, from their columns of a segment; None for older blocks."""
    return list(map(Seal.of, *(table[name].to_pylist() for name in SEAL_COLUMNS)))


def _clusters(table: pa.Table) -> list[ClusterStatistics | None]:
    """Return the place in key order of every row's block; None for those in no order."""
    found: list[ClusterStatistics | None] = [None] * table.num_rows
    for key_id in pc.unique(table["cluster_key_id"].drop_null()).to_pylist():
        mine = pc.indices_nonzero(pc.equal(table["cluster_key_id"], key_id))
        term_count = sum(name.startswith(f"key_{key_id}_min_") for name in table.column_names)
        lows, highs, exact = key_names(key_id, term_count)
        ends = [
            zip(*(python_values(table[name].take(mine)) for name in names), strict=True)
            for names in (lows, highs)
        ]
        facts = (table[name].take(mine).to_pylist() for name in (exact, "level"))
        for row, low, high, is_exact, level in zip(mine.to_pylist(), *ends, *facts, strict=True):
            found[row] = ClusterStatistics(
                cluster_key_id=key_id, min=low, max=high, exact=bool(is_exact), level=level
            )
    return found


def python_values(values: pa.ChunkedArray) -> list[Any]:
    """Return what `python_value` makes of each value."""
    if getattr(values.type, "unit", None) != "ns":
        try:
            return list(values.to_pylist())
        except (OverflowError, ValueError):
            pass  # a moment beyond Python's years
    return [python_value(value) for value in values]
