"""Curves of Iceberg tables: sorts whose boundaries are in a property of the table, beside the key that names them.

`tblctl.curve.HASH` has the boundaries of one curve; HASH is that of its kind and its columns' ids. The value is JSON,
deflated, in base64. Keys of files of other boundaries do not compare. So without the property, or if it cannot be read,
new boundaries are made, and earlier files count as in another order.
"""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.errors import ConflictError, InvalidKeyError
from tblctl.tableformat.iceberg.schema import sort_by, sort_number
from tblctl.tableformat.keys.sampling import groups_at, ranges_of_blocks, sample_of, sampled_offsets
from tblctl.tableformat.model.cluster_key import Key, Sort
from tblctl.tableformat.model.curve import BITS, Ranges, frozen, ranges_of
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from tblctl.tableformat.iceberg.data_storage import DataStorage
    from tblctl.tableformat.iceberg.reading.data_file import DataFile
    from tblctl.tableformat.iceberg.reading.inputs import Inputs
    from tblctl.tableformat.iceberg.version import IcebergVersion

LOG = logging.getLogger("tblctl")

PREFIX = "tblctl.curve."

MOST_CHARACTERS = 30_000
"""Of a property: Hive's metastore keeps 32,672 in its default database. Two columns of random numbers of 64 bits take
about 20,000. Of longer texts every second boundary is left out, until they fit."""

_MOST_BYTES = 2**22
"""Of the JSON of boundaries: what a property of damaged or hostile content may grow to in memory."""


class Curves:
    """The curves of one table. All its versions that share this get the same boundaries for one key.

    Args:
        storages: returns what reads the data files of a version.
    """

    def __init__(self, storages: Callable[[IcebergVersion], DataStorage]) -> None:
        self._storages = storages
        self._made: dict[Key, Sort] = {}

    def apart(self) -> Curves:
        """Return curves that share nothing with these: boundaries are made anew where the table has none."""
        return Curves(self._storages)

    def sort(
        self, key: Key, version: IcebergVersion, *, renews: bool = False, needs_rows: bool = True
    ) -> Sort:
        """Return the sort of a curve: that of the table's property, else the one made here, else a new one.

        Args:
            key: a curve.
            version: of the table; rows are read of it.
            renews: leave the property out.
            needs_rows: refuse to make boundaries without rows. Otherwise there are none then, and they are not kept.

        Raises:
            InvalidKeyError: boundaries are needed, and there are no rows.
        """
        found = None if renews else stored_sort(version.metadata.properties, key, version.schema)
        if found is not None:
            return found
        if key not in self._made and not needs_rows and not int(version.files.row_count.sum()):
            kinds = [statistic_type(leaf.type) for leaf in _leaves(key, version.schema)]
            nothing = Ranges(
                bits=BITS[len(kinds)],
                boundaries=tuple(pa.array([], kind) for kind in kinds),
                places=((),) * len(kinds),
            )
            return sort_by(key.terms, key.kind, nothing.to_parameters())
        if key not in self._made:
            ranges = _ranges_of_version(version, self._storages(version), key)
            self._made[key] = fitting_sort(key, ranges)
        return self._made[key]


def property_of(key: Key) -> str:
    """Return the name of the property with a curve's boundaries."""
    return f"{PREFIX}{sort_number(key.kind, key.terms):012x}"


def stored_sort(properties: Mapping[str, str], key: Key, schema: Schema) -> Sort | None:
    """Return the sort of a curve whose boundaries a property has; None if none has them."""
    name = property_of(key)
    text = properties.get(name)
    if text is None:
        return None
    try:
        found = _sort_of_text(key, text)
        for boundaries, leaf in zip(
            ranges_of(found.parameters).boundaries, _leaves(key, schema), strict=True
        ):
            boundaries.cast(statistic_type(leaf.type))
    except (ValueError, TypeError, pa.ArrowException, OverflowError, RecursionError, zlib.error) as error:
        LOG.warning("the property %s has no boundaries of this curve, new ones are made: %s", name, error)
        return None
    return found


def properties_of(sort: Sort) -> dict[str, str]:
    """Return the property that keeps a curve's boundaries; none for another sort."""
    return {property_of(Key(kind=sort.kind, terms=sort.terms)): _text_of(sort)} if sort.is_curve else {}


def is_kept(sort: Sort, properties: Mapping[str, str], schema: Schema) -> bool:
    """Return whether the id of a sort follows from it, and no property has other boundaries of a curve."""
    key = Key(kind=sort.kind, terms=sort.terms)
    kept = stored_sort(properties, key, schema) if key.is_curve else None
    return sort == (kept or sort_by(sort.terms, sort.kind, sort.parameters))


