"""What clustering plain files by a key would bring: files read by typical conditions, now and then; bytes to rewrite.

Now, a condition on one key reads as many files as lie over it: on average the files' depth, of which each file counts
the deepest place of its range. Files of unknown range are always read. Then, as many files of equal size need one. A
condition on 1 % of the keys reads the files besides that begin within it: 1 % of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tblctl.maintain.view import View
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.port import Version

RANGE_SHARE = 0.01
"""The share of the keys that the typical range asks for."""

_WORTH = 1.25
"""A range must read fewer files by more than this factor to be worth a rewrite: figures are estimates."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What clustering would bring.

    Attributes:
        cluster_by: the key's terms.
        files: all of them.
        key_reads_now, key_reads_clustered: files that a condition on one key reads.
        range_reads_now, range_reads_clustered: files that a condition on 1 % of the keys reads.
        bytes_to_rewrite: the size of all files: clustering them means writing them once.
    """

    cluster_by: tuple[str, ...]
    files: int
    key_reads_now: float
    key_reads_clustered: float
    range_reads_now: float
    range_reads_clustered: float
    bytes_to_rewrite: int

    @property
    def is_worth_it(self) -> bool:
        """Whether typical conditions would read clearly fewer files."""
        return self.range_reads_now > _WORTH * self.range_reads_clustered

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {**vars(self), "cluster_by": list(self.cluster_by)}


def gain(version: Version, sort: Sort) -> Gain:
    """Return what clustering all files of a version by a key would bring.

    Args:
        version: of files in no known order.
        sort: the key.
    """
    info = View.of(version, sort, clustered=False).info()
    files, unknown = info.total_block_count, info.unknown_block_count
    now = min(files, unknown + (info.average_depth or 0.0))
    then = min(1.0, now)
    more = RANGE_SHARE * files
    return Gain(
        cluster_by=tuple(key_maker(sort).texts(version.schema)),
        files=files,
        key_reads_now=now,
        key_reads_clustered=then,
        range_reads_now=min(files, now + more),
        range_reads_clustered=min(files, then + more),
        bytes_to_rewrite=info.bytes,
    )
