"""Iceberg's schemas and sort orders as tblctl's: columns keep their field ids."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tblctl.tableformat.model.cluster_key import NO_SORT, Sort, Term
from tblctl.tableformat.model.schema.field_ids import field_id, named_children, with_id
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import (
    child_fields,
    is_orderable,
    strip_extension,
    with_child_fields,
)

if TYPE_CHECKING:
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table.sorting import SortField, SortOrder
    from pyiceberg.types import NestedField

_TRANSFORMS = ("identity", "year", "month", "day", "hour", "truncate", "bucket")
_ID_BITS = 48


def schema_of(iceberg: IcebergSchema) -> Schema:
    """Return the columns with their field ids. A column of a type that Arrow cannot hold is shown as binary."""
    columns = [_column(field) for field in iceberg.fields]
    return Schema(arrow=pa.schema(columns), last_column_id=max(iceberg.highest_field_id, 1))


def _column(field: NestedField) -> pa.Field:
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema as IcebergSchema

    try:
        return _plain(schema_to_pyarrow(IcebergSchema(field)).field(0))
    except (TypeError, ValueError, NotImplementedError):
        return with_id(pa.field(field.name, pa.binary(), nullable=not field.required), field.field_id)


def _plain(field: pa.Field) -> pa.Field:
    """Return the field with its id as its only metadata, nested fields too, in types without extensions."""
    plain = _small(field.type if child_fields(field.type) else strip_extension(field.type))
    children = tuple(_plain(child) for child in child_fields(plain))
    if children:
        plain = with_child_fields(plain, named_children(plain, children))
    id_ = field_id(field)
    if id_ is None:
        raise ValueError(f"field {field.name} has no id")
    return with_id(field.with_type(plain), id_)


def _small(kind: pa.DataType) -> pa.DataType:
    """Return the type with offsets of 32 bits: that of text, bytes and lists in files, which need no cast then."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return pa.list_(kind.value_field) if pa.types.is_large_list(kind) else kind


def sort_of(order: SortOrder, schema: Schema) -> Sort | None:
    """Return the table's sort order as a cluster key; None for an unsorted table.

    The terms from the first one on that tblctl cannot sort by are left out: a transform that it does not know, or a
    column that has no order. Rows in the whole order are in the order of the terms before it, too.
    """
    terms = [
        Term(
            column_id=field.source_id,
            transform=str(field.transform),
            descending=field.direction.value == "desc",
            nulls_first=field.null_order.value == "nulls-first",
        )
        for field in itertools.takewhile(_is_known, order.fields)
    ]
    return usable_sort(terms, schema)


def _is_known(field: SortField) -> bool:
    return str(field.transform).partition("[")[0] in _TRANSFORMS


def usable_sort(terms: Sequence[Term], schema: Schema) -> Sort | None:
    """Return the sort by the terms before the first one whose column a schema lacks, or has no order; None for none."""
    usable = list(itertools.takewhile(lambda term: is_usable(term, schema), terms))
    return sort_by(usable) if usable else None


def is_usable(term: Term, schema: Schema) -> bool:
    """Return whether a schema has the column of a term, with an order."""
    leaf = schema.leaf_by_id(term.column_id)
    return leaf is not None and is_orderable(leaf.type)


def sort_by(
    terms: Sequence[Term], kind: str = "linear", parameters: tuple[tuple[str, Any], ...] = ()
) -> Sort:
    """Return the sort of terms. Its id is a hash of all it is made of: everyone who sorts so gets the same id."""
    more = [parameters] if parameters else []
    id_ = sort_number(kind, terms, *more)
    return Sort(id=id_, kind=kind, terms=tuple(terms), parameters=parameters)


def sort_number(kind: str, terms: Sequence[Term], *more: Any) -> int:
    """Return a hash of a kind, of terms, and of JSON values: 48 bits, from 1."""
    texts = [[term.column_id, term.transform, term.descending, term.nulls_first] for term in terms]
    digest = hashlib.sha256(json.dumps([kind, texts, *more]).encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> (64 - _ID_BITS)) or 1


def claimed_sorts(
    order_ids: npt.NDArray[np.int64],
    sorts: Mapping[int, Sort],
    orders: Iterable[SortOrder],
    schema: Schema,
) -> npt.NDArray[np.int64]:
    """Return the live sort in whose order each file is, by its writer's claim; `NO_SORT` for none.

    A file's `sort_order_id` names an order of the table. Rows in it are in the order of its first terms, too. No order
    of Iceberg's is a curve or a tree.
    """
    found = np.full(len(order_ids), NO_SORT, np.int64)
    known = [(order.order_id, sort_of(order, schema)) for order in orders]
    for sort in sorts.values():
        if sort.is_layout:
            continue
        like = [id_ for id_, order in known if order and order.terms[: len(sort.terms)] == sort.terms]
        found[(found == NO_SORT) & np.isin(order_ids, like)] = sort.id
    return found
