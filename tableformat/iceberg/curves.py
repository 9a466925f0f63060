"""Curves and trees of Iceberg tables: sorts whose parameters are in a property of the table, beside the key's text.

`tblctl.curve.HASH` has the boundaries of one curve; HASH is that of its kind and its columns' ids. `tblctl.tree.HASH`
has a tree; HASH is that of the key's text. The value is JSON, deflated, in base64. Keys of files of other boundaries,
or of another tree, do not compare. So without the property, or if it cannot be read, new boundaries are made, and
earlier files count as in another order. A tree is only grown for a key that was given: a table must not say which file
is read.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.conditions import conditions_of
from tblctl.tableformat.errors import ConflictError, InvalidKeyError
from tblctl.tableformat.iceberg.log_place import log_place_of
from tblctl.tableformat.iceberg.schema import sort_by, sort_number
from tblctl.tableformat.keys.kinds import has_key_columns
from tblctl.tableformat.keys.linear import needed_leaf
from tblctl.tableformat.keys.sampling import groups_at, ranges_of_blocks, sample_of, sampled_offsets
from tblctl.tableformat.keys.tree_keys import test_of_cut
from tblctl.tableformat.keys.tree_making import TreeMaker
from tblctl.tableformat.model.cluster_key import Key, Sort, Term
from tblctl.tableformat.model.curve import Ranges, bare_parameters, frozen, ranges_of
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import statistic_type
from tblctl.tableformat.model.tree import TREE, tree_of
from tblctl.tableformat.workload.reader import ReadLog, read_log
from tblctl.tableformat.workload.typical import MOST_TYPICAL

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from tblctl.tableformat.iceberg.data_storage import DataStorage
    from tblctl.tableformat.iceberg.reading.data_file import DataFile
    from tblctl.tableformat.iceberg.reading.inputs import Inputs
    from tblctl.tableformat.iceberg.version import IcebergVersion
    from tblctl.tableformat.storage import Storage

LOG = logging.getLogger("tblctl")

PREFIX, TREE_PREFIX = "tblctl.curve.", "tblctl.tree."

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
        self,
        key: Key,
        version: IcebergVersion,
        *,
        renews: bool = False,
        needs_rows: bool = True,
        reads_rows: bool = True,
    ) -> Sort:
        """Return the sort of a layout: that of the table's property, else the one made here, else a new one.

        Args:
            key: a curve or a tree.
            version: of the table; rows are read of it.
            renews: leave the property out; of a tree: it was given, and is grown.
            needs_rows: refuse to make boundaries without rows. Otherwise there are none then, and they are not kept.
            reads_rows: make what is new. Otherwise a new curve has no boundaries, and a new tree is refused.

        Raises:
            InvalidKeyError: boundaries or a tree are needed, and there are no rows; or see `conditions_of`; or the
                property with the tree of the table's key is missing or wrong.
            InvalidPredicateError: a condition of a given tree is wrong.
        """
        found = None if renews else stored_sort(version.metadata.properties, key, version.schema)
        if found is not None:
            return found
        if key.tree:
            return self._tree(key, version, is_given=renews and reads_rows)
        has_none = not reads_rows or not (needs_rows or int(version.files.row_count.sum()))
        if key not in self._made and has_none:
            kinds = [leaf.type for leaf in _leaves(key, version.schema)]
            return sort_by(key.terms, key.kind, bare_parameters(kinds))
        if key not in self._made:
            ranges = _ranges_of_version(version, self._storages(version), key)
            self._made[key] = fitting_sort(key, ranges)
        return self._made[key]

    def _tree(self, key: Key, version: IcebergVersion, *, is_given: bool) -> Sort:
        if not is_given:
            msg = (
                f"{version.location}: the cluster key is {', '.join(key.texts(version.schema)):.300}, but the property "
                f"{property_of(key)} has no tree of columns that the table has; name a key: `recluster "
                "--cluster-by ..` grows a new tree, `--columns a,b` measures by columns"
            )
            raise InvalidKeyError(msg)
        if key not in self._made:
            self._made[key] = _tree_of_version(version, self._storages(version), key)
        return self._made[key]


def property_of(key: Key) -> str:
    """Return the name of the property with a curve's boundaries, or with a tree."""
    if key.tree:
        return _tree_property(key.tree.text)
    return f"{PREFIX}{sort_number(key.kind, key.terms):012x}"


def _tree_property(text: str) -> str:
    return f"{TREE_PREFIX}{sort_number(TREE, (), text):012x}"


def stored_sort(properties: Mapping[str, str], key: Key, schema: Schema) -> Sort | None:
    """Return the sort of a curve or tree whose parameters a property has; None if none has them."""
    return _stored(properties, property_of(key), key, schema)


def _stored(properties: Mapping[str, str], name: str, key: Key, schema: Schema) -> Sort | None:
    text = properties.get(name)
    if text is None:
        return None
    try:
        if name.startswith(TREE_PREFIX):
            return _tree_of_text(name, text, schema)
        found = _sort_of_text(key, text)
        for boundaries, leaf in zip(
            ranges_of(found.parameters).boundaries, _leaves(key, schema), strict=True
        ):
            boundaries.cast(statistic_type(leaf.type))
    except (ValueError, TypeError, pa.ArrowException, OverflowError, RecursionError, zlib.error) as error:
        LOG.warning("the property %s is not used, it has no parameters of this key: %s", name, error)
        return None
    return found


