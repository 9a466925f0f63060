"""Orders of blocks by several whole numbers."""

import numpy as np
import pytest

from tblctl.selector.draft import _sorted_by

WIDTHS = [(1, 1, 1), (3, 10, 10), (2**20, 2**20, 2**20), (2**31, 2**32, 1), (2**62, 2**62, 5)]


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("shift", [0, -7, -(2**40)])
def test_one_key_of_all_bits_sorts_as_several_keys(widths: tuple[int, ...], shift: int) -> None:
    rng = np.random.default_rng(sum(widths) % 2**32)
    keys = [rng.integers(0, width, 1_000) + shift for width in widths]
    assert np.array_equal(_sorted_by(*keys), np.lexsort(keys[::-1]))


def test_the_widest_keys_that_fit_and_the_narrowest_that_do_not() -> None:
    for bits in (62, 63):
        keys = [np.array([1, 1, 0, 1, 0]), np.array([2**bits - 1, 0, 5, 2**bits - 1, 5])]
        assert _sorted_by(*keys).tolist() == [2, 4, 1, 0, 3]


def test_equal_keys_keep_their_order() -> None:
    assert _sorted_by(np.array([1, 0, 1, 0, 1])).tolist() == [1, 3, 0, 2, 4]
