"""Turn arrays of one type into another that holds the same values: reorder, fill, cast, at any depth.

Used in both directions: incoming data to a table's columns (matched by name) and a file's columns to a table's
present schema (matched by id). A `Shape` is decided once for each pair of types; `reshape` applies it to every array.
Equal parts are passed on without a copy.

Casts are always checked: a value that does not fit is an error, never another value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import InvalidDataError
from tblctl.tableformat.model.schema.types import child_fields

Matcher = Callable[[pa.Field, Sequence[pa.Field]], int | None]
"""Returns the position of a target field among source fields, or None if it is not there."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How one array becomes another; `path` names the column in errors.

    `action` is keep, missing (all null), storage (unwrap an extension, then `children[0]`), cast (no nesting), or
    rebuild (of `target`'s children; `sources` has the source position of each, -1 for none).
    """

    action: str
    target: pa.DataType
    path: str
    children: tuple[Shape, ...] = ()
    sources: tuple[int, ...] = ()


def plan_shape(source: pa.DataType, target: pa.DataType, match: Matcher, path: str) -> Shape:
    """Decide how arrays of `source` become arrays of `target`, both types already known to fit."""
    if isinstance(source, pa.BaseExtensionType):
        inner = plan_shape(source.storage_type, target, match, path)
        return Shape(action="storage", target=target, path=path, children=(inner,))
    if not child_fields(target) or pt.is_null(source):
        if source == target and not pt.is_dictionary(target):
            return Shape(action="keep", target=target, path=path)
        return Shape(action="cast", target=target, path=path)
    source_children, target_children = child_fields(source), child_fields(target)
    if not source_children or pt.is_struct(source) != pt.is_struct(target):
        raise ValueError(f"column {path}: {source} cannot be read as {target}")
    in_struct = pt.is_struct(target)
    sources: list[int] = []
    children: list[Shape] = []
    for position, child in enumerate(target_children):
        found = match(child, source_children) if in_struct else position
        sources.append(-1 if found is None else found)
        inner_path = f"{path}.{child.name}"
        if found is None:
            children.append(Shape(action="missing", target=child.type, path=inner_path))
        else:
            children.append(plan_shape(source_children[found].type, child.type, match, inner_path))
    if source == target and all(shape.action == "keep" for shape in children) and _in_order(sources):
        return Shape(action="keep", target=target, path=path)
    return Shape(action="rebuild", target=target, path=path, children=tuple(children), sources=tuple(sources))


def reshape(array: pa.Array, shape: Shape) -> pa.Array:
    """Return the array in the shape's target type.

    Raises:
        InvalidDataError: a value does not fit the target type; names the column.
    """
    if shape.action == "keep":
        return array
    if shape.action == "missing":
        return pa.nulls(len(array), shape.target)
    if shape.action == "storage":
        storage = array.storage
        if pt.is_boolean(shape.target) and pt.is_int8(storage.type):  # bool8: any number but 0 is true
            return storage.cast(pa.bool_())
        return reshape(storage, shape.children[0])
    if shape.action == "cast":
        return _cast(array, shape.target, shape.path)
    if pt.is_struct(shape.target):
        return _rebuild_struct(array, shape)
    if pt.is_map(shape.target):
        return _rebuild_map(array, shape)
    return _rebuild_list(array, shape)


def reshape_column(column: pa.ChunkedArray, shape: Shape) -> pa.ChunkedArray:
    """Return all chunks of a column reshaped. Errors as `reshape`."""
    if shape.action == "keep":
        return column
    return pa.chunked_array([reshape(chunk, shape) for chunk in column.chunks], shape.target)


def has_required(data_type: pa.DataType) -> bool:
    """Return whether any field nested in a type may not be null (a map's key is one)."""
    return any(not child.nullable or has_required(child.type) for child in child_fields(data_type))


def fill_hidden(array: pa.Array) -> pa.Array:
    """Return an array of a read type without physical nulls in nested fields that may not be null.

    Such nulls only occur inside a null parent (visible ones were refused before), so they mean nothing. But the Parquet
    writer refuses them. Returns the array itself if there are none.
    """
    data_type = array.type
    if not has_required(data_type):
        return array
    mask = array.is_null() if array.null_count else None
    if pt.is_struct(data_type):
        before = [array.field(i) for i in range(data_type.num_fields)]
        after = [_filled(child, field) for child, field in zip(before, data_type, strict=True)]
        if all(one is other for one, other in zip(before, after, strict=True)):
            return array
        return pa.StructArray.from_arrays(after, fields=list(data_type), mask=mask)
    if pt.is_fixed_size_list(data_type):
        size = data_type.list_size
        values = array.values.slice(array.offset * size, len(array) * size)
        filled = _filled(values, data_type.value_field)
        return (
            array
            if filled is values
            else pa.FixedSizeListArray.from_arrays(filled, type=data_type, mask=mask)
        )
    fields = child_fields(data_type)
    children = (array.keys, array.items) if pt.is_map(data_type) else (array.values,)
    offsets, parts = _offsets_and_children(array, children)
    full = [_filled(part, field) for part, field in zip(parts, fields, strict=True)]
    if all(one is other for one, other in zip(parts, full, strict=True)):
        return array
    if pt.is_map(data_type):
        return pa.MapArray.from_arrays(offsets, *full, type=data_type, mask=mask)
    kind = pa.LargeListArray if pt.is_large_list(data_type) else pa.ListArray
    return kind.from_arrays(offsets, *full, type=data_type, mask=mask)


def _filled(array: pa.Array, field: pa.Field) -> pa.Array:
    if not field.nullable and array.null_count:
        import numpy as np

        places = np.where(array.is_null().to_numpy(zero_copy_only=False), len(array), np.arange(len(array)))
        array = pa.concat_arrays([array, _placeholder(field.type)]).take(pa.array(places))
    return fill_hidden(array)


def _placeholder(data_type: pa.DataType, count: int = 1) -> pa.Array:
    """Return an array of a value that is not null: 0 or empty, also in nested fields."""
    if pt.is_struct(data_type):
        fields = list(data_type)
        return pa.StructArray.from_arrays(
            [_placeholder(field.type, count) for field in fields], fields=fields
        )
    if pt.is_fixed_size_list(data_type):
        values = _placeholder(data_type.value_type, count * data_type.list_size)
        return pa.FixedSizeListArray.from_arrays(values, type=data_type)
    if child_fields(data_type):
        # Not pa.array([[]]): that has no converter for dictionaries of dates inside
        nothing = [pa.nulls(0, child.type) for child in child_fields(data_type)]
        large = pt.is_large_list(data_type)
        offsets = pa.array([0] * (count + 1), pa.int64() if large else pa.int32())
        kind = pa.MapArray if pt.is_map(data_type) else pa.LargeListArray if large else pa.ListArray
        return kind.from_arrays(offsets, *nothing, type=data_type)
    if pt.is_dictionary(data_type):
        return pa.DictionaryArray.from_arrays(
            pa.array([0] * count, data_type.index_type), _placeholder(data_type.value_type)
        )
    if pt.is_temporal(data_type):
        bits = pa.int32() if data_type.bit_width == 32 else pa.int64()  # noqa: PLR2004
        return pa.array([0] * count, bits).cast(data_type)
    if pt.is_fixed_size_binary(data_type):
        return pa.array([bytes(data_type.byte_width)] * count, data_type)
    empty = "" if pt.is_string(data_type) or pt.is_large_string(data_type) else 0
    if pt.is_binary(data_type) or pt.is_large_binary(data_type):
        return pa.array([b""] * count, data_type)
    return pa.array([bool(empty) if pt.is_boolean(data_type) else empty] * count, data_type)


def _in_order(sources: Sequence[int]) -> bool:
    return list(sources) == list(range(len(sources)))


def _cast(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    if pt.is_null(array.type):
        return pa.nulls(len(array), target)
    try:
        if pt.is_dictionary(target):
            return _as_dictionary(array, target)
        if pt.is_dictionary(array.type):
            array = array.dictionary_decode()
        return array if array.type == target else array.cast(target, safe=True)
    except pa.ArrowInvalid as cause:
        raise InvalidDataError(
            f"column {path!r}: a value does not fit {target}: {cause}", column=path
        ) from cause


def _as_dictionary(array: pa.Array, target: pa.DataType) -> pa.Array:
    if not pt.is_dictionary(array.type):
        return array.cast(target.value_type, safe=True).dictionary_encode()
    if array.dictionary.null_count:  # a null may be among the values, which the null count does not show
        return array.dictionary_decode().cast(target.value_type, safe=True).dictionary_encode()
    if array.type == target:
        return array
    indices = array.indices.cast(target.index_type, safe=True)
    return pa.DictionaryArray.from_arrays(indices, array.dictionary.cast(target.value_type, safe=True))


def _rebuild_struct(array: pa.Array, shape: Shape) -> pa.Array:
    mask = array.is_null() if array.null_count else None
    # Values of a field inside a null struct mean nothing and may not fit the type: flatten() makes them null.
    fields = array.flatten() if array.null_count else [array.field(i) for i in range(array.type.num_fields)]
    children = [
        pa.nulls(len(array), child.target) if source < 0 else reshape(fields[source], child)
        for source, child in zip(shape.sources, shape.children, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(shape.target), mask=mask)


def _rebuild_map(array: pa.Array, shape: Shape) -> pa.Array:
    mask = array.is_null() if array.null_count else None
    offsets, (keys, values) = _offsets_and_children(array, (array.keys, array.items))
    if array.null_count:
        offsets, keys, values = _without_hidden_entries(array, offsets, keys, values)
    key_shape, value_shape = shape.children
    return pa.MapArray.from_arrays(
        offsets, reshape(keys, key_shape), reshape(values, value_shape), type=shape.target, mask=mask
    )


def _rebuild_list(array: pa.Array, shape: Shape) -> pa.Array:
    (element,) = shape.children
    mask = array.is_null() if array.null_count else None
    if pt.is_fixed_size_list(shape.target):
        values = _elements_of_fixed_size(array, shape)
        return pa.FixedSizeListArray.from_arrays(reshape(values, element), type=shape.target, mask=mask)
    if pt.is_fixed_size_list(array.type):
        array = array.cast(pa.large_list(array.type.value_field))
    if pt.is_list_view(array.type) or pt.is_large_list_view(array.type):
        offsets, values = _offsets_of_sizes(array, array.sizes)
    elif array.null_count and _hides_values(array):
        offsets, values = _offsets_of_sizes(array, array.value_lengths())
    else:
        offsets, (values,) = _offsets_and_children(array, (array.values,))
    large = pt.is_large_list(shape.target)
    kind = pa.LargeListArray if large else pa.ListArray
    try:
        offsets = offsets.cast(pa.int64() if large else pa.int32())
    except pa.ArrowInvalid as cause:
        raise InvalidDataError(
            f"column {shape.path!r}: more than {2**31 - 1} elements in one batch do not fit {shape.target}; "
            "append smaller batches, or use large_list",
            column=shape.path,
        ) from cause
    return kind.from_arrays(offsets, reshape(values, element), type=shape.target, mask=mask)


def _elements_of_fixed_size(array: pa.Array, shape: Shape) -> pa.Array:
    """Return the elements of fixed-size lists, or of lists of that size, as Parquet returns them.

    The lists are not cast: pyarrow 26 makes an invalid array from a list of maps whose values are of type null.
    """
    import numpy as np
    import pyarrow.compute as pc

    size = shape.target.list_size
    if pt.is_fixed_size_list(array.type):
        values = array.values.slice(array.offset * size, len(array) * size)
        return _without_hidden(values, array, size) if array.null_count else values
    if pc.any(pc.not_equal(array.value_lengths(), size)).as_py():
        raise InvalidDataError(
            f"column {shape.path!r}: a list does not have the {size} elements of {shape.target}",
            column=shape.path,
        )
    if not array.null_count:
        return array.flatten()
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    starts = (np.cumsum(valid) - 1) * size
    places = (starts[:, None] + np.arange(size)).ravel()
    return array.flatten().take(pa.array(places, mask=np.repeat(~valid, size)))


def _offsets_and_children(array: pa.Array, children: tuple[pa.Array, ...]) -> tuple[pa.Array, list[pa.Array]]:
    """Return offsets from 0 of a list or map, and its children cut to what the array covers.

    A slice shares the children of the whole. Without the cut, each batch of a large table would reshape all of them.
    """
    import pyarrow.compute as pc

    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    # A new array even if offsets begin at 0: with a null mask, from_arrays refuses offsets that are a slice
    offsets = pc.subtract(offsets, pa.scalar(first, offsets.type)) if first or array.offset else offsets
    return offsets, [child.slice(first, last - first) for child in children]


def _offsets_of_sizes(array: pa.Array, sizes: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return int64 offsets and values of lists or list views, without values inside null lists.

    The values of views lie in any order. Views are not cast: pyarrow 26 drops the last list's values if they are null
    ([["x"], [null]] gives [["x"], []]).
    """
    import pyarrow.compute as pc

    ends = pc.cumulative_sum(pc.if_else(array.is_valid(), sizes.cast(pa.int64()), 0))
    return pa.concat_arrays([pa.array([0], pa.int64()), ends]), array.flatten()


def _hides_values(array: pa.Array) -> bool:
    """Return whether null lists of an array have values. Such values mean nothing, and may not fit the type."""
    return bool(len(array.flatten()) != array.offsets[-1].as_py() - array.offsets[0].as_py())


def _without_hidden_entries(
    array: pa.Array, offsets: pa.Array, keys: pa.Array, values: pa.Array
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return offsets, keys and values of maps, without entries inside null maps."""
    import pyarrow.compute as pc

    sizes = pc.if_else(array.is_valid(), pc.subtract(offsets.slice(1), offsets.slice(0, len(array))), 0)
    if pc.sum(sizes).as_py() == len(keys) or _has_view(array.type):  # views: see _without_hidden
        return offsets, keys, values
    kept = array.drop_null()
    ends = pc.cumulative_sum(sizes)
    _, (keys, values) = _offsets_and_children(kept, (kept.keys, kept.items))
    return pa.concat_arrays([pa.array([0], ends.type), ends]), keys, values


def _without_hidden(values: pa.Array, lists: pa.Array, size: int) -> pa.Array:
    """Return the elements of fixed-size lists, null where their list is null: memory there may be uninitialised.

    Views stay as they are: they cannot be taken, and their casts cannot fail.
    """
    import numpy as np

    if _has_view(values.type):
        return values
    hidden = np.repeat(lists.is_null().to_numpy(zero_copy_only=False), size)
    return values.take(pa.array(np.arange(len(values)), mask=hidden))


def _has_view(data_type: pa.DataType) -> bool:
    return bool(pt.is_string_view(data_type) or pt.is_binary_view(data_type)) or any(
        _has_view(child.type) for child in child_fields(data_type)
    )