def properties_of(sort: Sort) -> dict[str, str]:
    """Return the property that keeps a curve's boundaries, or a tree; none for another sort."""
    if sort.kind == TREE:
        return {_tree_property(tree_of(sort.parameters).text): _text_of(sort)}
    return {property_of(Key(kind=sort.kind, terms=sort.terms)): _text_of(sort)} if sort.is_curve else {}


def is_kept(sort: Sort, properties: Mapping[str, str], schema: Schema) -> bool:
    """Return whether the id of a sort follows from it, and no property has other parameters for its key."""
    key = Key(kind=sort.kind, terms=sort.terms)
    name = next(iter(properties_of(sort)), None)
    kept = None if name is None else _stored(properties, name, key, schema)
    return sort == (kept or sort_by(sort.terms, sort.kind, sort.parameters))


def require_same(
    location: str, wanted: Mapping[str, str], *, base: TableMetadata, head: TableMetadata
) -> None:
    """Refuse to set properties over boundaries that another writer has set since the plan.

    Raises:
        ConflictError: it did.
    """
    for name in wanted:
        if not name.startswith((PREFIX, TREE_PREFIX)):
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
    return sort_by(key.terms, key.kind, _parameters_of_text(text))


def _tree_of_text(name: str, text: str, schema: Schema) -> Sort:
    parameters = _parameters_of_text(text)
    tree = tree_of(parameters)
    if _tree_property(tree.text) != name:
        raise ValueError("it has a tree of another key")
    found = sort_by([Term(column_id=column_id) for column_id, _ in tree.columns], TREE, parameters)
    for cut in tree.cuts:
        test_of_cut(cut, needed_leaf(cut.column_id, found, schema))
    if not has_key_columns(found, schema):
        raise ValueError("the table lacks a column of it")
    return found


def _parameters_of_text(text: str) -> tuple[tuple[str, Any], ...]:
    inflater = zlib.decompressobj()
    data = inflater.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
    if not inflater.eof:
        raise ValueError("it is cut, or too long")
    parameters = json.loads(data)
    if not isinstance(parameters, dict):
        raise ValueError("expected an object")  # noqa: TRY004
    return tuple((name, frozen(item)) for name, item in parameters.items())


def _leaves(key: Key, schema: Schema) -> list[Leaf]:
    return [leaf for term in key.terms if (leaf := schema.leaf_by_id(term.column_id)) is not None]


def _ranges_of_version(version: IcebergVersion, storages: DataStorage, key: Key) -> Ranges:
    """Return boundaries from a sample of the rows, deleted ones among them, and from the bounds of other files."""
    leaves = _leaves(key, version.schema)
    names = ", ".join(leaf.name for leaf in leaves)
    samples = _samples_of_version(
        version, storages, leaves, f"a curve through {names} takes its boundaries from rows"
    )
    return ranges_of_blocks(samples, version.statistics(leaves), leaves)


def _tree_of_version(version: IcebergVersion, storages: DataStorage, key: Key) -> Sort:
    """Return the tree that grows from a sample of the rows, deleted ones among them."""
    source = key.tree
    assert source is not None

    def reach(folder: str) -> Storage:
        return storages.folder(folder if "://" in folder else os.path.abspath(folder))  # noqa: PTH100 (no I/O)

    def log() -> ReadLog:
        return read_log(log_place_of(version, storages), version.table_id, limit=MOST_TYPICAL)

    conditions = conditions_of(source, reach, version.schema, log)
    maker = TreeMaker(source, key.terms, conditions, version.schema)
    samples = _samples_of_version(version, storages, maker.leaves, "a tree takes its cuts from rows")
    row_count = version.statistics(maker.leaves).row_count
    weights = np.concatenate(
        [np.full(len(rows), row_count[block] / max(len(rows), 1)) for block, rows in samples.items()]
    )
    weights *= row_count.sum() / weights.sum()
    made = maker.layout(pa.concat_tables(samples.values()), weights, version.options.block_rows)
    sort = sort_by(made.terms, TREE, made.parameters)
    if len(_text_of(sort)) > MOST_CHARACTERS:
        msg = (
            f"the tree takes {len(_text_of(sort)):,} characters of a property, at most {MOST_CHARACTERS:,} are kept: "
            "give a larger min_rows, or fewer conditions"
        )
        raise InvalidKeyError(msg)
    return sort


def _samples_of_version(
    version: IcebergVersion, storages: DataStorage, leaves: Sequence[Leaf], what: str
) -> dict[int, pa.Table]:
    """Return columns, by number, of some rows of some files, by number.

    Raises:
        InvalidKeyError: there are no rows.
    """
    from tblctl.tableformat.concurrency import IO_THREADS, in_parallel
    from tblctl.tableformat.iceberg.reading.inputs import Inputs

    statistics = version.statistics(leaves)
    readable = np.where(_is_readable(version), statistics.row_count, 0)
    if not int(readable.sum()):
        msg = f"{what}, and {version.location} has none: append rows first"
        raise InvalidKeyError(msg)
    inputs = Inputs(version, storages)
    offsets = sampled_offsets(readable)
    files = [version.data_file(version.block_at(row)) for row in offsets]
    columns = sort_by([Term(column_id=leaf.id) for leaf in leaves])
    kinds = [statistic_type(leaf.type) for leaf in leaves]
    samples = in_parallel(
        lambda item: _sample(inputs, *item, columns, kinds),
        list(zip(files, offsets.values(), strict=True)),
        threads=IO_THREADS,
    )
    return dict(zip(offsets, samples, strict=True))


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
