"""Spark as another writer of a raced Iceberg table: appends, and deletes and updates that leave files of positions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sqlalchemy.engine import make_url

from tblctl.errors import CommitOutcomeUnknownError, ConflictError
from tests.iceberg.spark_process import SQLITE, SparkProcess

from .model import KEYS
from .raced import TABLE, IcebergRaced

POSTGRES = "org.postgresql:postgresql:42.7.7"
AWS = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
REFUSALS = (
    "CommitFailedException",
    "ValidationException",
    "Cannot commit",
    "Found conflicting",
    "missing data files",
)
"""What Spark says where it certainly did not commit."""


@dataclass(frozen=True, kw_only=True)
class SparkRaced(IcebergRaced):
    """A table of `raced`, which a Spark of the process's own changes; PyIceberg reads it."""

    folder: Path

    @classmethod
    def of(cls, table: IcebergRaced, folder: Path) -> Self:
        return cls(options=table.options, folder=folder)

    def commit(self, owner: int, change: Mapping[str, Any]) -> int:
        own = f"owner = {owner} AND key >= {change['low']} AND key < {change['high']}"
        statements = {
            "append": f"INSERT INTO {TABLE} {_rows(owner, change)}",
            "update": f"UPDATE {TABLE} SET value = {change['value']} WHERE {own}",
            "delete": f"DELETE FROM {TABLE} WHERE {own}",
        }
        try:
            spark(self).sql(statements[change["kind"]])
        except AssertionError as error:
            text = str(error)
            known = next((word for word in REFUSALS if word in text), None)
            if known:
                raise ConflictError(f"Spark: {known}") from error
            raise CommitOutcomeUnknownError(f"Spark: {' '.join(text.split())[:300]}") from error
        return 1


def _rows(owner: int, change: Mapping[str, Any]) -> str:
    """Return a query of the rows of an append, as `model` has them."""
    first, end = change["first"], change["first"] + change["count"]
    columns = (
        f"(id * 7919 + {owner} * 104729) % {KEYS} AS key",
        f"CAST({owner} AS BIGINT) AS owner",
        "id AS number",
        f"CAST({change['value']} AS BIGINT) AS value",
        f"concat('{owner}/', id) AS text",
    )
    return f"SELECT {', '.join(columns)} FROM range({first}, {end}, 1, 1)"


_STARTED: list[SparkProcess] = []


def spark(table: SparkRaced) -> SparkProcess:
    """Return the Spark of this process; it starts at first use.

    Raises:
        MissingError: it cannot run here.
    """
    if not _STARTED:
        table.folder.mkdir(exist_ok=True)
        # What a killed JVM leaves behind goes with the folder.
        os.environ |= {"TMPDIR": str(table.folder), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={table.folder}"}
        catalog, packages = _catalog(table.options)
        _STARTED.append(SparkProcess(table.folder, catalog=catalog, packages=packages))
    return _STARTED[0]


def _catalog(options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the properties of Spark's catalog for PyIceberg's, and the packages that it needs."""
    uri = make_url(options["uri"])
    found = {"type": "jdbc", "jdbc.schema-version": "V1", "warehouse": options["warehouse"]}
    packages = [SQLITE]
    if uri.drivername == "sqlite":
        found["uri"] = f"jdbc:sqlite:{uri.database}"
    else:
        found["uri"] = f"jdbc:postgresql://{uri.host}:{uri.port}/{uri.database}"
        found |= {"jdbc.user": str(uri.username), "jdbc.password": str(uri.password)}
        packages = [POSTGRES]
    if "s3.endpoint" in options:
        found |= {name: options[name] for name in ("s3.endpoint", "s3.access-key-id", "s3.secret-access-key")}
        found |= {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.path-style-access": "true",
            "client.region": options["s3.region"],
        }
        packages.append(AWS)
    return found, packages
