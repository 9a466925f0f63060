"""Give one parser changed input, and judge what it does; run as a process of its own, with limits.

    python -m hostile.attack <parser> <number of cases> [first seed]       (with tests/ in PYTHONPATH)
    python -m hostile.attack                                               (see `serve`)

Prints the input of each failure in hexadecimal, and ends with 1. Where the process dies, the last line of its output is
the input that did it. Hypothesis draws the cases, and finds the smallest that fails.

Limits: a case of a few kB may take 10 s of processor time, 50 times what any takes on a slow machine; it may make
Arrow hold 256 MiB, or the process grow by that much. The process as a whole may take 4 GiB more than at its start, so
that one that asks for much more gets an error at once.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from pathlib import Path

import pyarrow as pa
from hostile.mutations import changed
from hostile.parsers import PARSERS, Parser
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from profiles import PROFILE

CASE_SECONDS = 10.0
MOST_BYTES = 256 << 20
PROCESS_BYTES = 4 << 30
CASES = Path(__file__).parent / "cases"

_POOLS: list[pa.MemoryPool] = []
"""Pools of all cases: what a parser keeps is returned to the pool that it came from, which must still be there."""


class WrongError(Exception):
    """A parser broke a rule."""


def kept_cases(parser: Parser) -> list[Path]:
    """Return the files of input that once made a parser fail."""
    return sorted((CASES / parser.name).glob("*"))


def judge(parser: Parser, data: bytes) -> bool:
    """Parse input; return whether it was accepted.

    Raises:
        WrongError: the parser raised what it may not, hid which object is at fault, or took too much memory.
    """
    pool = pa.proxy_memory_pool(
        pa.system_memory_pool()
    )  # a new one for each case: it knows the most it ever held
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    grown = _most_resident()
    try:
        error = _raised(parser, data)
    finally:
        pa.set_memory_pool(pa.system_memory_pool())
    if pool.max_memory() > MOST_BYTES:
        raise WrongError(f"Arrow held {pool.max_memory():,} bytes")
    if _most_resident() - grown > MOST_BYTES:
        raise WrongError(f"the process grew by {_most_resident() - grown:,} bytes")
    if error is None:
        return True
    if not isinstance(error, parser.allowed):
        raise WrongError(f"it raised {error!r:.300}") from error
    if parser.says not in str(error) or not str(error):
        raise WrongError(f"the error does not name {parser.says}: {error}") from error
    return False


def _raised(parser: Parser, data: bytes) -> BaseException | None:
    try:
        parser.parse(data)
    except AssertionError as error:
        raise WrongError(f"what it read does not hold: {error}") from error
    except Exception as error:
        return error
    return None


def _most_resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def limited() -> None:
    """Limit the memory of this process from now on."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + PROCESS_BYTES, resource.RLIM_INFINITY))


def _tried(parser: Parser, data: bytes) -> None:
    """Judge one input. Its own line is printed first, and the process ends if it takes too long, also inside of C."""
    print("case", data.hex(), flush=True)
    signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)
    try:
        judge(parser, data)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def serve() -> None:
    """Run an attack for each line of stdin, in a fork of its own, and print how it ended; so modules are loaded once.

    A line has the parser, the number of cases, and the file for what the attack prints.
    """
    for line in sys.stdin:
        name, count, place = line.rstrip("\n").split(" ", 2)
        child = os.fork()
        if not child:
            to = os.open(place, os.O_WRONLY | os.O_CREAT)
            os.dup2(to, 1)
            os.dup2(to, 2)
            end(name, int(count))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def end(name: str, count: int, first_seed: int | None = None) -> None:
    """Attack, and end this process."""
    code = 1
    try:
        code = main(PARSERS[name], count, first_seed)
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)  # Python frees the pools before the arrays of caches, in no order that one can rely on


def main(parser: Parser, count: int, first_seed: int | None) -> int:
    valid = list(parser.valid())
    if not judge(parser, valid[0]):  # otherwise the changes would never reach far into the parser
        print("wrong: valid input is refused:", valid[0].hex())
        return 1
    limited()
    for path in kept_cases(parser):
        print("kept", path.name)
        _tried(parser, path.read_bytes())

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=PROFILE == "ci" and first_seed is None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(valid), st.sampled_from(valid), st.randoms(use_true_random=False))
    def attacked(data, other, rng):
        _tried(parser, changed(rng, data, other, parser.changes))

    if first_seed is not None:
        attacked = seed(first_seed)(attacked)
    try:
        attacked()
    except WrongError as error:
        print("wrong:", error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve()
    else:
        end(sys.argv[1], *map(int, sys.argv[2:4]))
