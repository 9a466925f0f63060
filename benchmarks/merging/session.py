"""Spark sessions of contenders, equal except for each peer's settings."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.merging.contender import PROCESSES, MissingError
from benchmarks.merging.packages import loaded_alone

_CONF = {
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
}


def spark_session(folder: Path, more: Mapping[str, str] | None = None, *, package: str | None = None):
    """Return a new session that keeps its files in `folder`; `package` is a Maven coordinate that it loads.

    Raises:
        MissingError: there is no Java, or the package cannot be downloaded.
    """
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        msg = "Spark needs Java"
        raise MissingError(msg)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    conf = {**_CONF, "spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    conf |= {"spark.jars.packages": package} if package else {}
    builder = SparkSession.builder.master(f"local[{PROCESSES}]")
    for name, value in {**conf, **(more or {})}.items():
        builder = builder.config(name, value)
    if package is None:
        return builder.getOrCreate()
    log = folder / "spark.log"
    try:
        with loaded_alone(), _errors_to(log):
            return builder.getOrCreate()
    except Exception as error:
        last = log.read_text().strip().splitlines()[-1:]
        msg = f"Spark does not start with {package}: {error}: {' '.join(last)}"
        raise MissingError(msg) from error


@contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Redirect the output of processes started here to a file: Spark's downloads print hundreds of lines."""
    kept = os.dup(2)
    try:
        with file.open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
