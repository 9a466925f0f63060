"""Compare this code with that of another commit, side by side: append, scan, merge, metadata, planning, start-up.

    python -m benchmarks.before --commit HEAD~1

Both run in this environment, each case in its own processes, in turn. Each works on a table that its own code made. For
plans, this code made the table of many blocks without files. Times are measured inside the process: the work, without
imports and preparation (start-up: whole processes). The ratios are medians over the pairs. If other work runs on the
machine, trust the ratio of processor seconds.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from benchmarks.common import ROOT, Pairs, Report, lineitem, main, scratch
from benchmarks.metadata import build

KEY = "l_shipdate"
MOST_COST = 1.03

PRELUDE = """
import json, os, shutil, subprocess, sys, time
import pyarrow as pa, pyarrow.parquet as pq
import tblctl
source, place, spare, planned = sys.argv[1:5]
block_rows, many, most_times = map(int, sys.argv[5:8])
def command(*words):
    start = "import sys; from tblctl.cli.main import run; sys.exit(run())"
    subprocess.run([sys.executable, "-c", start, *words], check=True, stdout=subprocess.DEVNULL)
def create(where, rows):
    schema = tblctl.read_schema(source)
    return tblctl.create(where, schema, cluster_by="l_shipdate", options={"block_rows": rows})
def run(work, times=1):
    def cpu():
        spent = os.times()
        return spent.user + spent.system + spent.children_user + spent.children_system
    started, before = time.perf_counter(), cpu()
    for _ in range(min(times, most_times)):
        work()
    print(json.dumps({"seconds": time.perf_counter() - started, "cpu_seconds": cpu() - before}))
"""

MAKE = """
table = create(place + "/overlapping", block_rows)
for batch in pq.ParquetFile(source).iter_batches(block_rows):
    table.append(pa.Table.from_batches([batch]))
create(place + "/many", many).append(pq.read_table(source).slice(0, 10_000 * many))
"""

CASES = {
    "append": """
run(lambda: create(spare + "/t", block_rows).append(source))
""",
    "scan, all rows": """
table = tblctl.open(place + "/overlapping")
run(lambda: table.scan().to_arrow())
""",
    "scan, a month and three columns": """
table = tblctl.open(place + "/overlapping")
where = "l_shipdate >= '1995-01-01' and l_shipdate < '1995-02-01'"
run(lambda: table.scan(where, columns=["l_orderkey", "l_extendedprice", "l_comment"]).to_arrow(), 3)
""",
    "merge, in this process": """
shutil.copytree(place + "/overlapping", spare + "/t", copy_function=os.link)
table = tblctl.open(spare + "/t")
run(lambda: table.recluster(policy="full"))
""",
    "metadata: open and prune": """
run(lambda: tblctl.open(place + "/many").scan("l_orderkey = 7").explain(), 10)
""",
    # A process's imports fill the collector's generations. So a few more objects can cause one more full collection,
    # 40 ms, in this process or only in the next one. This case shows the work alone.
    "metadata: open and prune, Python's collector off": """
import gc
gc.disable()
run(lambda: tblctl.open(place + "/many").scan("l_orderkey = 7").explain(), 10)
""",
    "metadata: append ten rows": """
shutil.copytree(place + "/many", spare + "/t", copy_function=os.link)
few = pq.ParquetFile(source).read_row_group(0).slice(0, 10)
run(lambda: tblctl.open(spare + "/t").append(few), 20)
""",
    "planning: levels": """
run(lambda: tblctl.open(planned).plan(options={"threshold": 4}))
""",
    "planning: full": """
run(lambda: tblctl.open(planned).plan(policy="full"))
""",
    "planning: info": """
run(lambda: tblctl.open(planned).info())
""",
    "start-up: import tblctl": """
run(lambda: subprocess.run([sys.executable, "-c", "import tblctl"], check=True), 5)
""",
    "start-up: tblctl --help": """
run(lambda: command("--help"), 5)
""",
    "start-up: tblctl history": """
