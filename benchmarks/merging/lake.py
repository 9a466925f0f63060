"""Iceberg tables of one SQLite catalog that PyIceberg, tblctl and Spark share, on local disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tblctl
from benchmarks.common import Command, script
from benchmarks.merging.contender import PROCESSES, Job, MissingError
from benchmarks.merging.packages import loaded_alone

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

NAME = "lake"
PACKAGES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.50.3.0"

_PYTHON = {"PYSPARK_PYTHON": sys.executable}  # by which spark-submit also finds Spark
_PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
for statement in sys.argv[1:]:
    spark.sql(statement).show()
"""


class Lake:
    """A catalog with the namespace `db`."""

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog import load_catalog

        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._database = folder / "catalog.db"
        self._warehouse = folder / "tables"
        self.options = {
            "type": "sql",
            "uri": f"sqlite:///{self._database}",
            "warehouse": f"file://{self._warehouse}",
            "schema_version": "v1",
        }
        self._kept: dict[str, tuple[str, set[Path]]] = {}
        self._catalog = load_catalog(NAME, **self.options)
        self._catalog.create_namespace_if_not_exists("db")

    def create(self, name: str, schema: Schema, *, target_bytes: int) -> Table:
        """Create a table with files of about `target_bytes`, zstd level 1: for all who write to it."""
        properties = {
            "write.target-file-size-bytes": str(target_bytes),
            "write.parquet.compression-codec": "zstd",
            "write.parquet.compression-level": "1",
        }
        return self._catalog.create_table(f"db.{name}", schema, properties=properties)

    def register(self, name: str, files: Sequence[str], *, target_bytes: int) -> None:
        """Create a table of Parquet files that stay where they are: PyIceberg's `add_files`, with a name mapping."""
        import pyarrow.parquet as pq

        table = self.create(name, pq.read_schema(files[0]), target_bytes=target_bytes)
        table.add_files([f"file://{file}" for file in files])

    def write(self, name: str, files: Sequence[str], *, row_group_rows: int) -> tuple[str, ...]:
        """Create a table of the rows of Parquet files, and return its data files: PyIceberg writes one for each."""
        import pyarrow.parquet as pq

        size_bytes = sum(Path(file).stat().st_size for file in files)  # so that none is cut
        table = self.create(name, pq.read_schema(files[0]), target_bytes=size_bytes)
        with table.transaction() as change:
            change.set_properties({"write.parquet.row-group-limit": str(row_group_rows)})
        for file in files:
            table.append(pq.read_table(file))
        return tuple(sorted(self.files(name)))

    def take(self, name: str, job: Job) -> None:
        """Create a table of the job's files: as they are in the job's lake, or registered if they are in none."""
        if job.lake is None:
            self.register(name, job.files, target_bytes=job.output_bytes)
            return
        source = Lake(job.lake).load(name)
        table = self.create(name, source.schema(), target_bytes=job.output_bytes)
        with table.transaction() as change, change.update_snapshot().fast_append() as added:
            for task in source.scan().plan_files():
                added.append_data_file(task.file)

    def load(self, name: str) -> Table:
        return self._catalog.load_table(f"db.{name}")

    def location(self, name: str) -> str:
        """Return what a table is called in tblctl's commands."""
        return f"iceberg://{NAME}/db.{name}"

    def open(self, name: str) -> tblctl.IcebergTable:
        return tblctl.open(self.location(name), catalog_options=self.options)

    def files(self, name: str) -> list[str]:
        """Return the data files of a table. None may have deletes."""
        tasks = list(self.load(name).scan().plan_files())
        assert not any(task.delete_files for task in tasks)
        return [self.path(task.file.file_path) for task in tasks]

    def path(self, uri: str) -> str:
        """Return where a file is. Spark writes `file:/path`, others `file:///path`."""
        return uri.removeprefix("file:").replace("///", "/", 1)

    def reset(self, name: str) -> None:
        """Restore a table as it was at the first call, and delete what was written since."""
        place = self._warehouse / "db" / name
        if name not in self._kept:
            self._kept[name] = (self.load(name).metadata_location, set(_files_below(place)))
            return
        metadata, files = self._kept[name]
        with sqlite3.connect(self._database, timeout=30) as database:
            database.execute(
                "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = NULL "
                "WHERE table_name = ?",
                (metadata, name),
            )
        database.close()
        for file in set(_files_below(place)) - files:
            file.unlink()

    # -- commands of the shell -----------------------------------------------------------------------------------------

    def tblctl(self, command: str, name: str, *words: str) -> Command:
        """Make a case of a command. The catalog's address is in the environment, as a user has it."""
        prefix = f"PYICEBERG_CATALOG__{NAME.upper()}__"
        variables = {prefix + key.upper(): value for key, value in self.options.items()}
        return Command(script("tblctl"), command, self.location(name), *words, variables=variables)

    def spark_submit(self, *statements: str) -> Command:
        """Make a case of one spark-submit that runs statements of SQL. The jars are on this machine beforehand.

        Raises:
            MissingError: there is no Java, or the jars cannot be downloaded.
        """
        program = self.folder / "statements.py"
        program.write_text(_PROGRAM)
        settings = [word for item in spark_conf(self.folder).items() for word in ("--conf", "=".join(item))]
        return Command(
            script("spark-submit"),
            *("--master", f"local[{PROCESSES}]", "--driver-memory", "4g", "--jars", ",".join(jars())),
            *settings,
            str(program),
            *statements,
            variables=_PYTHON,
        )


