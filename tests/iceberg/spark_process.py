"""Spark with Iceberg in a process of its own.

A process has one classic session at most, with the settings it began with; other tests have theirs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from jvm import quick_java
from pyiceberg.table import Table

from benchmarks.merging.packages import loaded_alone

from .lake import NAME, Lake

RUNTIMES = {
    "1.12": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "1.10": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",  # made for Spark 4.0, and reads on 4.1
}
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"

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


class SparkProcess:
    """A running Spark, whose default catalog is an Iceberg catalog named `lake`.

    Args:
        folder: for Spark's files.
        iceberg: the version, of `RUNTIMES`.
        catalog: the catalog's properties.
        packages: beside Iceberg.

    Raises:
        MissingError: Java or pyspark is missing, or the packages cannot be had.
    """

    def __init__(
        self, folder: Path, *, iceberg: str = "1.12", catalog: Mapping[str, str], packages: Sequence[str] = ()
    ) -> None:
        if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
            raise MissingError("no java in PATH or JAVA_HOME")
        if importlib.util.find_spec("pyspark") is None:
            raise MissingError("no pyspark: pip install 'tblctl[spark]'")
        self._log = (folder / "spark.log").open("wb")
        conf = {
            "spark.jars.packages": ",".join([RUNTIMES[iceberg], *packages]),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            f"spark.sql.catalog.{NAME}": "org.apache.iceberg.spark.SparkCatalog",
            **{f"spark.sql.catalog.{NAME}.{name}": value for name, value in catalog.items()},
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
        with loaded_alone():
            self._start(conf, variables, folder)

    def _start(self, conf: Mapping[str, str], variables: Mapping[str, str], folder: Path) -> None:
        """Return when it answers."""
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
            raise MissingError(
                f"it does not start with {conf['spark.jars.packages']}: {' '.join(last)}"
            ) from error

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


class SparkLake(SparkProcess, Lake):
    """A catalog that Spark shares: `sql` runs there. Tables of `create` are PyIceberg's."""

    def __init__(self, folder: Path) -> None:
        Lake.__init__(self, folder, schema_version="v1")
        catalog = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/catalog.db",
            "jdbc.schema-version": "V1",
            "warehouse": str(folder / "tables"),
        }
        SparkProcess.__init__(self, folder, catalog=catalog, packages=[SQLITE])


class OldSpark(SparkProcess):
    """Spark with Iceberg 1.10 and a catalog of its own, to read tables by their metadata files."""

    def __init__(self, folder: Path) -> None:
        catalog = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/catalog.db",
            "jdbc.schema-version": "V1",
            "clients": "1",  # 1.10 leaves read locks behind, which stop other connections
            "warehouse": str(folder / "tables"),
        }
        super().__init__(folder, iceberg="1.10", catalog=catalog, packages=[SQLITE])
        self.sql("CREATE NAMESPACE db")
        self._count = 0

    def shown(self, table: Table) -> str:
        """Return the name of a table as it is now, in this catalog."""
        self._count += 1
        name = f"db.t{self._count}"
        location = table.metadata_location
        self.sql(f"CALL {NAME}.system.register_table(table => '{name}', metadata_file => '{location}')")
        return name
