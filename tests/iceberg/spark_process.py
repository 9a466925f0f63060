"""Spark with Iceberg 1.12, on the catalog of a `Lake`, in a process of its own.

A process has one classic session at most, with the settings it began with; other tests have theirs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from jvm import quick_java

from .lake import NAME, Lake

PACKAGES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.50.3.0"

PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what Spark prints goes to the log
builder = SparkSession.builder.master("local[2]").appName("tests of Iceberg tables")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
print(json.dumps({"rows": []}), file=answers, flush=True)
for line in sys.stdin:
    try:
        asked = json.loads(line)
        if "sql" in asked:
            found = spark.sql(asked["sql"])
        else:
            exec(asked["program"], variables := {"spark": spark})
            found = variables["found"]
        rows = [row.asDict(recursive=True) for row in found.collect()]
        answer = {"rows": rows}
    except Exception as error:
        answer = {"error": str(error)}
    print(json.dumps(answer, default=str), file=answers, flush=True)
"""


class MissingError(Exception):
    """What Spark with Iceberg needs is not on this machine."""


class SparkLake(Lake):
    """A catalog that Spark shares: `sql` runs there, in the catalog `lake`. Tables of `create` are PyIceberg's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, schema_version="v1")
        self._log = (folder / "spark.log").open("wb")
        conf = {
            "spark.jars.packages": PACKAGES,
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            f"spark.sql.catalog.{NAME}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{NAME}.type": "jdbc",
            f"spark.sql.catalog.{NAME}.uri": f"jdbc:sqlite:{folder}/catalog.db",
            f"spark.sql.catalog.{NAME}.jdbc.schema-version": "V1",
            f"spark.sql.catalog.{NAME}.warehouse": str(folder / "tables"),
            f"spark.sql.catalog.{NAME}.cache-enabled": "false",
            "spark.sql.defaultCatalog": NAME,
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
        variables = os.environ | quick_java() | {"PYSPARK_PYTHON": sys.executable}
        for name in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE"):
            variables.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(conf)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=variables,
            text=True,
            cwd=folder,
        )
        try:
            self._answer()
        except EOFError as error:
            self.close()
            last = (folder / "spark.log").read_text(errors="replace").strip().splitlines()[-3:]
            raise MissingError(f"it does not start with {PACKAGES}: {' '.join(last)}") from error

    def sql(self, *statements: str) -> list[dict[str, Any]]:
        """Run statements; return the rows of the last one."""
        rows: list[dict[str, Any]] = []
        for statement in statements:
            rows = self._asked(sql=statement)
        return rows

    def program(self, text: str) -> list[dict[str, Any]]:
        """Run Python with the variable `spark` there; return the rows of the data frame that it calls `found`."""
        return self._asked(program=text)

    def _asked(self, **what: str) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[dict[str, Any]]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError("Spark ended")
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(120)
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def spark_lake_of(folder: Path) -> SparkLake:
    """Start Spark on a new catalog.

    Raises:
        MissingError: Java or pyspark is missing, or Iceberg's jars cannot be had.
    """
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise MissingError("no java in PATH or JAVA_HOME")
    if importlib.util.find_spec("pyspark") is None:
        raise MissingError("no pyspark: pip install 'tblctl[spark]'")
    return SparkLake(folder)
