"""Orders are those of numpy's own stable sorts, whatever the values are."""

from __future__ import annotations

import numpy as np
import pytest

from tblctl.metrics.order import distinct, distinct_within, stable_order

SPANS = [1, 3, 2**20, 2**40, 2**62]


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 5_000])
@pytest.mark.parametrize("span", SPANS)
def test_the_order_is_that_of_a_stable_sort(count, span):
    values = np.random.default_rng(count).integers(-span, span, count)
    assert stable_order(values).tolist() == np.argsort(values, kind="stable").tolist()


@pytest.mark.parametrize("spans", [(2, 3), (2**20, 2**20), (2**40, 2**40), (1, 2**62)])
def test_the_first_key_counts_first(spans):
    rng = np.random.default_rng(7)
    keys = [rng.integers(-span, span, 3_000) for span in spans]
    assert stable_order(*keys).tolist() == np.lexsort(keys[::-1]).tolist()


def test_the_widest_keys_that_fit_and_the_narrowest_that_do_not():
    for bits in range(40, 64):
        keys = [np.resize([1, 1, 0, 1, 0], 1_000), np.resize([2**bits - 1, 0, 5, 2**bits - 1, 5, 7], 1_000)]
        assert stable_order(*keys).tolist() == np.lexsort(keys[::-1]).tolist()


def test_nothing_has_an_empty_order():
    assert stable_order(np.empty(0, np.int64)).size == 0


@pytest.mark.parametrize("count", [0, 1, 300])
@pytest.mark.parametrize("span", SPANS)
def test_distinct_values_are_numbered_as_numpy_does(count, span):
    values = np.random.default_rng(count).integers(-span, span, count)
    points, numbers = distinct(values)
    expected = np.unique(values, return_inverse=True)
    assert points.tolist() == expected[0].tolist()
    assert numbers.tolist() == expected[1].tolist()


@pytest.mark.parametrize("count", [0, 1, 300])
def test_values_are_numbered_within_their_group(count):
    rng = np.random.default_rng(count)
    groups, values = rng.integers(0, 5, count), rng.integers(-7, 7, count)
    found = distinct_within(groups, values)
    for group in range(5):
        _, expected = np.unique(values[groups == group], return_inverse=True)
        assert found[groups == group].tolist() == expected.tolist()
