"""Fixtures of Iceberg tables: `lake` for those of PyIceberg, `spark_lake` for those that Spark writes too.

`duck` is DuckDB, a reader of both.

Spark runs in a process of its own, once for all tests. Modules that use it are in the xdist_group "iceberg-spark", so
that pytest runs them in one process, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from servers import missing_server

from .duck import INSTALLED, Duck
from .lake import Lake
from .spark_process import MissingError, OldSpark, SparkLake, SparkProcess

Spark = TypeVar("Spark", bound=SparkProcess)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture(scope="session")
def spark_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkLake]:
    with started(SparkLake, tmp_path_factory.mktemp("spark-lake")) as running:
        yield running


@pytest.fixture(scope="session")
def old_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldSpark]:
    """Spark with Iceberg 1.10. Modules that use it are in the xdist_group "iceberg-old-spark"."""
    with started(OldSpark, tmp_path_factory.mktemp("old-spark")) as running:
        yield running


def started(kind: Callable[[Path], Spark], folder: Path) -> Spark:
    """Fail with CI=true, skip elsewhere, if Java, pyspark or Iceberg's jars are missing."""
    try:
        return kind(folder)
    except MissingError as error:
        missing_server(f"Iceberg's Spark cannot run: {error}")
        raise


@pytest.fixture(scope="session")
def duck() -> Iterator[Duck]:
    running = Duck()
    yield running
    running.close()


@pytest.fixture(scope="session")
def duck_too(request: pytest.FixtureRequest) -> Duck | None:
    """DuckDB as one of several readers; without CI=true None where its environment is missing.

    tests/iceberg/test_duckdb.py is skipped there, and says so.
    """
    if not INSTALLED.exists() and os.environ.get("CI") != "true":
        return None
    found: Duck = request.getfixturevalue("duck")
    return found
