"""Planning copes with many blocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tblctl.selector.options import parts
from tblctl.selector.planner import plan
from tblctl.selector.registry import policy_named
from tblctl.selector.table_view import TableView
from tblctl.tableformat.model.options import TableOptions

BLOCKS = 200_000


@pytest.mark.parametrize("policy", ["levels", "full"])
@pytest.mark.parametrize("width", [1e-5, 1e-3, 1.0])
@pytest.mark.parametrize("partitions", [1, 300])
def test_two_hundred_thousand_blocks_are_planned(policy, width, partitions):
    rng = np.random.default_rng(1)
    low = rng.random(BLOCKS)
    high = low + width * rng.random(BLOCKS)
    ranks = np.unique(np.concatenate((low, high)), return_inverse=True)[1]
    no = np.zeros(BLOCKS, np.bool_)
    view = TableView(
        table_id="t",
        snapshot=1,
        sort_id=1,
        table_options=TableOptions(),
        paths=pa.array([f"data/{number:032x}.parquet" for number in range(BLOCKS)]),
        low=ranks[:BLOCKS],
        high=ranks[BLOCKS:],
        level=np.zeros(BLOCKS, np.int64),
        row_count=np.full(BLOCKS, 900_000),
        size_bytes=np.full(BLOCKS, 50 << 20),
        decoded_bytes=np.full(BLOCKS, 100 << 20),
        same_key_rows=np.full(BLOCKS, 100),
        constant=no,
        unclustered=no,
        unknown=no,
        partition=rng.integers(0, partitions, BLOCKS),
    )
    chosen = policy_named(policy)
    asked = parts(chosen, {"threshold": 1})
    planned = plan(view, chosen, asked.policy, asked.budget, memory_bytes=2**30, now=0.0, rng=lambda: 0.5)
    assert planned.plan.groups
