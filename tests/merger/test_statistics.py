"""Column statistics through the port: every table format gives the same ones for the same rows."""

from __future__ import annotations

import pytest

from tblctl.advise.suggest import read_predicates, suggest

from .subjects import Subject, native, twin


@pytest.fixture(params=["twin", "native"])
def subject(request: pytest.FixtureRequest) -> Subject:
    return twin() if request.param == "twin" else native(request.getfixturevalue("memory_url"))


def test_statistics_bound_columns_block_by_block_in_the_order_of_the_listing(subject: Subject) -> None:
    subject.append(1.0, 5.0, None)
    subject.append(7.0, 8.0)
    version = subject.port.newest()
    assert version.sort is not None
    statistics = version.statistics(version.schema.leaves)
    rows = version.listing(version.sort, None).stored_rows.tolist()
    column = statistics.column(version.schema.leaf("k"))
    assert column is not None
    found = zip(column.min.to_pylist(), column.max.to_pylist(), column.null_count.tolist(), rows, strict=True)
    assert statistics.row_count.tolist() == rows
    assert sorted(found) == [(1.0, 5.0, 1, 3), (7.0, 8.0, 0, 2)]


def test_suggestions_need_the_port_only(subject: Subject) -> None:
    for start in (0.0, 1.0, 2.0):
        subject.append(start, start + 100)
    version = subject.port.newest()
    found = suggest(version, read_predicates("n = 3", version.schema), ("k",))
    assert [(item.terms, item.average_depth) for item in found.candidates[:2]] == [
        (("n",), 1.0),
        (("k",), 3.0),
    ]
    assert found.predicates[0].blocks_read == 1


def test_the_listing_tells_how_many_rows_one_key_has_at_most_in_blocks_of_its_sort(subject: Subject) -> None:
    subject.append(1.0, 5.0, 5.0, 5.0, None, None)
    subject.append(7.0, 8.0)

    def same_key_rows(*, clustered: bool = True) -> list[int]:
        version = subject.port.newest()
        assert version.sort is not None
        return sorted(version.listing(version.sort, None, clustered=clustered).same_key_rows.tolist())

    assert same_key_rows() == [1, 3]
    assert same_key_rows(clustered=False) == [-1, -1]
    subject.delete(1)
    assert same_key_rows() == [1, 2], "a block that lost rows is counted anew"
    subject.set_key("n")
    assert same_key_rows() == [-1, -1], "these are counts of another key"
