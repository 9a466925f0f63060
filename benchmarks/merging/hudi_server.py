"""Runs in a Python with Spark 3.5, without any module of this project. Requests and answers are lines.

The first request describes the job. Each later one is a command: "reset", "run" or "output".
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

_PACKAGE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"


class Server:
    """Every run gets a copy of the first table, with links to its files."""

    def __init__(self, job: dict) -> None:
        from pyspark.sql import SparkSession

        folder = Path(job["folder"])
        conf = {
            "spark.driver.memory": "4g",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.jars.packages": _PACKAGE,
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
            "spark.hadoop.parquet.compression.codec.zstd.level": "1",
        }
        builder = SparkSession.builder.master(f"local[{job['processes']}]")
        for name, value in conf.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._job = job
        self._base = folder / "base"
        self._runs = 0
        self._load()

    def _load(self) -> None:
        settings = {
            "hoodie.table.name": "lineitem",
            "hoodie.datasource.write.operation": "bulk_insert",
            "hoodie.bulkinsert.sort.mode": "NONE",
            "hoodie.datasource.write.recordkey.field": "l_orderkey,l_linenumber",
            "hoodie.datasource.write.partitionpath.field": "",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
            "hoodie.parquet.compression.codec": "zstd",
            "hoodie.bulkinsert.shuffle.parallelism": str(len(self._job["files"])),
        }
        # One partition a file: neither split nor packed.
        self._spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 30))
        self._spark.conf.set("spark.sql.files.maxPartitionBytes", str(1 << 30))
        rows = self._spark.read.parquet(*self._job["files"])
        rows.write.format("hudi").options(**settings).mode("overwrite").save(str(self._base))

    def reset(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)
        self._runs += 1
        shutil.copytree(self._base, self._place, copy_function=_link_or_copy)

    def run(self) -> None:
        strategy = "hoodie.clustering.plan.strategy."
        size = self._job["output_bytes"]
        options = {
            f"{strategy}small.file.limit": 1 << 40,
            f"{strategy}target.file.max.bytes": size,
            f"{strategy}max.bytes.per.group": 1 << 40,
            "hoodie.parquet.max.file.size": size,
            "hoodie.parquet.compression.codec": "zstd",
        }
        settings = ",".join(f"{name}={value}" for name, value in options.items())
        self._spark.sql(
            f"CALL run_clustering(path => '{self._place}', op => 'scheduleAndExecute', "
            f"order => '{self._job['key']}', options => '{settings}')"
        ).collect()

    def output(self) -> list[str]:
        rows = self._spark.read.format("hudi").load(str(self._place))
        return [file.removeprefix("file://") for file in rows.inputFiles()]

    @property
    def _place(self) -> Path:
        return self._base.with_name(str(self._runs))


def _link_or_copy(source: str, target: str) -> None:
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of Spark and Hudi must not mix with answers
    server = None
    for line in sys.stdin:
        request = json.loads(line)
        if server is None:
            server, answer = Server(request), None
        else:
            answer = getattr(server, request["do"])()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
