"""How well a table is clustered: from a version's metadata to figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tblctl.metrics.information import ClusteringInfo
from tblctl.tableformat.errors import InvalidKeyError, InvalidOptionError
from tblctl.tableformat.model.cluster_key import Sort, parse_terms
from tblctl.tableformat.port import Version
from tblctl.view import View

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

_ANY_ID = 1
"""Of a sort that is made up for measuring: by column statistics alone, whose keys no block has."""


def table_info(
    version: Version,
    columns: str | Sequence[str] | None,
    condition: BooleanExpression | None,
    *,
    worst: int,
) -> ClusteringInfo:
    """Return the figures of the blocks that may hold rows satisfying the condition.

    Args:
        version: what to measure.
        columns: terms to measure by, as if the table were clustered by them; None for its cluster key.
        condition: None for all blocks.
        worst: how many of the deepest ranges to tell at most.

    Raises:
        InvalidKeyError: no `columns`, and the table has no cluster key.
        InvalidOptionError: `worst` is negative.
    """
    if worst < 0:
        msg = f"worst is {worst}, expected at least 0"
        raise InvalidOptionError(msg)
    sort = sort_to_measure(version, columns)
    return View.of(version, sort, condition, clustered=columns is None).info(worst)


def sort_to_measure(version: Version, columns: str | Sequence[str] | None) -> Sort:
    """Return the sort that `columns` make up, or for None the version's own.

    Raises:
        InvalidKeyError: no `columns`, and the table has no cluster key.
    """
    if columns is not None:
        return Sort(id=_ANY_ID, terms=parse_terms(columns, version.schema))
    if version.sort is None:
        msg = (
            f"{version.location} has no cluster key to measure by; name columns (`--columns a,b`), or give it one: "
            "`tblctl alter LOC --cluster-by ...`"
        )
        raise InvalidKeyError(msg)
    return version.sort
