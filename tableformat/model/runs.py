"""Numbers for run ids, so that a million of them are compared as integers."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NO_RUN = -1
"""The number where the run is not known."""

_DIGITS = 15
"""Hexadecimal digits of a run id that make its number: 60 bits. The last ones are random."""


def run_number(run_id: str | None) -> int:
    """Return a number for a run id: the same one at every call; -1 for none, or for one that says nothing ("0")."""
    if run_id is None or run_id == "0":
        return NO_RUN
    try:
        return int(run_id[-_DIGITS:], 16)
    except ValueError:  # a table that another program wrote
        return int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:7], "big")


def run_numbers(run_ids: pa.Array) -> npt.NDArray[np.int64]:
    """Return `run_number` of each run id. Each of them is parsed once, however many blocks share it."""
    coded = run_ids if pa.types.is_dictionary(run_ids.type) else run_ids.dictionary_encode()
    numbers = np.array([run_number(name) for name in coded.dictionary.to_pylist()] + [NO_RUN], np.int64)
    places = np.asarray(coded.indices.cast(pa.int64()).fill_null(numbers.size - 1))
    found: npt.NDArray[np.int64] = numbers[places]
    return found


def runs_of_some(
    run_ids: pa.Array | pa.ChunkedArray, blocks: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.int64]:
    """Return `run_number` of some of `count` blocks, by their run ids; -1 for the others. O(count)."""
    found = np.full(count, NO_RUN, np.int64)
    found[blocks] = run_numbers(run_ids.combine_chunks() if isinstance(run_ids, pa.ChunkedArray) else run_ids)
    return found
