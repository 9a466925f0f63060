"""Bounds of partition values in manifest lists ("field summaries")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile, PartitionFieldSummary
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table.metadata import TableMetadata


def schema_for(spec: PartitionSpec, metadata: TableMetadata) -> IcebergSchema:
    """Return the current schema, or if that lacks a column of the spec, the newest one that has all."""
    sources = {field.source_id for field in spec.fields}
    newest = sorted(metadata.schemas, key=lambda schema: -schema.schema_id)
    for schema in (metadata.schema(), *newest):
        if all(schema.find_column_name(id_) is not None for id_ in sources):
            return schema
    return metadata.schema()


def joined_bounds(
    manifests: Sequence[ManifestFile], metadata: TableMetadata
) -> list[PartitionFieldSummary] | None:
    """Return bounds of the partitions of several manifests of one spec; None if one has none."""
    summaries = [manifest.partitions for manifest in manifests]
    if len(summaries) == 1:
        return summaries[0]
    if any(found is None for found in summaries):
        return None
    spec = metadata.specs()[manifests[0].partition_spec_id]
    fields = spec.partition_type(schema_for(spec, metadata)).fields
    columns = zip(*(found for found in summaries if found is not None), strict=True)
    return [_joined(field.field_type, column) for field, column in zip(fields, columns, strict=True)]


def _joined(kind: Any, summaries: Sequence[PartitionFieldSummary]) -> PartitionFieldSummary:
    from pyiceberg.conversions import from_bytes
    from pyiceberg.manifest import PartitionFieldSummary

    def end(name: str, choose: Any) -> bytes | None:
        values = [value for item in summaries if (value := getattr(item, name)) is not None]
        return choose(values, key=lambda value: from_bytes(kind, value)) if values else None

    nan = [item.contains_nan for item in summaries]
    return PartitionFieldSummary.from_args(
        contains_null=any(item.contains_null for item in summaries),
        contains_nan=None if any(found is None for found in nan) else any(nan),
        lower_bound=end("lower_bound", min),
        upper_bound=end("upper_bound", max),
    )
