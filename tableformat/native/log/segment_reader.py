"""Read segments. A segment must agree with its seal, its summary and the limits of docs/FORMAT.md.

Metadata stays columnar up to the decision: only rows of blocks that an operation uses become `Block` values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tblctl.tableformat.errors import CorruptTableError, ObjectNotFoundError
from tblctl.tableformat.model.block import Block, ClusterStatistics
from tblctl.tableformat.model.seal import Seal
from tblctl.tableformat.model.snapshot import SegmentRef
from tblctl.tableformat.model.values import python_value
from tblctl.tableformat.native.log.names import are_block_paths, checked_block_path
from tblctl.tableformat.native.log.segment_columns import (
    ADDED_LATER,
    BASE_COLUMNS,
    COUNTS,
    SEAL_COLUMNS,
    key_names,
)
from tblctl.tableformat.parquet.footer import footer_of
from tblctl.tableformat.parquet.footer_check import check_footer, coded_columns
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS, read_error
from tblctl.tableformat.parquet.sealed import Place, VerifiedFile, checked_footer, reader, verified_end
from tblctl.tableformat.storage import Storage

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
"""Limit of rows or bytes of a block: a million of these can be added up."""

_MOST_BYTES, _MOST_RATIO = 64 << 20, 2_000
"""Limits of the memory of a segment's read columns: bytes, and bytes for each byte of its file.

10,000 blocks that differ in their names only take 13 to 115 bytes for each byte of the file: 4 to 100 columns, words of
8 to 5,000 letters, with and without a key of them. Keys of long strings with 4 bytes a letter take more.
"""

_PLAIN = frozenset({"PLAIN", "RLE", "BIT_PACKED"})
"""Encodings in which every value is stored. The last two are for levels."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
"""Bytes of a value in memory, by its type in the file; for byte arrays, in addition to their bytes."""

_WHOLE_FILE_BYTES = 1 << 20  # below this, one request for all is cheaper than two for parts


def read_segment(
    storage: Storage, ref: SegmentRef, columns: Sequence[str] | None = None, *, keys: bool = False
) -> pa.Table:
    """Return the rows of a segment: the existing ones of `columns`, and with `keys` the bounds by every sort.

    Raises:
        CorruptTableError: the object is missing, is not Parquet, or contradicts its summary.
    """
    try:
        with _source_of(storage, ref) as source:
            size = source.size()
            if size != ref.size_bytes:
                msg = f"{size} bytes, expected {ref.size_bytes}"
                raise ValueError(msg)
            return _rows(source, ref, columns, keys=keys)
    except ObjectNotFoundError as error:
        msg = f"{ref.path} is missing; the snapshot that names it cannot be read"
        raise CorruptTableError(msg, name=ref.path) from error
    except CorruptTableError as error:
        if error.details.get("name") == ref.path:
            raise
        raise CorruptTableError(f"{ref.path}: {error}", name=ref.path) from error
    except ARROW_ERRORS as error:
        raise read_error(storage, ref.path, error) from error


def _source_of(storage: Storage, ref: SegmentRef) -> pa.NativeFile:
    """Return the open object: a small one in memory, fetched in one request."""
    if ref.size_bytes <= _WHOLE_FILE_BYTES:
        return pa.BufferReader(storage.read(ref.path))
    return storage.open_input(ref.path, size_bytes=ref.size_bytes)


def _rows(source: pa.NativeFile, ref: SegmentRef, columns: Sequence[str] | None, *, keys: bool) -> pa.Table:
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
        if item.name in ADDED_LATER - set(present) and (columns is None or item.name in columns):
            table = table.append_column(item, pa.nulls(table.num_rows, item.type))
    _check_base_columns(table, present)
    _check_fact_types(table)
    _check_sums(table, ref)
    return table


def _opened(source: pa.NativeFile, ref: SegmentRef, columns: Sequence[str] | None) -> pq.ParquetFile:
    """Return the file to read `columns` of (None: all), verified as far as it has checksums.

    Text stays as it is stored where a word may stand for many: one that 10,000 rows share would be decoded as often.
    A small segment is whole in memory: once verified, pyarrow reads its bytes without Python, and mostly opens it once.
    """
    if ref.seal is None:
        return _opened_unsealed(source, ref)
    fetch = reader(source)
    place = Place(name=ref.path, title=ref.path)
    end = fetch(max(0, ref.size_bytes - ref.seal.footer_bytes), ref.size_bytes)
    end = verified_end(place, ref.seal, ref.size_bytes, end)
    metadata = checked_footer(
        end, ref.size_bytes, row_count=ref.block_count, most_chunk_bytes=_most_decoded_bytes(ref)
    )
    verified = VerifiedFile(place, end, metadata, ref.size_bytes, fetch)
    if isinstance(source, pa.BufferReader):
        verified.whole()
        return pq.ParquetFile(source, metadata=metadata, read_dictionary=_shared_words(metadata, columns))
    return pq.ParquetFile(
        pa.PythonFile(verified, mode="r"),
        metadata=metadata,
        pre_buffer=True,
        read_dictionary=_shared_words(metadata, columns),
    )


def _opened_unsealed(source: pa.NativeFile, ref: SegmentRef) -> pq.ParquetFile:
    """Return a file without checksums, from an older tblctl, after checking its footer."""
    footer, start = footer_of(reader(source), ref.size_bytes)
    limit = _most_decoded_bytes(ref)
    check_footer(footer, pages_stop=start, row_count=ref.block_count, most_chunk_bytes=limit)
    source.seek(0)
    return pq.ParquetFile(
        source, pre_buffer=True, page_checksum_verification=True, read_dictionary=coded_columns(footer)
    )


def _shared_words(metadata: pq.FileMetaData, columns: Sequence[str] | None) -> list[str]:
    """Return the text columns in which rows may share a stored word, because they are not stored plainly."""
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
    """Return how much memory the read columns of a segment may take: docs/FORMAT.md has the limit."""
    return _MOST_BYTES + _MOST_RATIO * ref.size_bytes


def _check_sizes(metadata: pq.FileMetaData, names: Sequence[str], most_bytes: int) -> None:
    """Refuse columns that take more than `most_bytes` according to the footer; shared words count once.

    About 0.01 ms for each column.
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
    """Return the table with its coded columns decoded, if it then takes at most `most_bytes`."""
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
        if item.name not in present and item.name not in ADDED_LATER:
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
    """Refuse statistics of a wrong type. Bounds are checked elsewhere, where the column's type is known."""
    if len(set(table.column_names)) != table.num_columns:
        msg = "two columns have the same name"
        raise ValueError(msg)
    counts = []
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if not name.startswith(("column_", "key_")):
            continue
        fact = name.split("_", 2)[-1]
        expected = pa.bool_() if fact == "exact" else pa.int64() if fact in COUNTS else kind
        if kind != expected:
            msg = f"column {name} is {kind}, expected {expected}"
            raise ValueError(msg)
        if fact in COUNTS:
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
    """Refuse rows that do not add up to the summary, and paths that are not blocks' names, which must not be opened."""
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
    """Return the place in key order of every row's block; None for blocks in no order."""
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
    """Return the `python_value` of each value."""
    if getattr(values.type, "unit", None) != "ns":
        try:
            return list(values.to_pylist())
        except (OverflowError, ValueError):
            pass  # a moment beyond Python's years
    return [python_value(value) for value in values]
