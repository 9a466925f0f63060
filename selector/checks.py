"""What policies and their decisions must be. Checked before anything rests on them, so that no mistake shows up late.

Whoever asked for the policy has to mend it, so what is wrong is an `InvalidOptionError`.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from tblctl.metrics.intervals import Integers, Mask
from tblctl.selector.budget import Budget
from tblctl.selector.draft import Draft, counted_level, lowers_coverage, next_level, sort_id_of
from tblctl.selector.option_fields import KINDS, RESERVED_NAMES, Option, options_of
from tblctl.selector.plan import Rejection
from tblctl.selector.policy import Alternative, Decision, Policy, summary_of
from tblctl.selector.table_view import MOST_LEVEL, TableView, joined
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.cluster_key import Sort

MOST_SORTS = 64
"""Live sorts of a table. Every snapshot has all of them; a curve takes up to 40 kB."""

_NAME = re.compile(r"[A-Za-z][\w.-]*")
_OPTION_NAME = re.compile(r"[a-z][a-z0-9_]*")
_KINDS = ", ".join(kind.__name__ for kind in KINDS)


def require_policy(policy: Any) -> Policy:
    """Return `policy` if it has what a policy needs.

    Raises:
        InvalidOptionError: it has not; lists every problem.
    """
    if not (hasattr(policy, "name") or hasattr(policy, "decide")):
        raise InvalidOptionError(
            f"policy is {policy!r:.80}, expected the name of one, or an object with decide"
        )
    name = getattr(policy, "name", None)
    problems = []
    if isinstance(policy, type):
        problems.append("it is a class, expected one of its objects: add ()")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        problems.append(f"name is {name!r}, expected text such as 'oldest'")
    if not isinstance(summary_of(policy), str):
        problems.append(f"summary is {policy.summary!r:.80}, expected text that follows 'NAME, which'")
    problems += _decide_problems(getattr(policy, "decide", None))
    problems += _options_problems(getattr(policy, "options", None))
    if problems:
        named = f"policy {name!r}" if isinstance(name, str) else f"{policy!r:.80} as a policy"
        raise InvalidOptionError(f"{named}: {'; '.join(problems)}", problems=tuple(problems))
    found: Policy = policy
    return found


def require_agreement(policy: Policy, others: Sequence[Policy]) -> None:
    """Do nothing if options that `policy` shares with `others` by name are of one kind and unit, so of one flag.

    Raises:
        InvalidOptionError: they are not.
    """
    own = {item.name: item for item in options_of(policy.options)}
    for other in others:
        for item in options_of(other.options):
            mine = own.get(item.name, item)
            if (mine.kind, mine.unit) != (item.kind, item.unit):
                raise InvalidOptionError(
                    f"policy {policy.name!r}: option {item.name} is {_kind_and_unit(mine)}, but that of "
                    f"{other.name!r} is {_kind_and_unit(item)}; name it otherwise, for both are one flag"
                )


def _kind_and_unit(item: Option) -> str:
    return f"of kind {item.kind.__name__} in {item.unit}"


def _decide_problems(decide: Any) -> list[str]:
    if not callable(decide):
        return ["decide is missing, expected a method; see `Policy.decide`"]
    given = dict.fromkeys(("workload", "state", "rates", "now", "rng"))
    try:
        inspect.signature(decide).bind("view", "budget", "options", **given)
    except TypeError as error:
        called = f"decide(view, budget, options, {', '.join(f'{name}=..' for name in given)})"
        return [f"decide cannot be called as {called}: {error}"]
    return []


def _options_problems(kind: Any) -> list[str]:
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return [f"options is {kind!r:.80}, expected a frozen dataclass of `option` fields"]
    params: Any = kind
    problems = [] if params.__dataclass_params__.frozen else ["options is a dataclass that is not frozen"]
    try:
        hints = get_type_hints(kind)
    except Exception as error:  # noqa: BLE001 (whatever the annotations evaluate to)
        return [*problems, f"options: its types cannot be read: {type(error).__name__}: {error}"]
    for item in fields(kind):
        problems += _option_problems(item.name, hints[item.name], item.default)
    if not problems:
        problems = [problem for item in options_of(kind) if (problem := item.problem(item.default))]
    if not problems:
        try:
            kind()
        except Exception as error:  # noqa: BLE001 (whatever its checks raise)
            problems.append(f"options() with its defaults raises {type(error).__name__}: {error}")
    return problems


def _option_problems(name: str, hint: Any, default: Any) -> list[str]:
    problems = []
    if not _OPTION_NAME.fullmatch(name):
        problems.append(f"option {name}: expected a name of lower-case letters, digits and _")
    if name in {item.name for item in fields(Budget)}:
        problems.append(
            f"option {name} is one of the budget's, which the planner applies: name yours otherwise"
        )
    elif name in RESERVED_NAMES or name.startswith("no_"):
        problems.append(
            f"option {name}: tblctl recluster takes that for something else: name yours otherwise"
        )
    united = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [kind for kind in united if kind is not type(None)]
    if len(kinds) != 1 or kinds[0] not in KINDS:
        shown = hint.__name__ if hint in (list, tuple, dict, bytes) else str(hint).removeprefix("typing.")
        problems.append(f"option {name} is of kind {shown}, expected one of {_KINDS}, or one of these | None")
    if default is MISSING:
        problems.append(f"option {name} has no default")
    return problems


def checked(view: TableView, policy: Policy, decision: Any) -> Decision:
    """Return a decision as the planner needs it: block numbers as int64, levels as int.

    Raises:
        InvalidOptionError: it is not what a `Decision` may hold; names the policy and the draft.
    """
    try:
        found = _require_decision(decision)
        for name, kind in (("drafts", Draft), ("rejections", Rejection), ("alternatives", Alternative)):
            _require_all(name, getattr(found, name), kind)
        drafts = tuple(_typed(number, draft) for number, draft in enumerate(found.drafts))
        _require_blocks(view, drafts)
        _require_levels(view, drafts)
    except _BrokenRuleError as problem:
        raise InvalidOptionError(f"policy {policy.name}: {problem}") from None
    return replace(found, drafts=drafts)


class _BrokenRuleError(Exception):
    """What is wrong with a decision, as text."""


def _require_decision(decision: Any) -> Decision:
    if not isinstance(decision, Decision):
        raise _BrokenRuleError(f"decide returned {_shown(decision)}, expected a Decision")
    return decision


def _require_all(name: str, items: Any, kind: type) -> None:
    if not isinstance(items, tuple | list):
        raise _BrokenRuleError(f"{name} is {_shown(items)}, expected a tuple")
    for number, item in enumerate(items):
        if not isinstance(item, kind):
            raise _BrokenRuleError(f"{name}[{number}] is {_shown(item)}, expected a {kind.__name__}")


def _typed(number: int, draft: Draft) -> Draft:
    """Return a draft with block numbers of int64 and a level of int."""
    blocks: Any = draft.blocks
    if not isinstance(blocks, np.ndarray) or blocks.ndim != 1:
        raise _BrokenRuleError(
            f"group {number}: blocks is {_shown(blocks)}, expected a numpy array of block numbers"
        )
    if blocks.dtype.kind == "b":
        raise _BrokenRuleError(
            f"group {number}: blocks is a mask, expected block numbers: numpy.flatnonzero(mask)"
        )
    if blocks.dtype.kind not in "iu":
        raise _BrokenRuleError(
            f"group {number}: blocks is an array of {blocks.dtype}, expected whole numbers"
        )
    if not blocks.size:
        raise _BrokenRuleError(f"group {number} has no blocks")
    if not isinstance(draft.why, str):
        raise _BrokenRuleError(f"group {number}: why is {_shown(draft.why)}, expected text")
    if not isinstance(draft.sort, Sort | None):
        raise _BrokenRuleError(f"group {number}: sort is {_shown(draft.sort)}, expected a Sort or None")
    level: Any = draft.output_level
    if blocks.dtype == np.int64 and type(level) is int:
        return draft
    try:
        level = operator.index(level)
    except TypeError:
        raise _BrokenRuleError(
            f"group {number}: output_level is {level!r}, expected a whole number"
        ) from None
    return replace(draft, blocks=blocks.astype(np.int64), output_level=level)


def _require_blocks(view: TableView, drafts: Sequence[Draft]) -> None:
    chosen = joined(draft.blocks for draft in drafts)
    outside = (chosen < 0) | (chosen >= len(view))
    if outside.any():
        number = int(chosen[outside.argmax()])
        group = _group_of(drafts, int(outside.argmax()))
        raise _BrokenRuleError(f"group {group}: there is no block {number}, expected 0 to {len(view) - 1}")
    forbidden = ~_is_selectable(view, drafts)
    if forbidden.any():
        group = _group_of(drafts, int(forbidden.argmax()))
        number = int(chosen[forbidden.argmax()])
        raise _BrokenRuleError(
            f"group {group}: block {number} may not be selected; see `TableView.selectable`"
        )
    if chosen.size and np.bincount(chosen).max() > 1:
        raise _BrokenRuleError(f"block {int(np.bincount(chosen).argmax())} is selected twice")
    named = dict(view.sorts)
    for number, draft in enumerate(drafts):
        sort = draft.sort
        if sort and named.setdefault(sort.id, sort) != sort:
            raise _BrokenRuleError(f"group {number}: its sort has the id {sort.id} of another one")
        if len(named) > MOST_SORTS and len(named) > len(view.sorts):
            raise _BrokenRuleError(f"group {number}: its sort would be live beside {MOST_SORTS} others")
        if view.is_partitioned and np.ptp(view.partition[draft.blocks]):
            raise _BrokenRuleError(f"group {number} crosses partitions")


def _is_selectable(view: TableView, drafts: Sequence[Draft]) -> Mask:
    """Return for every block of the drafts, in their order, whether it may be given the sort that it is to get."""
    masks = {number: view.selectable_for(number) for number in {sort_id_of(view, draft) for draft in drafts}}
    found = [
        masks[sort_id_of(view, draft)][draft.blocks] | _is_parted(view, draft) & view.separable[draft.blocks]
        for draft in drafts
    ]
    # Which deletes apply may be read from storage: only where that decides.
    found = [
        mask if mask.all() else mask | _is_renewed(view, draft)
        for mask, draft in zip(found, drafts, strict=True)
    ]
    return np.concatenate(found) if found else np.ones(0, np.bool_)


def _is_parted(view: TableView, draft: Draft) -> bool:
    """Return whether a draft may take blocks that were merged as often as others let them be."""
    return (
        draft.output_level == MOST_LEVEL
        and sort_id_of(view, draft) == view.sort_id
        and bool(view.separable[draft.blocks].any())
        and lowers_coverage(view, draft.blocks)
    )


def _is_renewed(view: TableView, draft: Draft) -> bool:
    """Return whether a draft rewrites a block alone to which deletes apply; then its level need not rise."""
    return draft.blocks.size == 1 and bool(view.renewable[draft.blocks[0]])


def _require_levels(view: TableView, drafts: Sequence[Draft]) -> None:
    """Refuse levels with which `--final` might never end (`draft.py`)."""
    if not drafts:
        return
    starts = np.cumsum([0, *(draft.blocks.size for draft in drafts[:-1])])
    least = np.maximum.reduceat(counted_level(view, joined(draft.blocks for draft in drafts)), starts) + 1
    given: Integers = np.array([min(max(draft.output_level, -1), MOST_LEVEL + 1) for draft in drafts])
    wrong = (given < least) | (given > MOST_LEVEL)
    for number in np.flatnonzero(wrong & (given == MOST_LEVEL)).tolist():
        wrong[number] = not _is_parted(view, drafts[number])
    for number in np.flatnonzero(wrong & (given == np.clip(least - 1, 1, MOST_LEVEL))).tolist():
        wrong[number] = not _is_renewed(view, drafts[number])
    if wrong.any():
        number = int(wrong.argmax())
        draft = drafts[number]
        raise _BrokenRuleError(
            f"group {number}: output_level is {draft.output_level}, expected {next_level(view, draft.blocks)} to "
            f"{MOST_LEVEL}: above the level of every block of it; see `next_level`"
        )


def _group_of(drafts: Sequence[Draft], place: int) -> int:
    """Return the number of the draft that has the block at `place` of all blocks."""
    ends = np.cumsum([draft.blocks.size for draft in drafts])
    return int(np.searchsorted(ends, place, side="right"))


def _shown(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
