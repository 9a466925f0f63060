"""`benchmarks.merge` notices a contender that does not do the job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
ROWS = {"l_shipdate": pa.array([3, 1, 2, 2], pa.date32()), "l_orderkey": [30, 10, 20, 21]}
SCRIPT = """
import sys
from benchmarks.merging.contender import Check, Job
check = Check(Job(files=(sys.argv[1],), is_sorted=True, block_rows=4, output_files=1, row_group_rows=4))
check.require_equal("it", sys.argv[2:], ordered=True)
"""


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        pytest.param([[1, 2, 3, 0]], None, id="one file"),
        pytest.param([[3, 0], [1, 2]], None, id="files in any order that meet at a key"),
        pytest.param([[1, 2, 0]], "it wrote other rows", id="a lost row"),
        pytest.param([[1, 2, 2, 0]], "it wrote other rows", id="one row for another"),
        pytest.param([[1, 0, 2, 3]], "not in the order", id="a file that is not sorted"),
        pytest.param([[1, 0], [2, 3]], "not in the order", id="files that overlap"),
    ],
)
def test_check_accepts_the_same_rows_in_order_and_nothing_else(tmp_path, files, complaint):
    rows = pa.table(ROWS)
    paths = [tmp_path / "input.parquet"]
    pq.write_table(rows, paths[0])
    for number, picked in enumerate(files):
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(rows.take(picked), paths[-1])
    done = subprocess.run([sys.executable, "-c", SCRIPT, *paths], cwd=ROOT, capture_output=True, text=True)
    if complaint is None:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode != 0
        assert complaint in done.stderr


LEFT_OUT = """
import sys
from types import SimpleNamespace
from benchmarks.common import Report
from benchmarks.merge import in_rounds

def run(name):
    answer = next(runs[name])
    if answer == ["unsorted"]:
        raise AssertionError(f"{name} left a depth of 3")
    return float(next(seconds)), answer

class Check:
    def require_equal(self, name, files, *, ordered):
        if files == ["wrong"]:
            raise AssertionError(f"{name} wrote other rows")

runs = {
    "spark": iter([["right"]] * 4),
    "databend": iter([["right"]] * 3 + [["wrong"]]),
    "databend-native": iter([["unsorted"]]),
}
if sys.argv[1] == "ours":
    runs["spark"] = iter([["right"], ["wrong"]])
seconds = iter(range(1, 9))
ready = {name: SimpleNamespace(run=run) for name in runs}
print(in_rounds(Report("merge"), ready, Check(), 2))
"""


@pytest.mark.parametrize("who", ["peer", "ours"])
def test_a_peer_that_once_does_not_do_the_job_is_left_out_and_ours_stops_the_comparison(who):
    done = subprocess.run([sys.executable, "-c", LEFT_OUT, who], cwd=ROOT, capture_output=True, text=True)
    if who == "ours":
        assert "tblctl, on warm Spark local[2] wrote other rows" in done.stderr
        return
    assert "left out: Databend: RECLUSTER FINAL, Parquet wrote other rows" in done.stdout
    assert "left out: databend-native left a depth of 3" in done.stdout
    assert done.stdout.splitlines()[-1] == "{'spark': [2.0, 6.0]}", "the second run of each turn counts"
