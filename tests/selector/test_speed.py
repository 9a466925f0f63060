"""Planning stays in numpy: a bound on processor time that any Python loop over blocks would break."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

from tblctl.selector.blocks import Candidates, Context
from tblctl.selector.options import SelectOptions
from tblctl.selector.policies import policy_named
from tblctl.tableformat.model.options import TableOptions

BLOCKS = 200_000
MOST_CPU_SECONDS = 1.5  # measured 0.3 for `levels` and 0.4 for `full`; 1.5 and 2.1 for a million blocks


@pytest.mark.parametrize("policy", ["levels", "full"])
@pytest.mark.parametrize("width", [1e-5, 1e-3, 1.0])
def test_planning_takes_no_python_object_a_block(policy, width):
    rng = np.random.default_rng(1)
    low = rng.random(BLOCKS)
    high = low + width * rng.random(BLOCKS)
    ranks = np.unique(np.concatenate((low, high)), return_inverse=True)[1]
    no = np.zeros(BLOCKS, np.bool_)
    blocks = Candidates(
        paths=pa.array([f"data/{number:032x}.parquet" for number in range(BLOCKS)]),
        low=ranks[:BLOCKS],
        high=ranks[BLOCKS:],
        level=np.zeros(BLOCKS, np.int64),
        row_count=np.full(BLOCKS, 900_000),
        size_bytes=np.full(BLOCKS, 50 << 20),
        decoded_bytes=np.full(BLOCKS, 100 << 20),
        constant=no,
        unclustered=no,
        unknown=no,
    )
    context = Context(
        table_id="t",
        snapshot=1,
        sort_id=1,
        blocks=blocks,
        options=SelectOptions(threshold=1),
        table_options=TableOptions(),
    )
    begun = time.process_time()
    plan = policy_named(policy)(context)
    seconds = time.process_time() - begun
    print(f"{policy}, width {width}: {seconds:.2f} s, {plan.note}")
    assert plan.groups
    assert seconds < MOST_CPU_SECONDS
