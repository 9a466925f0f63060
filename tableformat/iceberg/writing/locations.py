"""Where new data files of a table lie: what its location provider says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.iceberg.partitions import human_value, source_of

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionKey, PartitionSpec
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table.locations import LocationProvider

_PREFIX = "write."
_PROVIDER = "write.py-location-provider.impl"

_MOST_FOLDERS = 1_000
"""Partitions whose folders are named for tasks: 20 us each. It takes a worker 0.2 s to load what names them."""


@dataclass(frozen=True, kw_only=True)
class Locations:
    """Names new data files. Pickles into tasks; the provider is made where it is used.

    Attributes:
        table_location: of the table.
        properties: of the table, those that a provider may need.
        specs: the table's partition specs by id.
        schema: the table's current schema.
    """

    table_location: str
    properties: Mapping[str, str]
    specs: Mapping[int, PartitionSpec]
    schema: IcebergSchema
    _providers: list[LocationProvider] = field(default_factory=list, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_made, (self.table_location, dict(self.properties), dict(self.specs), self.schema))

    def path_of(self, name: str, spec_id: int, values: tuple[Any, ...]) -> str:
        """Return the URI of a new file.

        Args:
            name: the file's name.
            spec_id: the spec of its rows.
            values: of the spec's fields, as PyIceberg has them.

        Raises:
            InvalidOptionError: the table names a location provider that cannot be loaded.
        """
        spec = self.specs[spec_id]
        key = _key(spec, values, self.schema) if spec.fields else None
        return self._provider().new_data_location(name, key)

    def folders(self, partitions: Mapping[str, tuple[int, tuple[Any, ...]]]) -> dict[str, str]:
        """Return the folder of each partition's new files, by what keys the partitions, without a last slash.

        There are none if files are not simply put into folders, or if there are very many partitions.

        Args:
            partitions: the spec of each, and the values of its fields.
        """
        from pyiceberg.table.locations import SimpleLocationProvider

        if _PROVIDER in self.properties or len(partitions) > _MOST_FOLDERS:
            return {}
        if type(self._provider()) is not SimpleLocationProvider:
            return {}
        return {key: self.path_of("", *partition)[:-1] for key, partition in partitions.items()}

    def _provider(self) -> LocationProvider:
        from pyiceberg.table.locations import load_location_provider

        if not self._providers:
            try:
                made = load_location_provider(self.table_location, dict(self.properties))
            except Exception as error:
                named = self.properties.get(_PROVIDER)
                msg = (
                    f"the location provider of {self.table_location} cannot be loaded ({error}); install the package "
                    f"of {named} where tasks run, or correct the property {_PROVIDER}"
                )
                raise InvalidOptionError(msg) from error
            self._providers.append(made)
        return self._providers[0]


def _made(
    table_location: str,
    properties: Mapping[str, str],
    specs: Mapping[int, PartitionSpec],
    schema: IcebergSchema,
) -> Locations:
    return Locations(table_location=table_location, properties=properties, specs=specs, schema=schema)


def location_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that location providers may need: all that are about writing, or a provider's own."""
    if _PROVIDER in properties:
        return dict(properties)
    return {name: value for name, value in properties.items() if name.startswith(_PREFIX)}


def partition_path(spec: PartitionSpec, values: tuple[Any, ...], schema: IcebergSchema) -> str:
    """Return the folders of a partition, as PyIceberg and Java name them: `region=eu/ts_day=2024-01-01`.

    A field whose column was dropped has its value as it is.
    """
    texts = (
        (field.name, human_value(value, field, source_of(field, schema)))
        for field, value in zip(spec.fields, values, strict=True)
    )
    return "/".join("=".join(quote_plus(text, safe="") for text in pair) for pair in texts)


def _key(spec: PartitionSpec, values: tuple[Any, ...], schema: IcebergSchema) -> PartitionKey:
    """Return what providers take: PyIceberg makes partitions from values of columns, these are already made."""
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.typedef import Record

    class MadeKey(PartitionKey):
        partition = Record(*values)

        def to_path(self) -> str:
            return partition_path(spec, values, schema)

    return MadeKey(field_values=[], partition_spec=spec, schema=schema)