def spark_conf(folder: Path) -> Mapping[str, str]:
    """Return settings of a Spark session that has the catalog of the `Lake` in a folder."""
    return PLAIN_CONF | {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{NAME}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{NAME}.type": "jdbc",
        f"spark.sql.catalog.{NAME}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"spark.sql.catalog.{NAME}.jdbc.schema-version": "V1",
        f"spark.sql.catalog.{NAME}.warehouse": f"file://{folder}/tables",
        f"spark.sql.catalog.{NAME}.cache-enabled": "false",
    }


PLAIN_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def rewrite(name: str, sort_order: str, **options: object) -> str:
    """Return the call of `rewrite_data_files` that sorts a table. None of `options` is for Iceberg's defaults."""
    words = ", ".join(f"'{key.replace('_', '-')}', '{value}'" for key, value in options.items())
    more = f", options => map({words})" if words else ""
    return (
        f"CALL {NAME}.system.rewrite_data_files(table => 'db.{name}', strategy => 'sort', "
        f"sort_order => '{sort_order} ASC NULLS LAST'{more})"
    )


def spark_wanted(given: bool | None, tiny: bool) -> bool:
    """Return whether Spark takes part: as the command line says, else unless the run is tiny."""
    return not tiny if given is None else given


def jars() -> list[str]:
    """Return the files of `PACKAGES`, which Spark downloads at first use.

    Raises:
        MissingError: there is no Java, or they cannot be downloaded.
    """
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        msg = "Spark needs Java"
        raise MissingError(msg)
    found = _downloaded()
    if found is None:
        words = [
            script("spark-submit"),
            "--packages",
            PACKAGES,
            "--class",
            "none",
            "spark-internal",
        ]  # ends there
        with loaded_alone():
            done = subprocess.run(
                words, capture_output=True, text=True, check=False, env={**os.environ, **_PYTHON}
            )
        found = _downloaded()
        if found is None:
            msg = f"{PACKAGES} cannot be downloaded: {' '.join(done.stderr.strip().splitlines()[-1:])}"
            raise MissingError(msg)
    return found


def _downloaded() -> list[str] | None:
    names = ["{}_{}-{}.jar".format(*package.split(":")) for package in PACKAGES.split(",")]
    for folder in sorted(Path.home().glob(".ivy2*/jars"), reverse=True):
        if all((folder / name).exists() for name in names):
            return [str(folder / name) for name in names]
    return None


def _files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
