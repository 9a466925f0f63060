"""Tables with pending plans, and jobs that execute these group by group."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tables import SCHEMA, objects_of, open_impatient, places, rows

import tblctl
from tblctl.maintain.pending import PendingJob
from tblctl.maintain.request import Request
from tblctl.merger.engines.local import LocalEngine
from tblctl.tableformat.environment import Beat
from tblctl.tableformat.native.log.checked_json import with_checksum
from tblctl.tableformat.native.log.names import plan_path
from tblctl.tableformat.storage import Storage

PAIRS = (0, 100, 200)
DAY_SECONDS = 86400
IDS = [pair + step for pair in PAIRS for step in range(1, 9)]


def build(location: str, pairs: Sequence[int] = PAIRS) -> tblctl.Table:
    """Make a table of pairs of blocks that overlap: as many groups."""
    table = tblctl.create(location, SCHEMA, cluster_by="id", options={"block_rows": 4})
    for pair in pairs:
        table.append(rows(*range(pair + 1, pair + 9, 2)))
        table.append(rows(*range(pair + 2, pair + 10, 2)))
    return table


def built(tmp_path: Path) -> Iterator[str]:
    """Yield the location of such a table in memory."""
    for found in places("memory", tmp_path):
        location = found.fresh()
        build(location)
        yield location


def put(location: str, document: Any, *, seconds: int = DAY_SECONDS, sealed: bool = True) -> str:
    """Store an object in the place of a pending plan; return its id."""
    plan_id = "a" * 32
    data = with_checksum(document) if sealed else json.dumps(document).encode()
    Storage(location).write(plan_path(plan_id, seconds), data)
    return plan_id


def pending_objects(location: str) -> list[str]:
    return sorted(
        name for name in objects_of(location) if name.startswith(("metadata/plans/", "metadata/claims/"))
    )


def one_by_one(location: str, **words: Any) -> PendingJob:
    """Return a job that claims and commits one group after the other."""
    table = open_impatient(location)
    request = Request.of(policy=None, condition=lambda _schema: None, options=None)
    return PendingJob(
        port=table._port,
        plans=table._plans(None),
        request=request,
        engine=lambda _plan: LocalEngine(processors=lambda: 1),
        claim_bytes=0,
        **words,
    )


class Beats:
    """Stands for the thread beside a round: it beats once when the round begins, and once when it ends."""

    def __init__(self, job: PendingJob) -> None:
        self.seconds: list[float] = []
        job.port.env.__dict__["beat"] = self.beside

    @contextlib.contextmanager
    def beside(self, seconds: float, action: Beat) -> Iterator[None]:
        self.seconds.append(seconds)
        action(lambda: False)
        yield
        action(lambda: False)
