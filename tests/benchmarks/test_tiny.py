"""Every benchmark runs to its end on small data, so that it keeps working. Its figures there mean nothing."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from jvm import quick_java

ROOT = Path(__file__).resolve().parent.parent.parent
SUBJECTS = runpy.run_path(str(ROOT / "benchmarks" / "__main__.py"))["SUBJECTS"]
SLOW = {"cuts", "merge", "spark_source"}  # start Spark
REWRITES = {
    "iceberg",
    "small",
    "overlap",
}  # start Spark with Iceberg if they are asked to, beside all that they do else


def tiny(subject, *words, spark=False):
    """Run a benchmark on small data, with environment variables for a quick start of Spark."""
    command = [sys.executable, "-m", f"benchmarks.{subject}", "--tiny", *words]
    variables = os.environ | (quick_java() if spark else {})
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=variables)


def assert_runs(subject, *words, spark):
    """Run a benchmark, which may write no result; return what it printed."""
    results = ROOT / "benchmarks" / "results"
    before = {path: path.stat().st_mtime_ns for path in results.glob("*")}
    done = tiny(subject, *words, spark=spark)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{subject}: made by")
    assert {path: path.stat().st_mtime_ns for path in results.glob("*")} == before
    return done.stdout


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
        for name in SUBJECTS
        if name not in REWRITES
    ],
)
def test_benchmark_runs_on_small_data_and_writes_no_result(subject):
    assert_runs(subject, spark=subject in SLOW)


def test_blocks_in_another_order_are_merged_as_the_floor_does():
    done = tiny("merge", "--unsorted", "--contenders", "floor,local")
    assert done.returncode == 0, done.stderr
    assert "not sorted by l_shipdate" in done.stdout
    assert "local / floor" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("spark")
def test_peers_that_spark_downloads_do_the_same_job():
    done = tiny("merge", "--contenders", "iceberg-sort,delta-zorder", spark=True)
    assert done.returncode == 0, done.stderr
    if "skipped" in done.stdout:
        pytest.skip(next(line for line in done.stdout.splitlines() if line.startswith("skipped")))
    assert "Iceberg: rewrite_data_files, sort" in done.stdout
    assert "Delta: OPTIMIZE ZORDER BY" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("subject", sorted(REWRITES))
def test_rewrites_by_iceberg_are_compared_with_reclusters(subject):
    if not quick_java():
        assert_runs(subject, spark=False)
        pytest.skip("no Java: compared without Spark")
    shown = assert_runs(subject, "--spark", spark=True)
    if "skipped" in shown:
        pytest.skip(next(line for line in shown.splitlines() if line.startswith("skipped")))
    assert "rewrite_data_files" in shown


def test_every_subject_is_run_by_make_bench_and_here():
    from_files = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {
        "__init__",
        "__main__",
        "common",
    }
    packages = {path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py")}
    assert from_files | packages == set(SUBJECTS)