def require_same(
    location: str, wanted: Mapping[str, str], *, base: TableMetadata, head: TableMetadata
) -> None:
    """Refuse to set properties over boundaries that another writer has set since the plan.

    Raises:
        ConflictError: it did.
    """
    for name in wanted:
        if not name.startswith(PREFIX):
            continue
        found = head.properties.get(name)
        if found not in {None, base.properties.get(name), wanted[name]}:
            msg = (
                f"{location}: another recluster has set other boundaries ({name}) since the plan; plan again"
            )
            raise ConflictError(msg)


def fitting_sort(key: Key, ranges: Ranges) -> Sort:
    """Return the sort of a curve with as many of the boundaries as a property holds."""
    while True:
        sort = sort_by(key.terms, key.kind, ranges.to_parameters())
        if len(_text_of(sort)) <= MOST_CHARACTERS:
            return sort
        texts = [len(json.dumps(values)) for values in dict(sort.parameters)["boundaries"]]
        longest = int(np.argmax(texts))
        halved = [
            _halved(values, places) if place == longest else (values, places)
            for place, (values, places) in enumerate(zip(ranges.boundaries, ranges.places, strict=True))
        ]
        boundaries, places = zip(*halved, strict=True)
        ranges = replace(ranges, boundaries=boundaries, places=places)


def _halved(values: pa.Array, places: tuple[int, ...]) -> tuple[pa.Array, tuple[int, ...]]:
    """Return every second boundary, and the last one; none of two. A wider range has the middle one's place."""
    count = len(values)
    kept = np.union1d(np.arange(0, count, 2), [count - 1]) if count > 2 else np.zeros(0, np.int64)  # noqa: PLR2004
    first, last = np.concatenate(([0], kept + 1)), np.concatenate((kept, [count]))
    fewer = tuple(places[middle] for middle in ((first + last) // 2).tolist()) if places else ()
    return values.take(pa.array(kept)), fewer


def _text_of(sort: Sort) -> str:
    data = json.dumps(dict(sort.parameters), separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _sort_of_text(key: Key, text: str) -> Sort:
    inflater = zlib.decompressobj()
    data = inflater.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
    if not inflater.eof:
        raise ValueError("it is cut, or too long")
    parameters = json.loads(data)
    if not isinstance(parameters, dict):
        raise ValueError("expected an object")  # noqa: TRY004
    return sort_by(key.terms, key.kind, tuple((name, frozen(item)) for name, item in parameters.items()))


def _leaves(key: Key, schema: Schema) -> list[Leaf]:
    return [leaf for term in key.terms if (leaf := schema.leaf_by_id(term.column_id)) is not None]


def _ranges_of_version(version: IcebergVersion, storages: DataStorage, key: Key) -> Ranges:
    """Return boundaries from a sample of the rows, deleted ones among them, and from the bounds of other files."""
    from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
    from tblctl.tableformat.iceberg.reading.inputs import Inputs

    leaves = _leaves(key, version.schema)
    statistics = version.statistics(leaves)
    if not int(statistics.row_count.sum()):
        names = ", ".join(leaf.name for leaf in leaves)
        msg = (
            f"a curve through {names} takes its boundaries from rows, and {version.location} has none: "
            "append rows first"
        )
        raise InvalidKeyError(msg)
    inputs = Inputs(version, storages)
    offsets = sampled_offsets(np.where(_is_readable(version), statistics.row_count, 0))
    files = [version.data_file(version.block_at(row)) for row in offsets]
    columns = sort_by(key.terms)
    kinds = [statistic_type(leaf.type) for leaf in leaves]
    samples = in_parallel(
        lambda item: _sample(inputs, *item, columns, kinds),
        list(zip(files, offsets.values(), strict=True)),
        threads=IO_THREADS,
    )
    return ranges_of_blocks(dict(zip(offsets, samples, strict=True)), statistics, leaves)


def _is_readable(version: IcebergVersion) -> np.ndarray:
    """Return which files are plain Parquet. Of others only their bounds count."""
    entries = version.files.entries
    is_parquet = pc.equal(pc.utf8_upper(entries.format), "PARQUET").to_numpy(zero_copy_only=False)
    return np.asarray(is_parquet & ~entries.encrypted, bool)


def _sample(
    inputs: Inputs, file: DataFile, offsets: Sequence[int], columns: Sort, kinds: Sequence[pa.DataType]
) -> pa.Table:
    """Return the columns of some rows of the row groups of a file that have the rows at `offsets`."""
    with inputs.open(file) as reader:
        rows = reader.keys(groups_at(offsets, reader.group_rows), columns)
    found = [values.cast(kind) for values, kind in zip(rows.columns, kinds, strict=True)]
    return sample_of(pa.table(found, names=rows.column_names), len(offsets))
