"""Clustering information: the golden cases exactly, and the other promises of a report."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.metrics.information import ClusteringFigures, RankedBlocks, clustering_info
from tblctl.metrics.intervals import depths, overlaps, rounded_mean

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "clustering_information.json").read_text())

NAMES = [
    "cluster_by_keys",
    "total_block_count",
    "constant_block_count",
    "unclustered_block_count",
    "unknown_block_count",
    "average_overlaps",
    "average_depth",
    "block_depth_histogram",
    "depth",
    "levels",
    "rows",
    "bytes",
    "worst",
    "inexact_block_count",
    "unclustered_share",
]


def make_blocks(pairs, **given_arrays):
    size = len(pairs)
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    usual = dict(
        low=ends[:, 0],
        high=ends[:, 1],
        level=np.zeros(size, np.int32),
        row_count=np.full(size, 10, np.int64),
        size_bytes=np.full(size, 1000, np.int64),
        constant=ends[:, 0] == ends[:, 1],
        unclustered=np.zeros(size, bool),
        unknown=np.zeros(size, bool),
    )
    return RankedBlocks(**usual | {name: np.asarray(array) for name, array in given_arrays.items()})


def ranks_of(case):
    """Number the keys of a golden case in order: tuples compare term by term, null is greatest."""

    def key(value):
        terms = value if isinstance(value, list) else [value]
        return tuple((term is None, term or 0) for term in terms)

    keys = [tuple(key(end) for end in block) for block in case["blocks"]]
    number = {found: rank for rank, found in enumerate(sorted({end for block in keys for end in block}))}
    return [(number[low], number[high]) for low, high in keys]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_golden_case(case):
    info = clustering_info(["a"], make_blocks(ranks_of(case)))
    found = info.to_dict()
    names = ("constant_block_count", "average_overlaps", "average_depth", "block_depth_histogram")
    assert {name: found[name] for name in names} == {name: case[name] for name in names}
    assert found["total_block_count"] == len(case["blocks"])
    assert {name: found["levels"]["0"][name] for name in names} == {name: case[name] for name in names}


def test_the_json_has_these_names_in_this_order():
    blocks = make_blocks(
        [(2, 4), (3, 6), (5, 5), (0, 0), (0, 0)],
        level=[0, 1, 1, 0, 7],
        unknown=[False, False, False, True, False],
        unclustered=[False, False, False, False, True],
    )
    figures = {"unclustered_block_count": 0, "unknown_block_count": 0, "constant_block_count": 0}
    found = clustering_info(["a", "b desc"], blocks).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert list(found) == NAMES
    assert found == {
        "cluster_by_keys": ["a", "b desc"],
        "total_block_count": 5,
        "constant_block_count": 1,
        "unclustered_block_count": 1,
        "unknown_block_count": 1,
        "average_overlaps": 1.3333,
        "average_depth": 2.0,
        "block_depth_histogram": {"00002": 3},
        "depth": {"p50": 2, "p95": 2, "p99": 2, "max": 2},
        "levels": {
            "0": figures
            | {
                "total_block_count": 2,
                "unknown_block_count": 1,
                "average_overlaps": 0.0,
                "average_depth": 1.0,
                "block_depth_histogram": {"00001": 1},
                "depth": {"p50": 1, "p95": 1, "p99": 1, "max": 1},
                "rows": 20,
                "bytes": 2000,
            },
            "1": figures
            | {
                "total_block_count": 2,
                "constant_block_count": 1,
                "average_overlaps": 1.0,
                "average_depth": 2.0,
                "block_depth_histogram": {"00002": 2},
                "depth": {"p50": 2, "p95": 2, "p99": 2, "max": 2},
                "rows": 20,
                "bytes": 2000,
            },
        },
        "rows": 50,
        "bytes": 5000,
        "worst": [],
        "inexact_block_count": 0,
        "unclustered_share": 0.2,
    }


@pytest.mark.parametrize("left_out", ["nothing", "unclustered", "unknown"])
def test_a_table_without_blocks_gives_zeros_and_one_whose_blocks_cannot_be_measured_nothing(left_out):
    pairs = [] if left_out == "nothing" else [(9, 1), (3, 2)]  # no meaning: may be in any order
    blocks = make_blocks(pairs) if left_out == "nothing" else make_blocks(pairs, **{left_out: [True, True]})
    found = clustering_info([], blocks).to_dict()
    assert found["total_block_count"] == len(pairs)
    figure = 0 if left_out == "nothing" else None
    assert (found["average_overlaps"], found["average_depth"]) == (figure, figure)
    assert found["block_depth_histogram"] == {}
    assert found["depth"] == {"p50": figure, "p95": figure, "p99": figure, "max": figure}
    assert found["rows"] == 10 * len(pairs)
    assert list(found["levels"]) == (["0"] if left_out == "unknown" else [])


def test_a_level_is_measured_as_if_it_were_alone_and_levels_come_in_order():
    blocks = make_blocks([(1, 9), (2, 3), (4, 5), (7, 7)], level=[2, 0, 0, -1])
    info = clustering_info(["a"], blocks)
    assert info.average_depth == 2.0
    assert [(level, figures.average_depth) for level, figures in info.levels] == [
        (-1, 1.0),
        (0, 1.0),
        (2, 1.0),
    ]


@pytest.mark.parametrize(
    ("depth", "label"),
    [(1, "00001"), (16, "00016"), (17, "00032"), (32, "00032"), (33, "00064"), (64, "00064"), (65, "00128")],
)
def test_the_label_of_a_bucket_is_its_largest_depth(depth, label):
    assert clustering_info(["a"], make_blocks([(1, 2)] * depth)).block_depth_histogram == ((label, depth),)


def test_labels_above_five_digits_stay_whole_and_in_order():
    same = np.zeros(2**17, np.int64)
    pairs = np.stack((same, same), axis=1)
    pairs[0] = (5, 6)
    histogram = clustering_info(["a"], make_blocks(pairs)).block_depth_histogram
    assert histogram == (("00001", 1), ("131072", 2**17 - 1))


def test_percentiles_are_depths_of_blocks_by_nearest_rank():
    # 94 blocks of depth 1, 4 of depth 4, 2 of depth 2.
    pairs = [(10 * n, 10 * n + 1) for n in range(94)] + [(5000, 5001)] * 4 + [(6000, 6001)] * 2
    depth = clustering_info(["a"], make_blocks(pairs)).depth
    assert (depth.p50, depth.p95, depth.p99, depth.max) == (1, 2, 4, 4)


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(-1, 2), st.booleans(), st.booleans()),
        max_size=30,
    )
)
def test_information_is_that_of_the_blocks_measured(rows):
    pairs = [tuple(sorted(row[:2])) for row in rows]
    level, unclustered, unknown = (
        np.array([row[i] for row in rows], t) for i, t in ((2, int), (3, bool), (4, bool))
    )
    blocks = make_blocks(pairs, level=level, unclustered=unclustered, unknown=unknown)
    info = clustering_info(["a"], blocks)
    check_figures(info, blocks)
    assert [found for found, _ in info.levels] == sorted(set(level[~unclustered].tolist()))
    for found, figures in info.levels:
        check_figures(figures, blocks.pick((level == found) & ~unclustered))


def check_figures(figures, blocks):
    used = ~blocks.unclustered & ~blocks.unknown
    low, high = blocks.low[used], blocks.high[used]
    depth = sorted(depths(low, high).tolist())
    assert figures.total_block_count == used.size
    assert figures.unclustered_block_count == blocks.unclustered.sum()
    assert figures.unclustered_block_count + figures.unknown_block_count == used.size - len(depth)
    assert figures.constant_block_count == (low == high).sum()
    nothing = None if used.size else 0
    known = bool(depth)
    assert figures.average_overlaps == (
        rounded_mean(int(overlaps(low, high).sum()), len(depth)) if known else nothing
    )
    assert figures.average_depth == (rounded_mean(sum(depth), len(depth)) if known else nothing)
    assert (figures.rows, figures.bytes) == (10 * used.size, 1000 * used.size)
    plain_histogram = {}
    for found in depth:
        label = f"{found if found <= 16 else 2 ** math.ceil(math.log2(found)):05d}"
        plain_histogram[label] = plain_histogram.get(label, 0) + 1
    assert dict(figures.block_depth_histogram) == plain_histogram
    for percent, value in ((50, figures.depth.p50), (95, figures.depth.p95), (99, figures.depth.p99)):
        assert value == (depth[math.ceil(percent * len(depth) / 100) - 1] if depth else nothing)
    assert figures.depth.max == max(depth, default=nothing)


def test_every_depth_is_in_the_bucket_that_says_so():
    for depth in (1, 2, 16, 17, 32, 33, 64, 65):
        [bucket] = clustering_info(["a"], make_blocks([(1, 1)] * depth)).depth_buckets
        least, deepest, count = bucket
        assert (least <= depth <= deepest, count) == (True, depth)
        assert (least == deepest) == (depth <= 16)
    low, high = zip(
        *(clustering_info(["a"], make_blocks([(1, 1)] * depth)).depth_buckets[0][:2] for depth in (17, 33)),
        strict=True,
    )
    assert (low, high) == ((17, 33), (32, 64))


def test_inexact_bounds_of_one_rank_are_constant_only_if_marked():
    info = clustering_info(["a"], make_blocks([(1, 1), (2, 2)], constant=[True, False]))
    assert info.constant_block_count == 1


def test_information_is_a_frozen_value_that_pickles():
    info = clustering_info(["a"], make_blocks([(1, 2), (2, 3)]))
    assert pickle.loads(pickle.dumps(info)) == info
    assert hash(info) == hash(clustering_info(["a"], make_blocks([(2, 3), (1, 2)])))
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.rows = 1


def test_figures_that_contradict_each_other_cannot_be_made():
    info = clustering_info(["a"], make_blocks([(1, 2), (2, 3)]))
    (_, figures), *_ = info.levels
    assert type(figures) is ClusteringFigures
    with pytest.raises(ValueError, match="3 blocks were measured, but the histogram counts 2"):
        dataclasses.replace(figures, total_block_count=3)


def test_arrays_of_different_length_are_refused():
    with pytest.raises(ValueError, match=r"level \(1,\)"):
        make_blocks([(1, 2), (2, 3)], level=[0])
