"""Start-up time of the command: `tblctl --help` and `tblctl history` against `import pyarrow.dataset`."""

from __future__ import annotations

import statistics
import sys

import pyarrow as pa

import tblctl
from benchmarks.common import Command, Pairs, Report, in_turn, main, scratch, script

IMPORT = "import pyarrow.dataset"


def measure(report: Report, tiny: bool) -> None:
    runs = 2 if tiny else 15
    with scratch() as folder:
        place = folder / "table"
        table = tblctl.create(place, "a: int64, b: string", cluster_by="a")
        for number in range(3):
            table.append(pa.table({"a": [number], "b": [str(number)]}))
        commands = {
            "python -c pass": Command(sys.executable, "-c", "pass"),
            f"python -c '{IMPORT}'": Command(sys.executable, "-c", IMPORT),
            "tblctl --help": Command(script("tblctl"), "--help"),
            "tblctl history": Command(script("tblctl"), "history", str(place)),
        }
        _, imported, helped, listed = seconds = in_turn(list(commands.values()), runs=runs)
    report.begin(f"whole processes, {runs} runs in turn; the table is local and has 4 snapshots")
    for (name, case), measured in zip(commands.items(), seconds, strict=True):
        report.seconds(name, measured)
        report.seconds("  of processor time", case.cpu_seconds[-runs:])
    report.figure("tblctl --help, median", statistics.median(helped), "s", most=0.4)
    report.figure(f"tblctl history / {IMPORT}", Pairs(ours=listed, baseline=imported).cost, "x", most=2.0)


if __name__ == "__main__":
    main("startup", measure)
