"""The log of an Iceberg table's queries: imported ones, in a folder that a property can name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.types import LongType

from tblctl.errors import InvalidOptionError

from .lake import Lake, append, fields


@pytest.fixture
def statements(tmp_path: Path) -> Path:
    path = tmp_path / "q.sql"
    path.write_text("SELECT id FROM lake.db.t WHERE id = 2; SELECT id FROM db.other WHERE id = 3")
    return path


def test_imported_queries_lie_below_the_table_and_rank_keys(lake: Lake, statements: Path) -> None:
    raw = lake.create("t", fields(id=LongType(), other=LongType()))
    for first in range(3):
        append(raw, id=[first, first + 1], other=[1, 9])
    table = lake.open("t")
    (found,) = table.import_workload(statements)
    assert found.queries == 1
    assert [query.where for query in table.workload().workload.queries] == ['("id" = 2)']
    folder = Path(raw.location().removeprefix("file://")) / "tblctl-workload"
    assert len(list(folder.iterdir())) == 1
    assert table.suggest().queries == 1
    assert table.suggest().candidates[0].terms == ("id",)
    assert table.import_workload(statements)[0].was_known


def test_a_property_says_where_they_lie(lake: Lake, statements: Path, tmp_path: Path) -> None:
    place = tmp_path / "logs"
    lake.create("t", fields(id=LongType()), properties={"tblctl.workload.path": str(place)})
    lake.create("u", fields(id=LongType()), properties={"tblctl.workload.path": str(place)})
    lake.open("t").import_workload(statements)
    assert len(list(place.iterdir())) == 1
    assert len(lake.open("t").workload().workload.queries) == 1
    assert lake.open("u").workload().other_files == 1, "of another table"


def test_a_relative_place_is_refused(lake: Lake) -> None:
    lake.create("t", fields(id=LongType()), properties={"tblctl.workload.path": "logs"})
    with pytest.raises(InvalidOptionError, match="expected a URL, or a path that begins with /"):
        lake.open("t").workload()
    assert lake.open("t").suggest().queries == 0
