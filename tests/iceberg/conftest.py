"""Fixtures of Iceberg tables: `lake` for those of PyIceberg, `spark_lake` for those that Spark writes too.

`duck` is DuckDB, a reader of both.

Spark runs in a process of its own, once for all tests. Modules that use it are in the xdist_group "iceberg-spark", so
that pytest runs them in one process, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .duck import Duck
from .lake import Lake
from .spark_process import MissingError, SparkLake, spark_lake_of


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture(scope="session")
def spark_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkLake]:
    """Fail with CI=true, skip elsewhere, if Java, pyspark or Iceberg's jars are missing."""
    try:
        running = spark_lake_of(tmp_path_factory.mktemp("spark-lake"))
    except MissingError as error:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            f"Iceberg's Spark cannot run: {error}"
        )
    with running:
        yield running


@pytest.fixture(scope="session")
def duck() -> Iterator[Duck]:
    running = Duck()
    yield running
    running.close()
