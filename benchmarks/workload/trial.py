"""A contender on a trace: what its queries and its rewriting cost, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from benchmarks.workload.table import MATCH_SECONDS, READ_SECONDS, REWRITE_MS_PER_MB, SORT_SHARE, TrialTable
from benchmarks.workload.traces import Batch, Question, Trace
from tblctl.selector.workload.asked import Floats, Ints, Key

Rewrite = tuple["Ints", "Key"]


class Contender(Protocol):
    """What decides in a trial. It may change the table through `rewrite` alone."""

    def arrives(self, table: TrialTable, batch: Batch, number: int) -> Key | None:
        """Return what a batch is sorted by while it is written; None to leave it as it comes."""

    def asked(self, table: TrialTable, question: Question, number: int) -> Sequence[Rewrite]:
        """Return what to rewrite after a query."""

    def ends(self, table: TrialTable, number: int) -> Sequence[Rewrite]:
        """Return what to rewrite after a batch's queries."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of each counted batch."""

    reading: tuple[float, ...]
    matching: tuple[float, ...]
    rewriting: tuple[float, ...]
    rewritten: int

    @property
    def total(self) -> float:
        """All seconds."""
        return sum(self.reading) + sum(self.matching) + sum(self.rewriting)

    @property
    def by_batch(self) -> Floats:
        """All seconds, batch by batch."""
        return np.array([self.reading, self.matching, self.rewriting]).sum(axis=0)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A trace that is drawn once and then replayed.

    Attributes:
        rows: of a block.
        batches: all of the trace.
        matching: blocks' worth of rows that each query of each batch asks for.
    """

    trace: Trace
    rows: int
    rewrite_ms_per_mb: float
    batches: tuple[Batch, ...]
    matching: tuple[tuple[float, ...], ...] = field(repr=False)

    @classmethod
    def of(
        cls,
        trace: Trace,
        rng: Callable[[int], Any],
        *,
        block_rows: int,
        seed: int | None = None,
        rewrite_ms_per_mb: float = REWRITE_MS_PER_MB,
        most_batches: int | None = None,
    ) -> Setting:
        """Draw a trace."""
        table = TrialTable(len(trace.columns), block_rows)
        batches, matching = [], []
        for batch in trace.batches(rng(trace.seed if seed is None else seed), block_rows):
            if len(batches) == most_batches:
                break
            table.append(batch.rows)
            known: dict[tuple[Any, ...], float] = {}
            counts = []
            for question in batch.questions if len(batches) >= trace.counted else ():
                asked = tuple(sorted(question.ranges.items()))
                if asked not in known:
                    known[asked] = table.matching(question)
                counts.append(known[asked])
            batches.append(batch)
            matching.append(tuple(counts))
        return cls(
            trace=trace,
            rows=block_rows,
            rewrite_ms_per_mb=rewrite_ms_per_mb,
            batches=tuple(batches),
            matching=tuple(matching),
        )

    @property
    def blocks(self) -> int:
        """Blocks that arrive in all."""
        return sum(batch.rows.shape[1] for batch in self.batches) // self.rows

    def oracle(self) -> float:
        """Return the seconds of queries that read the blocks' worth of rows that match, and one block more."""
        return sum(
            (count + 1) * question.share * READ_SECONDS + count * MATCH_SECONDS
            for batch, counts in zip(self.batches, self.matching, strict=True)
            for question, count in zip(batch.questions, counts, strict=False)
        )


def run(setting: Setting, contender: Contender) -> Cost:
    """Return what a trace costs with a contender."""
    trace = setting.trace
    table = TrialTable(len(trace.columns), setting.rows, setting.rewrite_ms_per_mb)
    reading, matching, rewriting = [], [], []
    for number, batch in enumerate(setting.batches):
        spent = read = 0.0
        key = contender.arrives(table, batch, number) if batch.rows.size else None
        table.append(batch.rows, key)
        if key is not None:
            spent += SORT_SHARE * table.rewrite_seconds * batch.rows.shape[1] / setting.rows
        before = table.rewritten
        for question in batch.questions:
            read += np.count_nonzero(table.met(question)) * question.share * READ_SECONDS
            for chosen, by in contender.asked(table, question, number):
                table.rewrite(chosen, by)
        for chosen, by in contender.ends(table, number):
            table.rewrite(chosen, by)
        spent += (table.rewritten - before) * table.rewrite_seconds
        if number >= trace.counted:
            reading.append(read)
            matching.append(MATCH_SECONDS * sum(setting.matching[number]))
        rewriting.append(spent)
    skipped = len(rewriting) - len(reading)
    first = sum(rewriting[: skipped + 1])
    return Cost(
        reading=tuple(reading),
        matching=tuple(matching),
        rewriting=(first, *rewriting[skipped + 1 :]),
        rewritten=table.rewritten,
    )
