"""What a policy sees of a table: arrays of numbers, one entry a block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tblctl.selector.options import SelectOptions
from tblctl.tableformat.model.options import TableOptions

Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """The blocks of a snapshot.

    Attributes:
        paths: a string array of pyarrow, plain, large or chunked. Only those that a plan picks become Python objects.
        low, high: ranks of the bounds by the current key, closed: int64, equal for equal keys. They may be wider than
            the keys. Without meaning where `unknown`.
        level: how often the rows were clustered, -1 for constant and full; without meaning where `unclustered`.
        row_count: rows, at least 1 each.
        size_bytes: of the files.
        decoded_bytes: of the rows as Arrow arrays.
        same_key_rows: no key has more rows of the block; -1 where that is not known, or where ranks cannot tell all its
            keys apart.
        constant: it holds one key only. Equal ranks do not prove that where bounds are inexact.
        unclustered: it is not sorted by the current key.
        unknown: a bound is missing, so that it may overlap everything.

    Raises:
        ValueError: the arrays differ in length, a known block has its low above its high, or a block has no rows.
    """

    paths: pa.Array
    low: Integers
    high: Integers
    level: npt.NDArray[np.signedinteger[Any]]
    row_count: Integers
    size_bytes: Integers
    decoded_bytes: Integers
    same_key_rows: Integers
    constant: Mask
    unclustered: Mask
    unknown: Mask

    def __post_init__(self) -> None:
        lengths = {name: len(array) for name, array in vars(self).items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(f"the arrays must be of one length; theirs are {listed}")
        crossed = ~self.unknown & (self.low > self.high)
        if crossed.any():
            raise ValueError(f"block {self.paths[int(crossed.argmax())]} has its low above its high")
        if (self.row_count < 1).any():
            raise ValueError(f"block {self.paths[int((self.row_count < 1).argmax())]} has no rows")

    def __len__(self) -> int:
        return len(self.low)

    def names(self, blocks: Integers) -> list[str]:
        """Return the paths of some blocks, given by their numbers."""
        names: list[str] = self.paths.take(pa.array(blocks, pa.int64())).to_pylist()
        return names


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """All that a policy decides from.

    Attributes:
        table_id, snapshot, sort_id: what the plan is for; the sequence of the snapshot, the id of the current sort.
        blocks: the table's blocks, all of them.
        restricted: only these may be selected (`where`); None for all.
        failed: these could not be merged a moment ago, and may not be selected; None for none.
    """

    table_id: str
    snapshot: int | str
    sort_id: int
    blocks: Candidates
    options: SelectOptions
    table_options: TableOptions
    restricted: Mask | None = None
    failed: Mask | None = None


def joined(parts: Iterable[Integers]) -> Integers:
    """Return arrays of block numbers one after the other; empty for none."""
    arrays = list(parts)
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)
