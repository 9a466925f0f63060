"""Random small tables of PyIceberg's, through random commits, against the rows in their files (oracle.py)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from profiles import cases
from pyiceberg.expressions import AlwaysTrue, IsNull, NotNull
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType

from .lake import Lake, append, fields
from .oracle import assert_true
from .values import TRANSFORMS, VALUES

NUMBERS = itertools.count()
PARTITIONED = ("int", "long", "date", "short", "long_text", "timestamp")
ENDINGS = ("", " desc", " nulls first", " desc nulls first")


@pytest.fixture(scope="module")
def shared_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """One catalog for all cases: each has a table of its own."""
    return Lake(tmp_path_factory.mktemp("random"))


def rows_of(draw: Any, names: list[str]) -> dict[str, list[Any]]:
    count = draw(st.integers(1, 5))
    return {
        name: draw(st.lists(st.sampled_from([*VALUES[name][1], None]), min_size=count, max_size=count))
        for name in names
    }


def key_of(draw: Any, names: list[str]) -> str:
    terms = [term for name in names for term in (name, *(text.split(" ")[0] for text in _plain(name)))]
    chosen = draw(st.lists(st.sampled_from(terms), min_size=1, max_size=2, unique=True))
    return ", ".join(term + draw(st.sampled_from(ENDINGS)) for term in chosen)


def _plain(name: str) -> list[str]:
    """Return the transforms of a column that are written without a blank."""
    return [
        text.replace(", ", ",")
        for text in (term.partition(")")[0] + ")" for term in TRANSFORMS.get(name, ()))
    ]


@settings(
    max_examples=cases(12),
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
    ],
)
@given(data=st.data())
def test_all_that_is_said_of_a_random_table_is_true(shared_lake: Lake, data: st.DataObject) -> None:
    draw = data.draw
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True))
    split = [name for name in names if name in PARTITIONED and draw(st.booleans())]
    spec = PartitionSpec(
        *(
            PartitionField(names.index(name) + 1, 1000 + place, change, f"part_{name}")
            for place, name in enumerate(split)
            for change in (draw(st.sampled_from([IdentityTransform(), BucketTransform(2)])),)
        )
    )
    mode = draw(st.sampled_from(["truncate(16)", "truncate(2)", "full", "counts", "none"]))
    table = shared_lake.create(
        f"t{next(NUMBERS)}",
        fields(**{name: VALUES[name][0] for name in names}),
        partition_spec=spec,
        properties={
            "format-version": draw(st.sampled_from(["1", "2"])),
            "write.metadata.metrics.default": mode,
            "commit.manifest-merge.enabled": draw(st.sampled_from(["true", "false"])),
            "commit.manifest.min-count-to-merge": "2",
        },
    )
    for step in draw(
        st.lists(st.sampled_from(["append", "append", "delete", "evolve"]), min_size=1, max_size=5)
    ):
        note(step)
        if step == "append":
            late = {"late": [None]} if "late" in table.schema().column_names else {}
            rows = rows_of(draw, names)
            append(table, **rows, **{name: column * len(rows[names[0]]) for name, column in late.items()})
        elif step == "delete":
            of = draw(st.sampled_from(names))
            table.delete(draw(st.sampled_from([IsNull(of), NotNull(of), AlwaysTrue()])))
        else:
            with table.update_schema() as update:
                for name, wider in (("int", LongType()), ("float", DoubleType())):
                    if name in names and name not in split and draw(st.booleans()):
                        update.update_column(name, wider)
                if "late" not in table.schema().column_names:
                    update.add_column("late", IntegerType())
    assert_true(table, *(key_of(draw, names) for _ in range(3)))
