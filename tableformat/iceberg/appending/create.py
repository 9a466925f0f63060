"""Make an Iceberg table for the rows of files: types that Iceberg has, field ids, a sort order, no partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import ConflictError, InvalidKeyError, InvalidOptionError, InvalidSchemaError
from tblctl.tableformat.iceberg.catalog import catalog_errors, open_catalog
from tblctl.tableformat.iceberg.location import IcebergLocation
from tblctl.tableformat.model.cluster_key import parse_key
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.schema.types import (
    child_fields,
    is_any_binary,
    is_any_list,
    is_any_string,
    map_children,
)

if TYPE_CHECKING:
    from pyiceberg.table.sorting import SortOrder

_INT_BITS = 32
_MOST_DIGITS = 38


def create_table(
    location: IcebergLocation,
    options: Mapping[str, str],
    schema: pa.Schema,
    cluster_by: str | Sequence[str],
) -> None:
    """Create a table with some columns, unpartitioned, with the cluster key as its sort order.

    Raises:
        ConflictError: there is one meanwhile. It is left as it is.
        InvalidSchemaError: columns have types that Iceberg has not; lists all.
        InvalidKeyError: the cluster key is not valid, or is a curve or a tree.
        InvalidOptionError: there is no such namespace.
        StorageError, AccessDeniedError: the catalog cannot be reached, or refuses.
    """
    from pyiceberg import exceptions
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    columns = Schema.create(storable(schema))
    order = _order_of(cluster_by, columns)
    catalog = open_catalog(location.catalog, options)
    with catalog_errors(str(location), {**catalog.properties, **options}):
        try:
            catalog.create_table(location.table, pyarrow_to_schema(columns.arrow), sort_order=order)
        except exceptions.NoSuchNamespaceError as error:
            space = ".".join(location.table[:-1])
            msg = (
                f"catalog {location.catalog} has no namespace {space!r:.200}: create it first, in Spark by "
                f"`CREATE NAMESPACE {location.catalog}.{space}`, in PyIceberg by `pyiceberg create namespace {space}`"
            )
            raise InvalidOptionError(msg) from error
        except exceptions.TableAlreadyExistsError as error:
            msg = f"{location} was created meanwhile, maybe by another import: import again, which takes what is new"
            raise ConflictError(msg) from error


def storable(schema: pa.Schema) -> pa.Schema:
    """Return columns in the types that Iceberg has. Pure.

    They hold all values, but for nanoseconds, which become microseconds (tables of format version 2 have no others),
    and unsigned 64 bits, which become signed ones: a value that does not fit is refused when it is written.

    Raises:
        InvalidSchemaError: lists every column for which there is none.
    """
    problems: list[str] = []
    found = [column.with_type(_type_of(column.type, column.name, problems)) for column in schema]
    if problems:
        raise InvalidSchemaError("an Iceberg table cannot have these columns: " + "; ".join(problems))
    return pa.schema(found)


def _type_of(kind: pa.DataType, path: str, problems: list[str]) -> pa.DataType:
    if pt.is_dictionary(kind):
        return _type_of(kind.value_type, path, problems)
    if is_any_list(kind):
        element = kind.value_field
        return pa.list_(element.with_type(_type_of(element.type, f"{path}.element", problems)))
    if child_fields(kind):
        return map_children(
            kind,
            lambda child: child.with_type(_type_of(child.type, f"{path}.{child.name}", problems)),
        )
    found = _plain_type(kind)
    if found is None:
        problems.append(f"{path} is {kind}, which Iceberg has no type for")
        return kind
    return found


def _plain_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of Iceberg's for one without children; None if there is none."""
    if pt.is_integer(kind):
        signed = pt.is_signed_integer(kind)
        if kind.bit_width < _INT_BITS or (signed and kind.bit_width == _INT_BITS):
            return pa.int32()
        return pa.int64()
    if pt.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pt.is_time(kind):
        return pa.time64("us")
    if pt.is_decimal(kind):
        fits = kind.precision <= _MOST_DIGITS and 0 <= kind.scale <= kind.precision
        return pa.decimal128(kind.precision, kind.scale) if fits else None
    for known, taken in (
        (is_any_string, pa.string()),
        (is_any_binary, pa.binary()),
        (pt.is_float16, pa.float32()),
        (pt.is_date, pa.date32()),
    ):
        if known(kind):
            return taken
    same = (pt.is_boolean, pt.is_float32, pt.is_float64, pt.is_fixed_size_binary)
    return kind if any(known(kind) for known in same) else None


def _order_of(cluster_by: str | Sequence[str], columns: Schema) -> SortOrder:
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
    from pyiceberg.transforms import parse_transform

    if not "".join(cluster_by).strip():
        return UNSORTED_SORT_ORDER
    key = parse_key(cluster_by, columns)
    if key.is_layout:
        msg = (
            f"an Iceberg table's sort order cannot be a {key.kind}: import without a cluster key, then "
            f"`tblctl recluster LOC --cluster-by {', '.join(key.texts(columns))!r}`"
        )
        raise InvalidKeyError(msg)
    return SortOrder(
        *(
            SortField(
                source_id=term.column_id,
                transform=parse_transform(term.transform),
                direction=SortDirection.DESC if term.descending else SortDirection.ASC,
                null_order=NullOrder.NULLS_FIRST if term.nulls_first else NullOrder.NULLS_LAST,
            )
            for term in key.terms
        )
    )
