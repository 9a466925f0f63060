"""What a scan did, to learn from the workload (`docs/FORMAT.md` lists the JSON)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BlockScan:
    """One block that a scan read.

    Attributes:
        path: the block's name.
        rows_read: rows of the row groups that were decoded.
        rows_matched: rows that satisfied the condition.
        bytes_matched: memory of these rows, in the columns asked for.
        column_bytes: compressed bytes read of each column, by its name.
        io_seconds: waiting for the storage: elapsed time less processor time.
        cpu_seconds: decoding and filtering.
    """

    path: str
    rows_read: int
    rows_matched: int
    bytes_matched: int
    column_bytes: Mapping[str, int]
    io_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, kw_only=True)
class ScanReport:
    """One scan, to its last row or to where its reader stopped (`complete` is then false).

    `blocks_total` counts the snapshot's blocks, `blocks_pruned` those that metadata ruled out, `blocks_read` those
    opened. In a scan with a limit some blocks are neither.
    """

    table: str
    snapshot: int
    where: str | None
    columns: tuple[str, ...]
    blocks_total: int
    blocks_pruned: int
    blocks_read: int
    rows: int
    complete: bool
    io_seconds: float
    cpu_seconds: float
    seconds: float
    blocks: tuple[BlockScan, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self) | {
            "columns": list(self.columns),
            "blocks": [asdict(block) for block in self.blocks],
        }
