"""Write data files of one snapshot's table inside merge tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.options import not_honoured, style_of, target_bytes
from tblctl.tableformat.iceberg.own_files import KEYS, UNORDERED, OwnName, encode_keys
from tblctl.tableformat.iceberg.record import DataFileRecord
from tblctl.tableformat.iceberg.schema import sort_of
from tblctl.tableformat.iceberg.writing.encoder import DataFileEncoder
from tblctl.tableformat.iceberg.writing.locations import Locations, location_properties
from tblctl.tableformat.iceberg.writing.metrics import Ends, file_metrics, modes_of, primitives
from tblctl.tableformat.keys.kinds import key_leaves
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.parquet.block_builder import NewBlock, ParquetBlockBuilder
from tblctl.tableformat.parquet.block_reader import ParquetBlockReader
from tblctl.tableformat.parquet.block_writer import Layout
from tblctl.tableformat.parquet.sinks import StreamedPages
from tblctl.tableformat.parquet.statistics import column_ends
from tblctl.tableformat.storage.uploads import Upload

if TYPE_CHECKING:
    from tblctl.tableformat.iceberg.version import IcebergVersion

LOG = logging.getLogger("tblctl")


class Outputs:
    """Writes data files. Pickles into tasks, without the version, and mostly so that tasks need no PyIceberg.

    Args:
        version: the snapshot.
        storages: finds the storage of a file.
        env: names.
    """

    def __init__(self, version: IcebergVersion, storages: DataStorage, env: Environment) -> None:
        metadata, schema, properties = version.metadata, version.schema, version.metadata.properties
        self.layout = Layout(
            schema_id=0,
            schema=schema,
            sort=version.sort,
            options=version.options,
            style=style_of(properties, version.uuid_ids),
        )
        self._env = env
        self._storages = storages
        self.location = metadata.location
        self._table = metadata.table_uuid.hex
        self.target_bytes = target_bytes(properties)
        self._columns = primitives(list(schema.written))
        key_ids = {leaf.id for leaf in key_leaves(version.sort, schema)} if version.sort else set()
        self._modes = modes_of(properties, self._columns, key_ids)
        self._order = _declared_order(version)
        self._locations: Locations | None = Locations(
            table_location=metadata.location,
            properties=location_properties(properties),
            specs=metadata.specs(),
            schema=metadata.schema(),
        )
        found = version.partitions
        self._partitions = dict(
            zip(found.texts, zip(found.spec_ids, found.values, strict=True), strict=False)
        ) or {"": (metadata.default_spec_id, ())}
        self._folders: dict[str, str] = {}  # of partitions, in tasks
        ignored = not_honoured(properties)
        if ignored:
            LOG.warning("%s: these properties are not followed: %s", version.location, ", ".join(ignored))

    def __getstate__(self) -> dict[str, Any]:
        locations = self._locations
        folders = locations.folders(self._partitions) if locations else self._folders
        return vars(self) | {"_folders": folders, "_locations": None if folders else locations}

    def build(
        self,
        *,
        sort: Sort | None,
        level: int,
        run_id: str | None,
        partition: str,
        open: Callable[[Block], ParquetBlockReader],
    ) -> ParquetBlockBuilder:
        """Begin a data file of a partition."""
        begin = partial(self._begin, sort, level, run_id, partition)
        return ParquetBlockBuilder(
            self.layout, sort, begin=begin, open=open, discard=self.discard, most_bytes=None
        )

    def _begin(self, sort: Sort | None, level: int, run_id: str | None, partition: str) -> NewBlock:
        spec_id, values = self._partitions[partition]
        name = OwnName(
            table=self._table,
            level=level,
            sort_id=UNORDERED if sort is None else sort.id,
            run_id=run_id or "0",
        )
        path = self._path_of(name.with_id(self._env.new_id()), partition)
        storage, inner = self._storages.place_of(path)
        upload = storage.begin(inner)
        encoder = DataFileEncoder(self.layout, sort, StreamedPages(upload), self._columns)

        def abandon() -> None:
            encoder.sink.drop()
            upload.abandon()

        def store() -> DataFileRecord:
            record = encoder.record(path, level=level, run_id=run_id)
            found = DataFileRecord(
                **{**vars(record), "partition": partition}, spec_id=spec_id, partition_values=values
            )
            return self._stored(found, encoder, upload, sort)

        return NewBlock(
            path=path,
            encoder=encoder,
            store=store,
            abandon=abandon,
        )

    def _path_of(self, name: str, partition: str) -> str:
        if self._locations is None:
            return f"{self._folders[partition]}/{name}"
        return self._locations.path_of(name, *self._partitions[partition])

    def _stored(
        self, record: DataFileRecord, encoder: DataFileEncoder, upload: Upload, sort: Sort | None
    ) -> DataFileRecord:
        try:
            end = encoder.end({KEYS: encode_keys(record)} if sort else None)
            upload.write(end)
            upload.finish()
        except BaseException:
            encoder.sink.drop()
            upload.abandon()
            raise
        start, _ = encoder.sink.end()
        footer = pq.read_metadata(pa.BufferReader(b"PAR1" + end.to_pybytes()))
        completed = encoder.completed(record, footer, start + end.size)
        assert isinstance(completed, DataFileRecord)  # it is `record` with more
        ends = column_ends(encoder.measured, self.layout.schema, footer)
        nans = {id_: item.nan_count for id_, item in encoder.measured.items() if item.nan_count is not None}
        metrics = file_metrics(self._columns, self._modes, footer, ends, {**nans, **encoder.repeated_nans})
        return replace(
            completed,
            **vars(metrics),
            sort_order_id=self._sort_order(sort, ends, nans),
            split_offsets=_group_starts(footer),
        )

    def _sort_order(self, sort: Sort | None, ends: dict[int, Ends], nans: dict[int, int]) -> int | None:
        """Return the id of the table's sort order if rows are truly in it.

        Zeros of both signs are equal here, and not in Iceberg; so is NaN of several kinds. So a column that may hold
        them is no proof.
        """
        if sort is None or sort.is_layout or self._order is None or self._order[1] != sort.terms:
            return None
        for term in sort.terms:
            leaf = self.layout.schema.leaf_by_id(term.column_id)
            if leaf is None or not pa.types.is_floating(leaf.type):
                continue
            low, high = ends[leaf.id]
            spans_zero = low.is_valid and high.is_valid and low.as_py() <= 0 <= high.as_py()
            if spans_zero or nans.get(leaf.id):
                return None
        return self._order[0]

    def discard(self, paths: Collection[str]) -> None:
        """Delete files, as far as possible: the error that led here must not be hidden by another."""
        names: dict[str, list[str]] = {}
        storages = {}
        for path in paths:
            storage, name = self._storages.place_of(path)
            storages[storage.url] = storage
            names.setdefault(storage.url, []).append(name)
        for url, storage in storages.items():
            try:
                storage.delete(names[url])
            except TblctlError as error:
                LOG.warning("data files that are not needed could not be deleted, gc will: %s", error)


def _declared_order(version: IcebergVersion) -> tuple[int, tuple[Any, ...]] | None:
    """Return the id and the terms of the table's sort order; None if tblctl cannot sort by all of it."""
    order = version.metadata.sort_order_by_id(version.metadata.default_sort_order_id)
    if order is None or not order.fields:
        return None
    sort = sort_of(order, version.schema)
    if sort is None or len(sort.terms) != len(order.fields):
        return None
    return order.order_id, sort.terms


def _group_starts(footer: pq.FileMetaData) -> tuple[int, ...]:
    """Return where the row groups of a file begin."""
    starts = []
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(0)
        offsets = [chunk.data_page_offset]
        if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
            offsets.append(chunk.dictionary_page_offset)
        starts.append(min(offsets))
    return tuple(starts)
