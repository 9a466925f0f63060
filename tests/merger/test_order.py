"""How many inputs of a merge are partly read at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tblctl.merger.task.order import _at_once


@pytest.mark.parametrize(
    ("order", "rows", "expected"),
    [
        pytest.param([0, 1, 2, 3], [2, 2], 1, id="one after the other"),
        pytest.param([0, 2, 1, 3], [2, 2], 2, id="interleaved"),
        pytest.param([0, 2, 4, 1, 3, 5], [2, 2, 2], 3, id="all overlap"),
        pytest.param([2, 0, 3, 1], [2, 1, 1], 2, id="an input of one row inside another"),
        pytest.param([0, 1, 2], [1, 1, 1], 1, id="inputs of one row"),
    ],
)
def test_an_input_counts_from_its_first_row_to_its_last(
    order: list[int], rows: list[int], expected: int
) -> None:
    assert _at_once(np.array(order, np.uint32), rows) == expected
