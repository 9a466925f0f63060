"""Attack one parser with input that libFuzzer grows towards code that was not reached yet.

    python -m hostile.fuzz <parser> [options of libFuzzer]       (with tests/ in PYTHONPATH; needs atheris)

`make fuzz` runs all of them, `make fuzz PARSERS=where FUZZ_SECONDS=600` one for ten minutes. What is found is in
build/fuzz/<parser>/; make it small with `-minimize_crash=1 -runs=100000 FILE`, mend the fault, and keep the input as
tests/hostile/cases/<parser>/<what it shows>.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tblctl", "pyiceberg", "sqlglot"]):
    from hostile.attack import judge, limited
    from hostile.mutations import changed
    from hostile.parsers import PARSERS

BUILD = Path(__file__).parents[2] / "build" / "fuzz"
CASE_SECONDS = 10


def main() -> None:
    parser = PARSERS[sys.argv[1]]
    corpus, found = BUILD / parser.name / "corpus", BUILD / parser.name
    corpus.mkdir(parents=True, exist_ok=True)
    valid = list(parser.valid())
    for number, data in enumerate(valid):
        (corpus / f"valid-{number}").write_bytes(data)
    limited()

    def mutate(data: bytes, most: int, number: int) -> bytes:
        """Take libFuzzer's own changes half of the time, since it knows the constants that code compares with."""
        rng = random.Random(number)
        if rng.random() < 0.5:
            return atheris.Mutate(data, most)
        return changed(rng, data, rng.choice(valid), parser.changes)[:most]

    most = max(map(len, valid)) + 4_096
    options = [
        f"-max_len={most}",
        f"-timeout={CASE_SECONDS}",
        "-rss_limit_mb=4096",
        f"-artifact_prefix={found}/",
    ]
    atheris.Setup(
        [sys.argv[0], *options, *sys.argv[2:], str(corpus)],
        lambda data: judge(parser, data),
        custom_mutator=mutate,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
