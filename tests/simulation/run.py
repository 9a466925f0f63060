"""Run histories, one or thousands, and report what was found."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from simulation.formats import FORMATS
from simulation.history import History
from simulation.oracle import Broken

_PROGRESS_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of one history: what was found (None: nothing), figures, and a digest of all requests."""

    history: History
    found: BaseException | None
    counts: Counter[str] = field(default_factory=Counter)
    digest: str = ""

    @property
    def kind(self) -> str:
        """The class of what was found."""
        return type(self.found).__name__


def run_history(history: History, *, lines: list[str] | None = None) -> Result:
    """Run one history. `lines` gets one line for each request."""
    loggers = [logging.getLogger(name) for name in ("tblctl", "pyiceberg")]
    levels = [logger.level for logger in loggers]
    world = FORMATS[history.format].world(history)
    world.lines = lines
    found: BaseException | None = None
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)  # faults are warned about: thousands of lines
        world.run()
    except (Exception, Broken) as error:
        found = error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    counts = world.counts
    counts["histories"] = 1
    counts["requests"] = world.calls
    counts["rows compared"] = world.oracle.rows_compared
    return Result(history=history, found=found, counts=counts, digest=world.trace.hexdigest())


@dataclass
class Total:
    """What came of many histories: figures, and what each failing seed found."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        counts = self.counts
        sums = {
            kind: sum(count for name, count in counts.items() if name.startswith(f"{kind} "))
            for kind in ("operation", "fault", "error")
        }
        lines = [
            f"histories      {counts['histories']:>12,}",
            f"operations     {sums['operation']:>12,}",
            f"requests       {counts['requests']:>12,}",
            f"commits        {counts['commits']:>12,}",
            f"crashes        {counts['crashes']:>12,}",
            f"rows compared  {counts['rows compared']:>12,}",
        ]
        for kind in ("fault", "error", "operation"):
            lines.append(f"{kind}s: {sums[kind]:,}")
            lines += [
                f"    {name:<30} {counts[name]:>10,}"
                for name in sorted(counts)
                if name.startswith(f"{kind} ")
            ]
        lines.append(f"failing seeds: {len(self.failed)}")
        return "\n".join(lines)


def replay_command(seed: int, table_format: str = "native") -> str:
    """Return the command that runs one history again, and cuts it if it fails."""
    chosen = "" if table_format == "native" else f" --format {table_format}"
    return f"(cd tests && ../.venv/bin/python -m simulation{chosen} --seed {seed})"


def run_many(
    seeds: Iterable[int],
    *,
    processes: int,
    table_format: str = "native",
    say: Callable[[str], None] = print,
    fail_fast: bool = False,
) -> Total:
    """Run the histories of some seeds. `say` gets lines of progress, and the command for each seed that fails."""
    total = Total()
    wanted = list(seeds)
    started = said = time.monotonic()
    for seed, counts, found in _each(wanted, processes, table_format):
        total.counts += counts
        if found:
            total.failed[seed] = found
            say(f"seed {seed}: {found}\n    {replay_command(seed, table_format)}")
            if fail_fast:
                break
        if time.monotonic() - said > _PROGRESS_SECONDS:
            said = time.monotonic()
            done = total.counts["histories"]
            say(
                f"{done:,} of {len(wanted):,} histories in {said - started:.0f} s, {len(total.failed)} failed"
            )
    return total


def _each(
    seeds: list[int], processes: int, table_format: str
) -> Iterator[tuple[int, Counter[str], str | None]]:
    one = partial(_one, table_format)
    if processes == 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("forkserver").Pool(processes) as pool:
        yield from pool.imap_unordered(one, seeds, chunksize=4)


def _one(table_format: str, seed: int) -> tuple[int, Counter[str], str | None]:
    result = run_history(FORMATS[table_format].draw(seed))
    found = None if result.found is None else f"{result.kind}: {result.found}"[:600]
    return seed, result.counts, found
