"""Plans, options and policies as values: JSON, validation, pickling."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest

from tblctl.selector.budget import Budget
from tblctl.selector.options import SelectOptions
from tblctl.selector.plan import Plan, PlanOptions
from tblctl.selector.policies.levels import LevelsOptions
from tblctl.tableformat.errors import InvalidDataError, InvalidOptionError

from .tables import SimTable


def some_plan(**options):
    table = SimTable(block_rows=4).append([1, 2, 5, 9], [2, 3, 4, 8], [12, 13, 14, 15], [6] * 4)
    return table.append([3, 4], unclustered=True).plan(**options)


@pytest.mark.parametrize("chosen", [{}, {"threshold": 3}, {"include_unclustered": True, "max_bytes": 10}])
def test_a_plan_survives_json_and_pickling(chosen):
    plan = some_plan(**chosen)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: plan.update(version=1), "version 1, .*; plan again"),
        (lambda plan: plan.update(version=2), "version 2, .*; plan again"),
        (lambda plan: plan.update(version=3), "version 3, .*; plan again"),
        (lambda plan: plan.update(version=6), "version 6"),
        (lambda plan: plan.pop("version"), "not a plan"),
        (lambda plan: plan.pop("groups"), "groups is missing"),
        (lambda plan: plan.update(extra=1), "extra is unknown"),
        (lambda plan: plan.update(groups=7), r"plan\.groups: expected a list"),
        (lambda plan: plan.update(snapshot=7.5), r"plan\.snapshot: expected int or str"),
        (lambda plan: plan.update(snapshot=True), r"plan\.snapshot: expected int"),
        (lambda plan: plan["groups"][0].update(rows=None), r"plan\.groups\[0\]\.rows"),
        (lambda plan: plan["groups"][0].update(number=4), "numbered"),
        (lambda plan: plan["groups"][0].update(blocks=[]), "no blocks"),
        (lambda plan: plan["groups"][0].update(blocks=["a", "a"]), "twice"),
        (lambda plan: plan["options"]["budget"].update(max_blocks=-1), "max_blocks"),
        (lambda plan: plan["options"].update(policy=[]), r"plan\.options\.policy: expected an object"),
        (lambda plan: plan["options"].update(memory_bytes=0), "memory_bytes"),
        (lambda plan: plan["predicted"].update(average_depth_after=-1.0), "average_depth_after is -1"),
        (lambda plan: plan["predicted"].update(average_depth_after={"low": 1.0}), "average_depth_after"),
    ],
)
def test_a_damaged_plan_is_refused_by_place(change, message):
    value = json.loads(json.dumps(some_plan().to_json()))
    change(value)
    with pytest.raises(InvalidDataError, match=message):
        Plan.from_json(value)


def test_a_plan_of_version_1_is_refused_with_plan_again():
    value = some_plan().to_json()
    value["version"] = 1
    value["options"] = {"threshold": None, "max_blocks": None}
    with pytest.raises(InvalidDataError, match="version 1, this tblctl reads version 5; plan again"):
        Plan.from_json(value)


def test_a_plan_of_version_4_is_read_without_prices():
    plan = some_plan()
    value = json.loads(json.dumps(plan.to_json()))
    value["version"] = 4
    del value["bill"]
    for group in value["groups"]:
        del group["price"]
    for name in ("max_seconds", "max_cost", "price_per_gib", "price_per_hour"):
        del value["options"]["budget"][name]
    groups = tuple(dataclasses.replace(group, price=None) for group in plan.groups)
    assert Plan.from_json(value) == dataclasses.replace(plan, groups=groups, bill=None)


@pytest.mark.parametrize(
    "broken", [{"groups": 7}, {"groups": [7]}, {"options": 3}, {"options": {"budget": 3}}]
)
def test_a_damaged_plan_of_version_4_is_refused(broken):
    value = json.loads(json.dumps(some_plan().to_json()))
    with pytest.raises(InvalidDataError, match=r"expected|missing"):
        Plan.from_json({**value, "version": 4, **broken})


def test_a_plan_of_an_unknown_depth_survives_json():
    plan = SimTable(block_rows=4).append([3, 4], unclustered=True).plan()
    value = json.loads(json.dumps(plan.to_json()))
    assert value["predicted"]["average_depth_after"] is None
    assert Plan.from_json(value) == plan


def test_the_options_of_a_plan_are_in_parts():
    plan = some_plan(threshold=3, max_blocks=7, memory_bytes=2**28)
    assert plan.options == PlanOptions(
        policy={
            "threshold": 3,
            "ratio": None,
            "max_group_bytes": 8 * 2**30,
            "include_unclustered": False,
            "every_range": False,
        },
        budget=Budget(max_blocks=7),
        memory_bytes=2**28,
    )
    unset = dict.fromkeys(
        (
            *("max_bytes", "max_groups", "target_depth", "max_seconds", "max_cost"),
            *("price_per_gib", "price_per_hour"),
        )
    )
    assert plan.to_json()["options"]["budget"] == {"max_blocks": 7, **unset}


def test_something_else_is_no_plan():
    for value in (None, [], "plan", 3, {}):
        with pytest.raises(InvalidDataError):
            Plan.from_json(value)


def test_a_plan_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        some_plan().note = ""


def test_every_wrong_option_is_named_at_once():
    wrong = dict(
        threshold=0.5,
        ratio=2,
        max_group_bytes=0,
        max_bytes=-5,
        max_blocks=1.5,
        memory_bytes=None,
        max_goups=3,
    )
    with pytest.raises(InvalidOptionError) as raised:
        SelectOptions.from_mapping(wrong)
    for name in (
        "set the same limit",
        "threshold:",
        "ratio:",
        "max_group_bytes:",
        "max_bytes:",
        "max_blocks:",
        "memory_bytes:",
    ):
        assert name in str(raised.value)
    assert "did you mean max_groups?" in str(raised.value)


def test_sizes_may_be_text_with_a_unit():
    chosen = SelectOptions.from_mapping({"max_group_bytes": "2GiB", "memory_bytes": "500MB", "max_blocks": 7})
    assert chosen == SelectOptions(max_group_bytes=2 * 2**30, memory_bytes=500 * 10**6, max_blocks=7)
    with pytest.raises(InvalidOptionError, match="max_bytes"):
        SelectOptions.from_mapping({"max_bytes": "-2GiB"})


def test_the_default_threshold_is_a_thousandth_of_the_blocks_from_1_to_64():
    thresholds = [LevelsOptions().threshold_for(count) for count in (0, 999, 2500, 10**6)]
    assert thresholds == [1, 1, 2.5, 64]
    assert LevelsOptions(ratio=0.1).threshold_for(5) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("output_level", -7), ("output_level", 4_000_000_000), ("rows", 0), ("size_bytes", -1)],
)
def test_numbers_that_no_group_has_are_refused(field, value):
    table = SimTable(4).append([1, 3], [2, 4])
    document = json.loads(json.dumps(table.plan().to_json()))
    assert Plan.from_json(document) == table.plan()
    document["groups"][0][field] = value
    with pytest.raises(InvalidDataError, match=field):
        Plan.from_json(document)


class _SameHash(str):
    """A name whose hash is that of all others."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other):
        return str.__eq__(self, other)


def test_names_of_one_hash_are_no_block_named_twice():
    plan = some_plan()
    group = dataclasses.replace(plan.groups[0], blocks=(_SameHash("a"), _SameHash("b")))
    assert dataclasses.replace(plan, groups=(group,)).groups[0].blocks == ("a", "b")
    twice = dataclasses.replace(group, blocks=(_SameHash("a"), _SameHash("b"), _SameHash("a")))
    with pytest.raises(ValueError, match="twice"):
        dataclasses.replace(plan, groups=(twice,))
