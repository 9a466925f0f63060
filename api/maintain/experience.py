"""The rates of a table from its last reclusters, as their commits recorded them.

Each commit of a recluster records what was predicted and what it took (`merger/round/publish.py`), in every format.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tblctl.selector.pricing.rates import (
    DEFAULT_RATES,
    REMOTE_REQUEST_SECONDS,
    Rates,
    Run,
    learned,
    of_engine,
)
from tblctl.tableformat.errors import TblctlError
from tblctl.tableformat.model.snapshot import RECLUSTER
from tblctl.tableformat.port import TablePort, VersionEntry, VersionT

LOG = logging.getLogger("tblctl")

MOST_RUNS = 5
"""Runs that a median is of: the machine may have changed before."""

MOST_VERSIONS = 16
"""Versions that are looked at for them; the native format reads these at once."""


def rates_of(port: TablePort[VersionT], version: VersionT, engine: str | None = None) -> Rates:
    """Return the rates that the last reclusters up to a version suggest; the defaults without any.

    Args:
        port: the table.
        version: the last one to look at.
        engine: what is to merge; None for the engine that ran last. Runs of others say nothing.

    The history is of use, not needed: one that cannot be read is logged.
    """
    try:
        runs = runs_of(port.history(MOST_VERSIONS, start=version))
    except TblctlError as error:
        LOG.debug("%s: the rates of its last reclusters are unknown: %s", port.location, error)
        runs = []
    return _learned(port, runs, engine)


def rates_at_hand(port: TablePort[VersionT], version: VersionT, engine: str | None = None) -> Rates:
    """Return the same from those of the last reclusters that a version's own metadata tells of: no request is made."""
    return _learned(port, runs_of(itertools.islice(port.known_history(version), MOST_VERSIONS)), engine)


def _learned(port: TablePort[VersionT], runs: Sequence[Run], engine: str | None) -> Rates:
    return learned(of_engine(runs, engine)[:MOST_RUNS], starting_rates(port.location))


def starting_rates(location: str) -> Rates:
    """Return the rates of a table without reclusters: requests to a store other than the local disk take time."""
    scheme = location.partition("://")[0] if "://" in location else ""
    is_local = scheme in ("", "file", "memory", "iceberg")
    seconds = 0.0 if is_local else REMOTE_REQUEST_SECONDS
    return Rates(seconds_per_request=seconds) if seconds else DEFAULT_RATES


def runs_of(entries: Iterable[VersionEntry]) -> list[Run]:
    """Return what versions recorded of reclusters, in their order. Those of older tblctl versions say too little."""
    found = (_run(entry.summary.detail) for entry in entries if entry.summary.operation == RECLUSTER)
    return [run for run in found if run is not None]


def _run(detail: Mapping[str, Any]) -> Run | None:
    """Return the run of a commit's summary; None if that does not say all, or has figures that cannot be."""
    stated = detail.get("recluster")
    if not isinstance(stated, Mapping):
        return None
    predicted = stated.get("predicted")
    predicted = predicted if isinstance(predicted, Mapping) else {}
    names = ("bytes_read", "bytes_copied", "bytes_written", "memory_bytes")
    figures = {name: stated.get(name) for name in names}
    counts = {"groups": stated.get("committed_groups"), "requests": predicted.get("requests", 0)}
    seconds, suggested = stated.get("merge_seconds"), predicted.get("suggested_bytes")
    found = {name: _figure(value) for name, value in {**figures, **counts}.items()}
    taken, before = _figure(seconds), _figure(suggested)
    # Tasks count what they read of rows, a prediction whole files: of small files, the footers are most.
    files = _figure(predicted.get("bytes_read"))
    if files and found["bytes_read"] is not None:
        found["bytes_read"] = files
    engine = stated.get("engine")
    if taken is None or None in found.values() or not isinstance(engine, str):
        return None
    return Run(
        **{name: int(value) for name, value in found.items() if value is not None},
        seconds=taken,
        suggested_bytes=None if before is None else int(before),
        engine=engine,
    )


def _figure(value: Any) -> float | None:
    """Return a number from 0 on; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and value >= 0 else None
