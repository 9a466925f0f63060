"""What is true of an Iceberg table, by reading every row of every file; and what tblctl says of it.

Files and rows come from PyIceberg and pyarrow, values by field id. Keys are compared by `tblctl.tableformat.keys`,
which tests of its own prove.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg import expressions as ice
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table

from tblctl.maintain.measure import table_info
from tblctl.tableformat.keys.order import key_ranks, keys_after, sort_indices
from tblctl.tableformat.model.cluster_key import Sort, Term, parse_terms
from tblctl.tableformat.model.schema.field_ids import field_id
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.types import is_orderable, statistic_type, strip_extension
from tblctl.tableformat.model.term_values import transform_array

from .lake import version_of


@dataclass(frozen=True, kw_only=True, eq=False)
class TrueFile:
    """A live data file: what the manifest says of it, and its stored rows."""

    entry: DataFile
    rows: pa.Table

    @property
    def path(self) -> str:
        return self.entry.file_path

    @property
    def partition(self) -> tuple[Any, ...]:
        values = [self.entry.partition[place] for place in range(len(self.entry.partition))]
        return (self.entry.spec_id, *map(repr, values))

    def values(self, leaf: Leaf) -> pa.Array:
        """Return the values of a column in its statistic type; nulls if the file lacks it."""
        kind = statistic_type(leaf.type)
        found = _by_id(self.rows, self.rows.schema, leaf.id)
        if found is None and not any(field_id(field) for field in self.rows.schema):
            found = _by_name(self.rows, leaf.path)
        if found is None:
            return pa.nulls(self.rows.num_rows, kind)
        whole = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        if isinstance(whole.type, pa.BaseExtensionType):
            whole = whole.cast(strip_extension(whole.type))
        return whole.cast(kind, safe=not pa.types.is_timestamp(kind))

    def keys(self, sort: Sort, schema: Schema) -> pa.Table:
        """Return the key of each row."""
        columns = []
        for term in sort.terms:
            leaf = schema.leaf_by_id(term.column_id)
            assert leaf is not None
            columns.append(transform_array(term, self.values(leaf), leaf.type))
        return pa.table(columns, names=[str(place) for place in range(len(columns))])


def _by_id(rows: Any, columns: Any, wanted: int) -> Any:
    for place, field in enumerate(columns):
        if field_id(field) == wanted:
            return _child(rows, place)
        if pa.types.is_struct(field.type):
            found = _by_id(_child(rows, place), list(field.type), wanted)
            if found is not None:
                return found
    return None


def _by_name(rows: pa.Table, path: Sequence[str]) -> Any:
    if path[0] not in rows.column_names:
        return None
    found = rows.column(path[0])
    for name in path[1:]:
        found = pc.struct_field(found, [found.type.get_field_index(name)])
    return found


def _child(rows: Any, place: int) -> Any:
    return rows.column(place) if isinstance(rows, pa.Table) else pc.struct_field(rows, [place])


def true_files(table: Table, snapshot_id: int | None = None) -> list[TrueFile]:
    """Return the live data files of a snapshot that have rows; of the newest one for None."""
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    found = []
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            entry.data_file.spec_id = manifest.partition_spec_id
            with table.io.new_input(entry.data_file.file_path).open() as stream:
                rows = pq.ParquetFile(stream).read()
            assert rows.num_rows == entry.data_file.record_count
            if rows.num_rows:
                found.append(TrueFile(entry=entry.data_file, rows=rows))
    return found


def assert_true(table: Table, *keys: str, version: Any = None, plans: bool = True) -> None:
    """Assert that all tblctl says of a table by these keys is true.

    Args:
        table: as it is now.
        keys: terms of cluster keys; the table's own one too, if it has one.
        version: of an older snapshot, or of a branch; None for the newest of main.
        plans: whether PyIceberg can plan a scan; it cannot with equality deletes.
    """
    table = table.refresh()
    version = version or version_of(table)
    files = true_files(table, version.snapshot and version.snapshot.snapshot_id)
    if plans and version.snapshot is not None:
        tasks = table.scan(snapshot_id=version.snapshot.snapshot_id).plan_files()
        assert {task.file.file_path for task in tasks if task.file.record_count} == {
            file.path for file in files
        }
    sorts = [Sort(id=1, terms=parse_terms(key, version.schema)) for key in keys]
    sorts += [version.sort] if version.sort else []
    assert sorts, "nothing to measure by"
    for sort in sorts:
        assert_bounds(version, sort, files)
    for key in keys:
        assert_figures(version, key, files)
    assert_matched(version, sorts[0], files)


def assert_bounds(version: Any, sort: Sort, files: Sequence[TrueFile]) -> None:
    """Assert that bounds enclose the keys of all rows, that exact ones are keys, and that no known one is missing."""
    listing = version.listing(sort, None)
    by_path = {file.path: file for file in files}
    assert len(by_path) == len(files)
    assert sorted(listing.paths.to_pylist()) == sorted(by_path)
    files = [by_path[path] for path in listing.paths.to_pylist()]
    assert listing.stored_rows.tolist() == [file.rows.num_rows for file in files]
    assert listing.size_bytes.tolist() == [file.entry.file_size_in_bytes for file in files]
    assert groups_of(listing.partition.tolist()) == groups_of([file.partition for file in files])
    expected = [is_known(file, sort, version) for file in files]
    assert listing.known.tolist() == expected, sort
    assert not (listing.exact & ~listing.known).any()
    if not files:
        return
    low, high = true_ends(files, sort, version.schema)
    assert low.schema.types == listing.low.schema.types
    below, above = keys_after(listing.low, low, sort), keys_after(high, listing.high, sort)
    assert not (below & listing.known).any(), (sort, low.to_pylist(), listing.low.to_pylist())
    assert not (above & listing.known).any(), (sort, high.to_pylist(), listing.high.to_pylist())
    wide = keys_after(low, listing.low, sort) | keys_after(listing.high, high, sort)
    assert not (wide & listing.exact).any(), (sort, listing.low.to_pylist(), listing.high.to_pylist())


def groups_of(partitions: Sequence[Any]) -> list[int]:
    """Return for each file the place of the first file of its partition."""
    return [partitions.index(partition) for partition in partitions]


def true_ends(files: Sequence[TrueFile], sort: Sort, schema: Schema) -> tuple[pa.Table, pa.Table]:
    """Return the least and the greatest key of each file."""
    low, high = [], []
    for file in files:
        keys = file.keys(sort, schema)
        order = sort_indices(keys, sort)
        low.append(keys.take(order[:1]))
        high.append(keys.take(order[-1:]))
    return pa.concat_tables(low).combine_chunks(), pa.concat_tables(high).combine_chunks()


def is_known(file: TrueFile, sort: Sort, version: Any) -> bool:
    """Return whether the manifest has what it takes to bound the file's keys: bounds, or a partition's value."""
    fields = version.metadata.specs()[file.entry.spec_id].fields
    return all(
        any(_tells(field, file.entry.partition[place], term) for place, field in enumerate(fields))
        or _term_is_known(file.entry, term, version.schema)
        for term in sort.terms
    )


def _tells(field: PartitionField, value: Any, term: Term) -> bool:
    """Return whether the value of a partition field is that of a term, or of its column."""
    if field.source_id != term.column_id or str(field.transform) not in ("identity", term.transform):
        return False
    if str(field.transform) == "identity":
        return True
    return term.function not in ("year", "month", "day", "hour") or value is None or value >= 0


def _term_is_known(entry: DataFile, term: Term, schema: Schema) -> bool:
    id_ = term.column_id
    leaf = schema.leaf_by_id(id_)
    assert leaf is not None
    if term.function == "bucket":
        return True  # it is one of n
    nulls = (entry.null_value_counts or {}).get(id_)
    nans = (entry.nan_value_counts or {}).get(id_)
    if nulls == entry.record_count:
        return True
    if pa.types.is_floating(leaf.type) and nans and nulls is not None and nans + nulls == entry.record_count:
        return True
    bounds = (entry.lower_bounds or {}).get(id_), (entry.upper_bounds or {}).get(id_)
    if None in bounds:
        return False
    if pa.types.is_floating(leaf.type):
        return not any(math.isnan(struct.unpack("<f" if len(end) == 4 else "<d", end)[0]) for end in bounds)
    return True


def assert_figures(version: Any, key: str, files: Sequence[TrueFile]) -> None:
    """Assert that the figures are those of a count by hand, where all bounds are keys."""
    found = table_info(version, key, None, worst=3)
    sort = Sort(id=1, terms=parse_terms(key, version.schema))
    assert found.total_block_count == len(files)
    assert found.rows == sum(file.rows.num_rows for file in files)
    assert found.unclustered_block_count == 0
    assert found.unknown_block_count == sum(not is_known(file, sort, version) for file in files)
    if not files or not version.listing(sort, None).exact.all():
        return
    low, high = key_ranks(*true_ends(files, sort, version.schema), sort)
    parts = {
        partition: code for code, partition in enumerate(dict.fromkeys(file.partition for file in files))
    }
    part = np.array([parts[file.partition] for file in files])
    meets = (low[:, None] <= high) & (low <= high[:, None]) & (part[:, None] == part)
    holds = (
        (low[:, None] <= low) & (low <= high[:, None]) & (part[:, None] == part)
    )  # file i has the low of file j
    depths = [int(holds.sum(axis=0)[holds[place]].max()) for place in range(len(files))]
    count = len(files)
    assert found.average_overlaps == round((int(meets.sum()) - count) / count + 1e-12, 4)
    assert found.average_depth == round(sum(depths) / count + 1e-12, 4)
    assert found.depth.max == max(depths)
    assert found.constant_block_count == int((low == high).sum())


def assert_matched(version: Any, sort: Sort, files: Sequence[TrueFile]) -> None:
    """Assert that no condition leaves out a file with a row that satisfies it."""
    order = version.listing(sort, None).paths.to_pylist()
    for leaf in version.schema.leaves:
        if not is_orderable(leaf.type):
            continue
        values = {file.path: file.values(leaf) for file in files}
        for condition, holds in conditions(leaf, list(values.values())):
            needed = {path for path, found in values.items() if pc.any(holds(found)).as_py()}
            matched = version.listing(sort, condition).matched
            kept = {path for path, found in zip(order, matched.tolist(), strict=True) if found}
            assert not needed - kept, (condition, needed - kept)
            part = version.pruned(condition).listing(sort, condition)
            assert set(part.paths.filter(pa.array(part.matched)).to_pylist()) == kept, condition


def conditions(leaf: Leaf, arrays: Sequence[pa.Array]) -> Iterator[tuple[Any, Any]]:
    """Yield conditions on a column, each with the function that tells the rows that satisfy it."""
    name = leaf.name
    yield ice.IsNull(name), lambda values: values.is_null()
    yield ice.NotNull(name), lambda values: values.is_valid()
    if pa.types.is_floating(leaf.type):
        yield ice.IsNaN(name), pc.is_nan
    for value in _samples(arrays):
        yield ice.EqualTo(name, value.as_py()), lambda values, value=value: pc.equal(values, value)
        yield (
            ice.LessThanOrEqual(name, value.as_py()),
            lambda values, value=value: pc.less_equal(values, value),
        )
        yield ice.GreaterThan(name, value.as_py()), lambda values, value=value: pc.greater(values, value)


def _samples(arrays: Sequence[pa.Array]) -> Iterator[pa.Scalar]:
    """Yield a value of each of the first and last files, without NaN."""
    for values in (*arrays[:2], *arrays[-1:]):
        some = values.drop_null()
        if pa.types.is_floating(some.type):
            some = some.filter(pc.invert(pc.is_nan(some)))
        if len(some):
            yield some[0]
            yield some[len(some) - 1]
