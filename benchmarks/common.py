"""Shared by all benchmarks: runs in pairs, medians, ratios, and results as text.

A subject is a module with `measure(report, tiny)`. It times ours and a baseline in turn (A B A B ..) in one run, and
reports the median of the ratios of the pairs. So other work on the machine and its changing clock rate affect both
sides alike. Absolute times hold only for the machine in the result's second line.

    python -m benchmarks.append            the whole subject; writes benchmarks/results/append.txt
    python -m benchmarks.append --tiny     takes seconds, with small data, and writes nothing; tests run it
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DATA = ROOT / "build" / "benchmarks"  # not in version control

Timed = Callable[[], float]
"""Does the work once and returns its seconds, without preparation and clean-up."""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Seconds of two cases that were run in turn."""

    ours: tuple[float, ...]
    baseline: tuple[float, ...]

    @property
    def speed(self) -> float:
        """Our speed as a share of the baseline's: the median over the pairs."""
        return statistics.median(b / a for a, b in zip(self.ours, self.baseline, strict=True))

    @property
    def cost(self) -> float:
        """Our time as a multiple of the baseline's: the median over the pairs."""
        return statistics.median(a / b for a, b in zip(self.ours, self.baseline, strict=True))

    @property
    def excess_seconds(self) -> float:
        """How many seconds longer ours takes: the median over the pairs."""
        return statistics.median(a - b for a, b in zip(self.ours, self.baseline, strict=True))


def in_turn(cases: Sequence[Timed], *, runs: int) -> list[tuple[float, ...]]:
    """Return the seconds of each case in `runs` rounds, after one round that does not count.

    A single round, as tiny data has it, is not preceded by another.
    """
    rounds: list[list[float]] = []
    for _ in range(rounds_in_all(runs)):
        rounds.append([])
        for case in cases:
            gc.collect()
            rounds[-1].append(case())
    return list(zip(*rounds[-runs:], strict=True))


def rounds_in_all(runs: int) -> int:
    """Return how many rounds there are if `runs` count: the first does not, unless it is the only one."""
    return runs + 1 if runs > 1 else 1


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> Timed:
    """Make a case of a function: its whole run counts by a clock, but not the freeing of its result."""

    def run() -> float:
        started = clock()
        result = work()
        seconds = clock() - started
        del result
        return seconds

    return run


class Command:
    """A case that runs a command as a process. Its output is read and discarded.

    `cpu_seconds` is the processor time of every run, which is reliable on a busy machine too. `variables` are added to
    those of the environment. Python may keep compiled modules, as it does for a user: an installation from a wheel has
    them, one in a checkout makes them in its first run.
    """

    def __init__(self, *words: str, variables: Mapping[str, str] | None = None) -> None:
        self.words = words
        self.cpu_seconds: list[float] = []
        self._variables = variables

    def __call__(self) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        variables = {**os.environ, **(self._variables or {})}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(self.words, capture_output=True, text=True, check=False, env=variables)
        seconds = time.perf_counter() - started
        if done.returncode != 0:
            msg = f"{' '.join(self.words)} ended with {done.returncode}: {done.stderr[-500:]}"
            raise RuntimeError(msg)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        return seconds


@dataclass
class Report:
    """The text of one result, printed while it grows."""

    subject: str
    part: str = ""
    lines: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def line(self, text: str = "") -> None:
        self.lines.append(text.rstrip())
        print(text.rstrip(), flush=True)

    def begin(self, part: str) -> None:
        """Begin a part of the result."""
        self.part = part
        self.line()
        self.line(part)

    def seconds(self, name: str, seconds: Sequence[float]) -> None:
        """Write the median, least and most of some runs."""
        low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
        self.line(f"  {name:<44} {middle:9.3f} s   [{low:.3f} .. {high:.3f}]")

    def figure(
        self, name: str, value: float, unit: str, *, least: float | None = None, most: float | None = None
    ) -> None:
        """Write a figure, and if it has a limit, whether it is within it."""
        verdict = ""
        for word, limit, kept in (
            ("at least", least, least is None or value >= least),
            ("at most", most, most is None or value <= most),
        ):
            if limit is not None:
                verdict = f"   {word} {limit:g} {unit}: {'met' if kept else 'MISSED'}"
                if not kept:
                    self.missed.append(f"{self.part}: {name}")
        self.line(f"  {name:<44} {value:9.3f} {unit}{verdict}")

    def pairs(self, name: str, pairs: Pairs, baseline: str) -> None:
        """Write both sides of a comparison."""
        self.seconds(name, pairs.ours)
        self.seconds(baseline, pairs.baseline)


def machine() -> str:
    """Describe the machine and the libraries, without the machine's name."""
    import pyarrow

    import tblctl

    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{cpus} processors ({_processor()}), {memory_bytes / 2**30:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}, pyarrow {pyarrow.__version__}, tblctl {tblctl.__version__}"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _processor_times() -> tuple[float, float, float] | None:
    """Return seconds since some time, of processors of the machine that worked, and of this process's; None elsewhere.

    Children count once they ended.
    """
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, _, _, interrupts, soft, *_ = map(int, stat.read_text().split("\n")[0].split()[1:])
    worked = (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
    return time.monotonic(), worked, sum(os.times()[:4])


def _beside(begin: tuple[float, float, float] | None, end: tuple[float, float, float] | None) -> float | None:
    """Return how many processors others kept busy between two times."""
    if begin is None or end is None:
        return None
    seconds, worked, own = (after - before for before, after in zip(begin, end, strict=True))
    return max(0.0, worked - own) / seconds


def resident_mib(name: str, process: str = "self") -> float:
    """Return a process's memory as the kernel reports it: VmRSS is the current size, VmHWM the peak (Linux)."""
    lines = Path("/proc", process, "status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary folder, and delete it afterwards."""
    with tempfile.TemporaryDirectory(prefix="tblctl-bench-") as folder:
        yield Path(folder)


def lineitem(scale: str) -> Path:
    """Return TPC-H lineitem at a scale factor as one Parquet file. tpchgen-cli makes it at first use."""
    path = DATA / f"tpch-{scale}" / "lineitem.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            words = ["parquet", "-s", scale, "--tables=lineitem", f"--output-dir={folder}"]
            subprocess.run([script("tpchgen-cli"), *words], check=True, capture_output=True)
            (Path(folder) / path.name).rename(path)
    return path


def script(name: str) -> str:
    """Return the path of a command that was installed with this interpreter."""
    return str(Path(sys.executable).parent / name)


def main(
    subject: str,
    measure: Callable[..., None],
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _: None,
) -> None:
    """Measure a subject with the options of the command line: `measure(report, tiny, **options of the subject)`.

    The result is written to a file only if the whole subject was measured, without options.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{subject}")
    parser.add_argument("--tiny", action="store_true", help="small data, seconds, nothing written")
    add_options(parser)
    options = vars(parser.parse_args())
    report = Report(subject=subject)
    report.line(
        f"{subject}: made by `{shlex.join(['python', '-m', f'benchmarks.{subject}', *sys.argv[1:]])}`"
    )
    report.line(machine())
    begin = _processor_times()
    measure(report, options.pop("tiny"), **options)
    report.line()
    if (busy := _beside(begin, _processor_times())) is not None:
        report.line(f"other work on the machine took {busy:.1f} of its {os.cpu_count()} processors meanwhile")
    report.line(f"limits missed: {'; '.join(report.missed)}" if report.missed else "every limit met")
    if not sys.argv[1:]:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{subject}.txt").write_text("\n".join(report.lines) + "\n")
