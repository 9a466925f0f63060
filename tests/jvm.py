"""Options for the many JVMs that tests start: each takes about a quarter of the processor time (4 s instead of 18 s).

They read Spark's classes from an archive, which one JVM writes at first use, compile without optimising, and collect
garbage in one thread. Spark's behaviour is the same.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

BUILD = Path(__file__).resolve().parent.parent / "build" / "tests"
PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"

# Loads what most tests need: a source and a sink in Python, functions of workers, a shuffle, Parquet and Arrow.
TYPICAL = """
import sys, tempfile, tblctl
from pyspark import SparkContext
from tblctl.merger.engines.spark import workers
from tblctl.merger.engines.spark.session import open_session
from tblctl.spark.code import CODE

archive = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={sys.argv[1]}"}
with open_session(master="local[2]", conf=archive) as session, tempfile.TemporaryDirectory() as folder:
    tblctl.spark.register(session)
    tblctl.create(f"{folder}/table", "k: int64", cluster_by=["k"])
    session.range(100).selectExpr("id % 7 as k").write.format("tblctl").mode("append").save(f"{folder}/table")
    rows = session.read.format("tblctl").load(f"{folder}/table").where("k > 3")
    rows.write.parquet(f"{folder}/rows")
    session.read.parquet(f"{folder}/rows").repartitionByRange(2, "k").orderBy("k").toArrow()
    workers.prepare(session, CODE)
    gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


@functools.cache
def quick_java() -> dict[str, str]:
    """Return the environment variable that gives every `java` the options; none without Java or pyspark."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None or importlib.util.find_spec("pyspark") is None:
        return {}
    archive = _archive(java)
    words = f"{PLAIN} -XX:SharedArchiveFile={archive}" if archive.exists() else PLAIN
    return {"JDK_JAVA_OPTIONS": words}


def _archive(java: str) -> Path:
    """Return the archive of this Java and this pyspark, which is there unless it could not be made.

    A JVM goes without one that was made of other files.
    """
    import pyspark

    version = subprocess.run([java, "-version"], capture_output=True).stderr
    package = Path(pyspark.__file__)
    made_of = f"{version!r} {package} {package.stat().st_mtime_ns} {pyspark.__version__} {TYPICAL}"
    archive = BUILD / f"spark-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            new = archive.with_suffix(".new")
            variables = os.environ | {"PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": PLAIN}
            done = subprocess.run([sys.executable, "-c", TYPICAL, new], env=variables, capture_output=True)
            if done.returncode == 0 and new.exists():
                new.rename(archive)
    return archive
