"""What clustering plain files by a key would bring: files read by typical conditions, now and then; bytes to rewrite.

Now is measured from the files' bounds. Then is what the same number of files of equal size would need: one for a key,
and for a share of the keys that share of the files and one more, which begins or ends within.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tblctl.maintain.view import View
from tblctl.metrics.reads import average_reads
from tblctl.tableformat.keys.kinds import key_maker
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.port import Version

RANGE_SHARE = 0.01
"""The share of the keys that the typical range asks for."""

_WORTH = 1.25
"""Typical conditions must read at least this many times fewer files to be worth a rewrite: figures are estimates."""


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
        now, then = (
            self.key_reads_now + self.range_reads_now,
            self.key_reads_clustered + self.range_reads_clustered,
        )
        return now >= _WORTH * then

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {**vars(self), "cluster_by": list(self.cluster_by)}


def gain(version: Version, sort: Sort) -> Gain:
    """Return what clustering all files of a version by a key would bring. Files of unknown range count as always read.

    Args:
        version: of files in no known order.
        sort: the key.
    """
    blocks = View.of(version, sort, clustered=False).blocks
    known, files = ~blocks.unknown, len(blocks.low)
    unknown = files - int(known.sum())
    now = [
        unknown + average_reads(blocks.low[known], blocks.high[known], share) for share in (0.0, RANGE_SHARE)
    ]
    then = (min(1.0, files), float(min(files, math.ceil(RANGE_SHARE * files) + 1)))
    return Gain(
        cluster_by=tuple(key_maker(sort).texts(version.schema)),
        files=files,
        key_reads_now=now[0],
        key_reads_clustered=min(now[0], then[0]),
        range_reads_now=now[1],
        range_reads_clustered=min(now[1], then[1]),
        bytes_to_rewrite=int(blocks.size_bytes.sum()),
    )
