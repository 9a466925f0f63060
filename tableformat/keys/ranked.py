"""A column of rows as ranks of its values, so that least and greatest ones are found by whole numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tblctl.tableformat.keys.numbers import has_value

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedColumn:
    """A column of some rows.

    Attributes:
        values: the different values, ascending.
        ranks: for each row the number of its value; -1 for NULL and NaN.
        is_null: where it is NULL.
        counts_nan: whether the type has NaN.
    """

    values: pa.Array
    ranks: npt.NDArray[np.int32]
    is_null: Bools
    counts_nan: bool

    @classmethod
    def of(cls, column: pa.Array) -> RankedColumn:
        """Return the column with its values ranked. O(n log n)."""
        present = has_value(column)
        coded = column.filter(pa.array(present)).dictionary_encode()
        order = pc.sort_indices(coded.dictionary).to_numpy()
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        ranks = np.full(len(column), -1, np.int32)
        ranks[present] = rank[coded.indices.to_numpy(zero_copy_only=False)]
        return cls(
            values=coded.dictionary.take(pa.array(order)),
            ranks=ranks,
            is_null=np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool),
            counts_nan=pt.is_floating(column.type),
        )
