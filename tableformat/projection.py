"""Convert between a table's schema and other columns: incoming data, or the columns of a file.

`Conformer` (and `conform`) convert incoming data, matched by name, to the columns that are written. `Projection` reads
the columns of a file, matched by column id, as the table's present schema: renamed, widened, added and dropped columns
need no rewriting. Neither does any I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import InvalidDataError, SchemaMismatchError, UnknownColumnError
from tblctl.tableformat.model.schema.changes import find
from tblctl.tableformat.model.schema.field_ids import field_id, plain_field
from tblctl.tableformat.model.schema.schema import Schema, schema_differences
from tblctl.tableformat.model.schema.types import (
    accepts,
    child_fields,
    is_any_binary,
    is_any_list,
    is_any_string,
    read_type,
    strip_extension,
    type_to_text,
)
from tblctl.tableformat.older_arrow import size_in_memory
from tblctl.tableformat.reshape import Shape, fill_hidden, has_required, plan_shape, reshape_column

_MAX_CHUNK_BYTES = 2**30
"""Larger chunks of incoming data are cut before they are cast: string and list offsets have 31 bits."""


@dataclass(frozen=True, kw_only=True)
class Conformer:
    """Converts data of one schema to a table's read types, column order and ids. `plan` one for all batches."""

    target: pa.Schema
    sources: tuple[int, ...]  # -1 for a column that the data does not have: it is null
    shapes: tuple[Shape, ...]

    @classmethod
    def plan(cls, data: pa.Schema, schema: Schema) -> Conformer:
        """Decide how data of a schema is converted to the table's.

        Raises:
            SchemaMismatchError: lists every difference, also in `details["differences"]`.
        """
        differences = schema_differences(schema, data)
        if differences:
            raise SchemaMismatchError(
                "the data does not fit the table's schema: " + "; ".join(differences), differences=differences
            )
        target = pa.schema([column.with_type(read_type(column.type)) for column in schema.arrow])
        sources = tuple(data.get_field_index(name) for name in target.names)
        shapes = tuple(
            Shape(action="missing", target=column.type, path=column.name)
            if source < 0
            else plan_shape(data.field(source).type, column.type, _by_name, column.name)
            for source, column in zip(sources, target, strict=True)
        )
        return cls(target=target, sources=sources, shapes=shapes)

    def apply(self, data: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return the data as the table's columns, with column ids in the fields' metadata. No copy where types agree.

        Raises:
            InvalidDataError: a value does not fit its column, or a null is not allowed; names the column.
        """
        columns = []
        for source, shape, column in zip(self.sources, self.shapes, self.target, strict=True):
            if source < 0:
                columns.append(_fill_hidden(pa.chunked_array([pa.nulls(data.num_rows, column.type)])))
                continue
            given = data.column(source)
            given = pa.chunked_array([given]) if isinstance(given, pa.Array) else given
            shaped = reshape_column(_cut(given) if shape.action != "keep" else given, shape)
            for chunk in shaped.chunks:
                _check_text(chunk, column.name)
                _check_values(chunk, column.type, column.name)
            _check_nulls(shaped, column)
            columns.append(_fill_hidden(shaped))
        return pa.Table.from_arrays(columns, schema=self.target)


def conform(data: pa.Table | pa.RecordBatch, schema: Schema) -> pa.Table:
    """Return incoming data converted by a `Conformer`, which is planned again on every call.

    Raises:
        SchemaMismatchError: the schemas do not fit; lists every difference.
        InvalidDataError: a value does not fit its column, or a null is not allowed.
    """
    return Conformer.plan(data.schema, schema).apply(data)


_Places = Mapping[int | None, tuple[int, pa.Field]]


@dataclass(frozen=True, kw_only=True)
class _Output:
    """One column of a projection's result. `ids` lead to it through structs. `field` is plain and of read type."""

    ids: tuple[int, ...]
    field: pa.Field
    target: pa.DataType  # with ids


@dataclass(frozen=True, kw_only=True)
class Projection:
    """Reads a file's columns as a table's schema; `plan` one for each schema that files have.

    `file_columns` are the names for `ParquetFile.read_row_groups(columns=...)`. `schema` is the schema of `apply`'s
    result. Immutable except for a cache; may be shared between threads.
    """

    file_columns: list[str]
    schema: pa.Schema
    _outputs: tuple[_Output, ...]
    _missing: frozenset[int]
    _planned: list[tuple[pa.Schema, tuple[_Step, ...]]] = field(
        default_factory=list, compare=False, repr=False
    )

    @classmethod
    def plan(cls, file_schema: pa.Schema, schema: Schema, columns: Sequence[str] | None = None) -> Projection:
        """Decide how a file is read.

        Args:
            file_schema: the file's schema, with ids, as `ParquetFile.schema_arrow` gives it.
            schema: the table's present schema.
            columns: top-level names, or dotted names through structs (`a.b`, which also names the result's column), in
                the order of the result; None for all top-level columns.

        Raises:
            UnknownColumnError: the table has no such column.
            ValueError: the file's type for a column is not one that the column ever had.
        """
        names = schema.names if columns is None else columns
        paths = {name: (name,) for name in schema.names}  # the common case, at no cost
        outputs = tuple(_output(schema, name, paths.get(name) or find(schema.arrow, name)) for name in names)
        wanted: list[tuple[str, ...]] = []
        missing: set[int] = set()
        places = _places(tuple(file_schema))
        for output in outputs:
            found = _locate(places, output.ids)
            if found is None:
                missing.add(output.ids[-1])
                continue
            path, _, source = found
            _check_readable(source.type, output.target, output.field.name)
            wanted += _needed_paths(path, source.type, output.target)
        return cls(
            file_columns=[".".join(path) for path in _without_parts(wanted)],
            schema=pa.schema([output.field for output in outputs]),
            _outputs=outputs,
            _missing=frozenset(missing),
        )

    def coded(self, ids: Collection[int]) -> Projection:
        """Return a projection that keeps text columns of these ids as dictionaries, as they are read."""
        outputs = tuple(_coded(output) if output.ids[0] in ids else output for output in self._outputs)
        schema = pa.schema([output.field for output in outputs])
        return replace(self, schema=schema, _outputs=outputs, _planned=[])

    def apply(self, table: pa.Table, *, row_count: int | None = None) -> pa.Table:
        """Return the columns of the file in the result's schema. Equal columns are not copied.

        Args:
            table: the file's columns.
            row_count: the number of rows, needed if `table` has no columns.

        Raises:
            InvalidDataError: a value does not fit its column's wider type.
            ValueError: a column that the file has is not in `table`.
        """
        rows = table.num_rows if row_count is None else row_count
        columns = [step.column(table, rows) for step in self._steps(table.schema)]
        if not columns:  # this way a table without columns has a number of rows
            return pa.table({"": pa.nulls(rows)}).select([])
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _steps(self, given: pa.Schema) -> tuple[_Step, ...]:
        for planned, steps in self._planned:
            if planned.equals(given, check_metadata=True):
                return steps
        places = _places(tuple(given))
        steps = tuple(self._step(output, places) for output in self._outputs)
        self._planned[:] = [(given, steps)]  # one entry: all row groups of a file have one schema
        return steps

    def _step(self, output: _Output, places: _Places) -> _Step:
        name = output.field.name
        found = _locate(places, output.ids)
        if found is None:
            if output.ids[-1] not in self._missing:
                raise ValueError(f"column {name!r} is in the file, but was not read from it")
            return _Step(positions=(), shape=Shape(action="missing", target=output.field.type, path=name))
        _, positions, source = found
        return _Step(positions=positions, shape=plan_shape(source.type, output.target, _by_id, name))


@dataclass(frozen=True, kw_only=True)
class _Step:
    """Where a result column lies in the table read (a top-level position, then struct fields), and its shape."""

    positions: tuple[int, ...]
    shape: Shape

    def column(self, table: pa.Table, row_count: int) -> pa.ChunkedArray:
        if not self.positions:
            return _fill_hidden(pa.chunked_array([pa.nulls(row_count, self.shape.target)]))
        first, *inner = self.positions
        column = table.column(first)
        for position in inner:
            # flatten() gives fields that are null wherever their struct is
            column = pa.chunked_array(
                [chunk.flatten()[position] for chunk in column.chunks], column.type.field(position).type
            )
        if self.shape.action == "keep":
            return column
        return _fill_hidden(reshape_column(column, self.shape))


def _output(schema: Schema, name: str, path: tuple[str, ...]) -> _Output:
    ids: list[int] = []
    nullable = False
    target = schema.arrow.field(path[0])
    for depth, step in enumerate(path):
        if depth and not pt.is_struct(target.type):
            raise UnknownColumnError(
                f"column {name!r} lies inside a list or map and cannot be read alone; "
                f"name {'.'.join(path[:depth])!r}",
                column=name,
            )
        target = target.type.field(step) if depth else target
        id_ = field_id(target)
        assert id_ is not None  # Schema's constructor checked it
        ids.append(id_)
        nullable = nullable or target.nullable
    with_ids = target.with_type(read_type(target.type))
    plain = plain_field(with_ids).with_name(name).with_nullable(nullable)
    return _Output(ids=tuple(ids), field=plain, target=with_ids.type)


def _coded(output: _Output) -> _Output:
    if not (pt.is_string(output.target) or pt.is_binary(output.target)):
        return output
    kind = pa.dictionary(pa.int32(), output.target)
    return replace(output, field=output.field.with_type(kind), target=kind)


def _places(fields: Sequence[pa.Field]) -> _Places:
    """Return position and field by column id; made once per schema, since reading metadata is slow."""
    return {field_id(one): (position, one) for position, one in enumerate(fields)}


def _locate(places: _Places, ids: Sequence[int]) -> tuple[tuple[str, ...], tuple[int, ...], pa.Field] | None:
    """Return the path of names, the path of positions and the field that ids lead to, or None."""
    names: list[str] = []
    positions: list[int] = []
    found = None
    for id_ in ids:
        if found is not None:
            places = _places(child_fields(found.type))
        if id_ not in places:
            return None
        position, found = places[id_]
        names.append(found.name)
        positions.append(position)
    return tuple(names), tuple(positions), found


def _needed_paths(
    path: tuple[str, ...], source: pa.DataType, target: pa.DataType
) -> Iterator[tuple[str, ...]]:
    """Yield the file's paths that hold the wanted part of a column.

    If the file's struct has more fields than needed, only the needed ones are read. If it has none of them, one of its
    fields is read anyway, to know where the struct itself is null.
    """
    if not (pt.is_struct(source) and pt.is_struct(target)):
        yield path
        return
    source_fields = tuple(source)
    pairs = [(match, child) for child in target if (match := _by_id(child, source_fields)) is not None]
    if not pairs:
        first = source_fields[0]
        yield from _needed_paths((*path, first.name), first.type, first.type)
        return
    paths = [
        inner
        for position, child in pairs
        for inner in _needed_paths(
            (*path, source_fields[position].name), source_fields[position].type, child.type
        )
    ]
    whole = {(*path, one.name) for one in source_fields}
    yield from ([path] if set(paths) == whole else paths)


def _without_parts(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the paths, each once, without those inside another: pyarrow would read their columns twice."""
    every = set(paths)
    return [
        path
        for path in dict.fromkeys(paths)
        if not any(path[:length] in every for length in range(1, len(path)))
    ]


def _by_name(target: pa.Field, fields: Sequence[pa.Field]) -> int | None:
    return next((i for i, one in enumerate(fields) if one.name == target.name), None)


def _by_id(target: pa.Field, fields: Sequence[pa.Field]) -> int | None:
    id_ = field_id(target)
    return next((i for i, one in enumerate(fields) if field_id(one) == id_), None)


def _check_readable(source: pa.DataType, target: pa.DataType, path: str) -> None:
    """Raise ValueError if the column never had the file's type, as Parquet returns it."""
    source = strip_extension(source)
    if not _readable(source, target):
        raise ValueError(f"column {path!r} is {type_to_text(target)}, but the file has {source}")
    if pt.is_null(source):
        return
    if pt.is_struct(target):
        for child in target:
            position = _by_id(child, tuple(source))
            if position is not None:
                _check_readable(source.field(position).type, child.type, f"{path}.{child.name}")
    elif child_fields(target):
        for one, other in zip(child_fields(source), child_fields(target), strict=True):
            _check_readable(one.type, other.type, f"{path}.{other.name}")


def _readable(source: pa.DataType, target: pa.DataType) -> bool:
    if accepts(target, source):
        return True
    if pt.is_dictionary(target):
        return _readable(source, target.value_type)
    # Parquet has no seconds, date64, large types or fixed-size lists. Without Arrow's own schema in the file they are
    # read as milliseconds, date32, plain types and lists.
    return bool(
        (pt.is_timestamp(source) and pt.is_timestamp(target) and bool(source.tz) == bool(target.tz))
        or (pt.is_time(source) and pt.is_time(target))
        or (is_any_string(source) and is_any_string(target))
        or (is_any_binary(source) and is_any_binary(target))
        or (is_any_list(source) and is_any_list(target))
    )


def _cut(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cut chunks that hold too many bytes for 31-bit offsets."""
    if all(size_in_memory(chunk) <= _MAX_CHUNK_BYTES for chunk in column.chunks):
        return column
    parts: list[pa.Array] = []
    pending = list(reversed(column.chunks))
    while pending:
        chunk = pending.pop()
        if size_in_memory(chunk) <= _MAX_CHUNK_BYTES or len(chunk) < 2:  # noqa: PLR2004
            parts.append(chunk)
            continue
        half = len(chunk) // 2
        pending += [chunk.slice(half), chunk.slice(0, half)]
    return pa.chunked_array(parts, column.type)


def _check_text(array: pa.Array, path: str) -> None:
    """Refuse text that is not UTF-8. Files of other writers may have it, and every reader would fail on it.

    45 ms for 1.2 million lineitem rows, whose text takes 100 MB.
    """
    if not _has_text(array.type):
        return
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as cause:
        raise InvalidDataError(f"column {path!r} has broken values: {cause}", column=path) from cause


def _has_text(data_type: pa.DataType) -> bool:
    if pt.is_dictionary(data_type):
        return _has_text(data_type.value_type)
    return is_any_string(data_type) or any(_has_text(child.type) for child in child_fields(data_type))


def _check_values(array: pa.Array, data_type: pa.DataType, path: str) -> None:
    """Refuse values that Parquet cannot keep: times of day in date64, seconds that milliseconds cannot count."""
    stored = _stored_type(data_type)
    if stored is not None:
        try:
            array.cast(stored, safe=True)
        except pa.ArrowInvalid as cause:
            raise InvalidDataError(
                f"column {path!r}: a value of {type_to_text(data_type)} cannot be stored in Parquet: {cause}",
                column=path,
            ) from cause
    if not _has_stored_type(data_type):
        return
    for child, (values, _) in zip(child_fields(data_type), _children(array), strict=True):
        _check_values(values, child.type, f"{path}.{child.name}")


def _stored_type(data_type: pa.DataType) -> pa.DataType | None:
    if pt.is_dictionary(data_type):
        return _stored_type(data_type.value_type)
    if pt.is_date64(data_type):
        return pa.date32()
    if pt.is_timestamp(data_type) and data_type.unit == "s":
        return pa.timestamp("ms", data_type.tz)
    return None


def _fill_hidden(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not has_required(column.type):
        return column
    return pa.chunked_array([fill_hidden(chunk) for chunk in column.chunks], column.type)


def _has_stored_type(data_type: pa.DataType) -> bool:
    """Return whether any nested type is stored as another."""
    return any(
        _stored_type(child.type) is not None or _has_stored_type(child.type)
        for child in child_fields(data_type)
    )


def _check_nulls(column: pa.ChunkedArray, target: pa.Field) -> None:
    if target.nullable and not has_required(target.type):
        return
    counts: dict[str, int] = {}
    for chunk in column.chunks:
        _count_nulls(chunk, target, target.name, counts)
    for path, count in counts.items():
        raise InvalidDataError(
            f"column {path!r} may not be null, but {count} of its values are; fill them, or leave these rows out",
            column=path,
            null_count=count,
        )


def _count_nulls(array: pa.Array, target: pa.Field, path: str, counts: dict[str, int]) -> None:
    """Add up the nulls of fields that may not be null, where their parent is not null."""
    if not target.nullable and array.null_count:
        counts[path] = counts.get(path, 0) + array.null_count
    if not has_required(target.type):
        return
    for child, (values, name) in zip(child_fields(target.type), _children(array), strict=True):
        _count_nulls(values, child, f"{path}.{name}", counts)


def _children(array: pa.Array) -> list[tuple[pa.Array, str]]:
    """Return the nested values of the rows that are not null, with their names."""
    valid = array.drop_null() if array.null_count else array
    if pt.is_struct(valid.type):
        return [(valid.field(i), one.name) for i, one in enumerate(valid.type)]
    if pt.is_map(valid.type):
        first, last = valid.offsets[0].as_py(), valid.offsets[-1].as_py()
        return [
            (valid.keys.slice(first, last - first), "key"),
            (valid.items.slice(first, last - first), "value"),
        ]
    return [(valid.flatten(), "element")]
