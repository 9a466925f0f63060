"""The cluster key of a snapshot of an Iceberg table, as its metadata name it: what the sort is made from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tblctl.tableformat.errors import InvalidKeyError
from tblctl.tableformat.iceberg.schema import is_usable, sort_of
from tblctl.tableformat.model.cluster_key import Key, parse_key
from tblctl.tableformat.model.curve import SAME, means_same
from tblctl.tableformat.model.schema.schema import Schema

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

CLUSTER_BY = "tblctl.cluster-by"
"""The table property with the cluster key's terms. It takes the place of the table's sort order."""


@dataclass(frozen=True, kw_only=True)
class NamedKey:
    """A cluster key without its boundaries.

    Attributes:
        key: its kind and terms; None if the table has none.
        renews: a curve is to have new boundaries; a tree was given, and is to be grown.
    """

    key: Key | None
    renews: bool = False


def named_key(
    location: str,
    metadata: TableMetadata,
    schema: Schema,
    current: Schema,
    given: str | Sequence[str] | None,
) -> NamedKey:
    """Return the cluster key: the one given, else that of the property `tblctl.cluster-by`, else the sort order.

    Args:
        location: of the table, for people.
        metadata: of the table.
        schema: the snapshot's columns. One that lacks some has the terms before these, and none of a curve.
        current: the table's columns as they are called now. The property names these.
        given: by the caller; may be `SAME`.

    Raises:
        InvalidKeyError: the key that counts is not valid.
    """
    if given is None:
        return NamedKey(key=_key_of_table(location, metadata, schema, current))
    if not "".join(given).strip():
        raise InvalidKeyError("cluster_by names no term, expected columns such as 'a, b'")
    if not means_same(given, schema.names, is_curve=_has_curve(metadata, current)):
        named = parse_key(given, schema)
        return NamedKey(key=named, renews=named.tree is not None)
    key = _key_of_table(location, metadata, schema, current)
    if key is None or not key.is_curve:
        present = f"is {', '.join(key.texts(schema))}" if key else "is not set"
        msg = f"`{SAME}` makes new boundaries for a zorder or hilbert key, but the cluster key {present}"
        if key and key.tree:
            msg += "; type it again to grow a new tree from its file"
        raise InvalidKeyError(msg)
    return NamedKey(key=key, renews=True)


def _has_curve(metadata: TableMetadata, current: Schema) -> bool:
    try:
        return parse_key(metadata.properties.get(CLUSTER_BY, ""), current).is_curve
    except InvalidKeyError:
        return False


def _key_of_table(location: str, metadata: TableMetadata, schema: Schema, current: Schema) -> Key | None:
    given = metadata.properties.get(CLUSTER_BY)
    if given is None:
        order = metadata.sort_order_by_id(metadata.default_sort_order_id)
        sort = None if order is None else sort_of(order, schema)
        return None if sort is None else Key(terms=sort.terms)
    try:
        key = parse_key(given, current)
    except InvalidKeyError as error:
        msg = (
            f"{location}: the property {CLUSTER_BY} is {given!r:.200}: {error}; "
            "correct the property, or name a key: `--columns a,b` to measure, `recluster --cluster-by a,b` to plan"
        )
        raise InvalidKeyError(msg) from error
    if key.tree:
        return key
    terms = tuple(itertools.takewhile(lambda term: is_usable(term, schema), key.terms))
    if not terms or (key.is_curve and terms != key.terms):
        return None
    return Key(kind=key.kind, terms=terms)


def kept_key_text(kept: str, wanted: str, sql_name: str) -> str:
    """Say that a table keeps its cluster key, or still has none, and how it gets the one that was given."""
    stays = f"the table's cluster key stays {kept}" if kept else "the table still has no cluster key"
    value = wanted.replace("'", "\\'")
    return (
        f"nothing was committed, so {stays}: the first merge by {wanted} makes that the key. To set it now, in "
        f"Spark: ALTER TABLE {sql_name} SET TBLPROPERTIES ('{CLUSTER_BY}' = '{value}')"
    )
