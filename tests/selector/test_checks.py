"""A policy that is none, and a decision that breaks the rules, are refused before anything rests on them."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import pytest

from tblctl.selector.draft import Draft, next_level
from tblctl.selector.option_fields import option
from tblctl.selector.policies.full import FullOptions
from tblctl.selector.policy import Decision
from tblctl.selector.registry import register, registered, unregister
from tblctl.selector.table_view import MOST_LEVEL
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.cluster_key import Sort, Term
from tblctl.tableformat.model.statistics import Deletions

from .tables import SimTable


class Rogue:
    name = "rogue"
    summary = "does what it is told"
    options = FullOptions

    def __init__(self, decide):
        self.chosen = decide

    def decide(self, view, budget, options, *, workload, state, rates, now, rng):
        return self.chosen(view) if callable(self.chosen) else self.chosen


def some_table():
    """Make blocks 0 to 3 of level 0, a constant full one, and one of another partition and of level 3."""
    table = SimTable(block_rows=4).append([1, 5], [2, 6], [3, 7], [4, 8])
    return table.append([7] * 4).append([2, 3], partition=1, level=3)


def plan_of(decision, table=None):
    return (table or some_table()).plan(Rogue(decision))


def drafts(*blocks, **words):
    words = {"output_level": 1, "why": "", **words}
    made = (item if isinstance(item, np.ndarray) else np.array(item, np.int64) for item in blocks)
    return Decision(drafts=tuple(Draft(blocks=item, **words) for item in made))


@pytest.mark.parametrize(
    ("decision", "problem"),
    [
        (None, "decide returned None, expected a Decision"),
        (Decision(drafts=None), "drafts is None, expected a tuple"),
        (Decision(drafts=(np.arange(2),)), r"drafts\[0\] is a ndarray, expected a Draft"),
        (Decision(rejections=("none",)), r"rejections\[0\] is a str, expected a Rejection"),
        (
            Decision(drafts=(Draft(blocks=[0, 1], output_level=1, why=""),)),
            "group 0: blocks is a list, expected a numpy array of block numbers",
        ),
        (drafts(np.array(3)), "group 0: blocks is a ndarray"),
        (drafts([0, 1], np.array([True, False, True])), "group 1: blocks is a mask, expected block numbers"),
        (drafts(np.array([0.0, 1.0])), "group 0: blocks is an array of float64, expected whole numbers"),
        (drafts([0, 1], []), "group 1 has no blocks"),
        (drafts([0, -1]), "group 0: there is no block -1, expected 0 to 5"),
        (drafts([0, 1], [2, 6]), "group 1: there is no block 6, expected 0 to 5"),
        (drafts([0, 1], [1, 2]), "block 1 is selected twice"),
        (drafts([0, 0]), "block 0 is selected twice"),
        (drafts([0, 4]), "group 0: block 4 may not be selected"),
        (drafts([0, 5], output_level=4), "group 0 crosses partitions"),
        (drafts([0, 1], why=None), "group 0: why is None, expected text"),
        (drafts([0, 1], sort=1), "group 0: sort is a int, expected a Sort or None"),
        (drafts([0, 1], output_level=1.0), "group 0: output_level is 1.0, expected a whole number"),
        (drafts([0, 1], output_level="1"), "group 0: output_level is '1', expected a whole number"),
    ],
)
def test_a_decision_that_breaks_the_rules_is_refused_with_policy_and_group(decision, problem):
    with pytest.raises(InvalidOptionError, match=f"^policy rogue: {problem}"):
        plan_of(decision)


@pytest.mark.parametrize("level", [0, -1, -(10**30), MOST_LEVEL + 1, 10**30])
def test_a_level_that_is_not_above_all_of_the_blocks_is_refused(level):
    with pytest.raises(InvalidOptionError, match=f"group 0: output_level is {level}, expected 1 to 32"):
        plan_of(drafts([0, 1], output_level=level))
    with pytest.raises(InvalidOptionError, match="group 1: output_level is 3, expected 4 to 32"):
        plan_of(
            Decision(
                drafts=(
                    Draft(blocks=np.arange(2), output_level=3, why=""),
                    Draft(blocks=np.array([5]), output_level=3, why=""),
                )
            )
        )


def test_levels_up_to_the_highest_are_taken_and_unclustered_blocks_count_as_none():
    assert plan_of(drafts([0, 1], output_level=MOST_LEVEL)).groups[0].output_level == MOST_LEVEL
    table = SimTable(block_rows=4).append([1, 5], [2, 6], level=7, unclustered=True)
    assert plan_of(drafts([0, 1]), table).groups[0].output_level == 1


@pytest.mark.parametrize(("level", "kept"), [(3, 3), (MOST_LEVEL, MOST_LEVEL), (-1, 1)])
def test_a_block_to_which_deletes_apply_may_be_rewritten_alone_at_its_level(level, kept):
    keys = ([7] * 4, [8] * 4) if level == -1 else ([1, 5], [6, 9])
    table = SimTable(block_rows=4).append(*keys, level=max(level, 0))
    seen = table.view()
    assert seen.level.tolist() == [level] * 2
    deletions = Deletions(files=np.array([1, 0]), rows=np.array([0.1, 0.0]))
    view = dataclasses.replace(seen, deletions_of=lambda: deletions)
    table.view = lambda _restricted: view
    assert plan_of(drafts([0], output_level=kept), table).groups[0].output_level == kept
    for decision in (drafts([1], output_level=kept), drafts([0, 1], output_level=kept)):
        with pytest.raises(InvalidOptionError, match=r"may not be selected|output_level is 3, expected 4 to"):
            plan_of(decision, table)
    with pytest.raises(InvalidOptionError, match=f"output_level is {kept - 1}, expected"):
        plan_of(drafts([0], output_level=kept - 1), table)


def test_a_policy_that_never_lifts_its_blocks_does_not_run_for_ever():
    table = SimTable(block_rows=4).append([1, 5], [2, 6])
    policy = Rogue(lambda view: drafts(np.flatnonzero(view.selectable)))
    with pytest.raises(InvalidOptionError, match="output_level is 1, expected 2 to 32"):
        table.final(policy)
    policy = Rogue(
        lambda view: (
            drafts(found := np.flatnonzero(view.selectable), output_level=next_level(view, found))
            if view.selectable.any()
            else Decision()
        )
    )
    assert len(table.final(policy)) == MOST_LEVEL - 1


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.int64])
def test_whole_numbers_of_any_kind_become_plain_ones(kind):
    (group,) = plan_of(drafts(np.array([0, 2], kind), output_level=kind(3))).groups
    assert (type(group.output_level), group.output_level, len(group.blocks)) == (int, 3, 2)


def test_at_most_64_sorts_are_live():
    table = some_table()
    sorts = {number: Sort(id=number, terms=(Term(column_id=number),)) for number in range(1, 65)}
    view = dataclasses.replace(table.view(), sorts=sorts)
    table.view = lambda _restricted: view
    with pytest.raises(InvalidOptionError, match="group 0: its sort would be live beside 64 others"):
        plan_of(drafts([0, 1], sort=Sort(id=65, terms=(Term(column_id=1),))), table)
    assert plan_of(drafts([0, 1], sort=sorts[64]), table).groups[0].sort_id == 64


def test_a_sort_with_the_id_of_another_one_is_refused():
    view = dataclasses.replace(some_table().view(), sorts={1: Sort(id=1, terms=(Term(column_id=1),))})
    table = some_table()
    table.view = lambda _restricted: view
    with pytest.raises(InvalidOptionError, match="group 0: its sort has the id 1 of another one"):
        plan_of(drafts([0, 1], sort=Sort(id=1, terms=(Term(column_id=2),))), table)
    new = [Sort(id=5, terms=(Term(column_id=number),)) for number in (1, 2)]
    both = [drafts(blocks_, sort=sort).drafts[0] for blocks_, sort in zip(([0, 1], [2, 3]), new, strict=True)]
    with pytest.raises(InvalidOptionError, match="group 1: its sort has the id 5 of another one"):
        plan_of(Decision(drafts=tuple(both)))


@pytest.mark.parametrize(
    "name", ["low", "level", "row_count", "partition", "selectable", "finished", "too_high"]
)
def test_a_policy_cannot_change_the_view(name):
    def decide(view):
        getattr(view, name)[:] = 0

    with pytest.raises(ValueError, match="read-only"):
        plan_of(decide)


def test_the_arrays_that_a_view_is_made_of_are_neither_copied_nor_sealed():
    made = some_table().view()
    level = made.level.copy()
    view = dataclasses.replace(made, level=level)
    level[0] = 5
    assert view.level[0] == 5


# -- what a policy must have -------------------------------------------------------------------------------------


def options_with(**declared):
    """Return a dataclass of options: `name=(type, field)`."""
    made = [(name, kind, item) for name, (kind, item) in declared.items()]
    return dataclasses.make_dataclass("Some", made, frozen=True, kw_only=True)


def policy_with(**words):
    """Return a policy, some of whose members are others; `missing` names one that is not there."""
    missing = words.pop("missing", None)
    members = {
        "name": "some",
        "summary": "does something",
        "options": FullOptions,
        "decide": lambda self, view, budget, options, **_: Decision(),
        **words,
    }
    return type("Some", (), {name: value for name, value in members.items() if name != missing})()


def blocks(**words):
    return option(**{"default": 2, "unit": "blocks", "help": "Some.", **words})


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (object(), "policy is <object object at .*>, expected the name of one, or an object with decide"),
        (policy_with(missing="name"), "as a policy: name is None, expected text"),
        (policy_with(name=7), "name is 7, expected text"),
        (policy_with(name="two words"), "policy 'two words': name is 'two words', expected text"),
        (type(policy_with()), "policy 'some': it is a class, expected one of its objects"),
        (policy_with(summary=7), "policy 'some': summary is 7, expected text"),
        (policy_with(missing="decide"), "decide is missing, expected a method"),
        (
            policy_with(decide=lambda self, view, budget, options: Decision()),
            r"decide cannot be called as decide\(view, budget, options, workload=..,",
        ),
        (policy_with(options=None), "options is None, expected a frozen dataclass"),
        (policy_with(options=FullOptions()), r"options is FullOptions\(.*expected a frozen dataclass"),
        (
            policy_with(options=dataclasses.make_dataclass("Loose", [("a", int, blocks())])),
            "options is a dataclass that is not frozen",
        ),
        (
            policy_with(options=options_with(must=(int, dataclasses.field(metadata={"unit": "blocks"})))),
            "option must has no default",
        ),
        (
            policy_with(options=options_with(mode=(Literal["a", "b"], blocks(default="a")))),
            r"option mode is of kind Literal\['a', 'b'\], expected one of int, float, bool, str, or",
        ),
        (
            policy_with(options=options_with(names=(tuple[str, ...], blocks(default=())))),
            r"option names is of kind tuple\[str, ...\], expected one of",
        ),
        (policy_with(options=options_with(names=(list[int], blocks()))), "option names is of kind list"),
        (policy_with(options=options_with(x=(int | str, blocks()))), r"option x is of kind int \| str"),
        (policy_with(options=options_with(x=("Nowhere", blocks()))), "options: its types cannot be read"),
        (policy_with(options=options_with(x=(int, blocks(default=None)))), "x: expected a whole number of"),
        (policy_with(options=options_with(maxBlocks=(int, blocks()))), "option maxBlocks: expected a name"),
        (
            policy_with(options=options_with(max_blocks=(int, blocks()))),
            "option max_blocks is one of the bud",
        ),
        (policy_with(options=options_with(memory_bytes=(int, blocks()))), "option memory_bytes: tblctl rec"),
        (policy_with(options=options_with(final=(bool, blocks(default=True)))), "option final: tblctl recl"),
        (policy_with(options=options_with(no_x=(bool, blocks(default=True)))), "option no_x: tblctl reclus"),
        (
            policy_with(options=options_with(threshold=(int, blocks()))),
            "policy 'some': option threshold is of kind int in blocks, but that of 'levels' is of kind float in",
        ),
        (
            policy_with(options=options_with(max_group_bytes=(int, blocks()))),
            "option max_group_bytes is of kind int in blocks, but that of 'levels' is of kind int in bytes",
        ),
    ],
)
def test_what_is_no_policy_is_not_registered(policy, problem):
    before = registered()
    with pytest.raises(InvalidOptionError, match=problem):
        register(policy)
    assert registered() == before


def test_all_that_is_wrong_with_a_policy_is_told_at_once():
    options = options_with(plan=(str, blocks(default="")), a=(bytes, blocks(default=b"")))
    with pytest.raises(InvalidOptionError) as raised:
        register(policy_with(summary=None, options=options))
    assert len(raised.value.details["problems"]) == 3


def test_an_option_that_another_policy_has_alike_is_shared():
    shared = options_with(
        threshold=(float | None, blocks(default=None, unit="depth")),
        max_group_bytes=(int, blocks(unit="bytes")),
    )
    policy = policy_with(options=shared)
    register(policy)
    unregister("some")