run(lambda: command("history", place + "/many"), 5)
""",
    "start-up: tblctl info": """
run(lambda: command("info", place + "/overlapping"), 5)
""",
}


class Code:
    """The package of one commit, and its tables."""

    def __init__(self, tree: Path, folder: Path, arguments: tuple[str, ...]) -> None:
        self.place = folder / "tables"
        self.place.mkdir(parents=True)
        self._spare = folder / "spare"
        self._links = folder / "links"
        self._links.mkdir()
        self._source, *self._others = arguments
        script = tree / "scripts" / "link_package.py"
        code = (
            "import runpy, sys, pathlib; "
            "runpy.run_path(sys.argv[1])['link'](pathlib.Path(sys.argv[2]), root=pathlib.Path(sys.argv[3]))"
        )
        words = [sys.executable, "-c", code, str(script), str(self._links), str(tree)]
        subprocess.run(words, check=True)
        self.run(MAKE)

    def run(self, code: str) -> dict[str, float]:
        """Run a case in a fresh process; return its measurements."""
        shutil.rmtree(self._spare, ignore_errors=True)
        self._spare.mkdir()
        words = [
            sys.executable,
            "-c",
            PRELUDE + code,
            self._source,
            str(self.place),
            str(self._spare),
            *self._others,
        ]
        # Compiled code is kept, as in an installed package: starting a process does not compile modules.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPATH"] = str(self._links)
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, env=environment, cwd=self._spare
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-2000:])
        return json.loads(done.stdout) if done.stdout else {}


def checked_out(commit: str, folder: Path) -> Path:
    """Return a folder with the files of a commit."""
    words = ["git", "-C", str(ROOT), "archive", commit]
    packed = subprocess.run(words, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _pair(now: Code, before: Code, case: str, number: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the measurements of both. The order alternates by round. If both are one commit, it runs once."""
    if now is before:
        found = now.run(case)
        return found, found
    if number % 2:
        later = before.run(case)
        return now.run(case), later
    return now.run(case), before.run(case)


def measure(report: Report, tiny: bool, commit: str, runs: int, cases: str) -> None:
    path = lineitem("0.001" if tiny else "1")
    block_rows, many = (1_000, 100) if tiny else (100_000, 60)
    segments, segment_blocks = (1, 1_000) if tiny else (50, 10_000)
    runs = 1 if tiny else runs
    chosen = [name for name in CASES if any(text in name for text in cases.split(","))]
    report.line(
        f"the commit before: {commit}; blocks of {block_rows:,} rows, {segments * segment_blocks:,} planned; "
        f"{runs} runs in turn, one before"
    )
    with scratch() as folder:
        build(folder / "planned", segments, segment_blocks, scattered=True)
        arguments = (str(path), str(folder / "planned"), str(block_rows), str(many), "1" if tiny else "99")
        now = before = Code(ROOT, folder / "now", arguments)
        if not tiny:
            before = Code(checked_out(commit, folder / "tree"), folder / "before", arguments)
        for name in chosen:
            rounds = range(1 if tiny else runs + 1)
            pairs = [_pair(now, before, CASES[name], number) for number in rounds][-runs:]
            report.begin(name)
            for figure in ("seconds", "cpu_seconds"):
                both = Pairs(
                    ours=tuple(pair[0][figure] for pair in pairs),
                    baseline=tuple(pair[1][figure] for pair in pairs),
                )
                report.pairs(f"now, {figure}", both, f"before, {figure}")
                most = MOST_COST if figure == "cpu_seconds" else None
                report.figure(f"now / before, {figure}", both.cost, "x", most=most)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--commit", default="HEAD~1", help="the other commit (HEAD~1)")
    parser.add_argument("--runs", type=int, default=7, help="runs that count (7)")
    parser.add_argument(
        "--cases", default="", help="only cases whose name has one of these texts: append,merge"
    )


if __name__ == "__main__":
    main("before", measure, _options)
