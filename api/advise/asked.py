"""Suggestions for a table: from the conditions that its user gives, or from the log of its queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tblctl.advise.suggest import Suggestion, read_predicates, suggest
from tblctl.tableformat.port import TablePort, Version
from tblctl.workload.log import typical_conditions


def suggestion(
    port: TablePort[Any], version: Version, predicates: str | Sequence[str] | None, *, layouts: bool
) -> Suggestion:
    """Return keys for a version of a table, as `ClusteredTable.suggest` does."""
    io = port.block_io(version) if layouts else None
    count = 0
    if predicates is None:
        conditions, count = typical_conditions(port, version)
    else:
        conditions = read_predicates(predicates, version.schema)
    key = port.entry(version, newest=version).cluster_by or ()
    found = replace(suggest(version, conditions, key), queries=count)
    if io is None:
        return found
    from tblctl.advise.layouts import rank_layouts

    return replace(found, layouts=rank_layouts(io, version, conditions, found))
