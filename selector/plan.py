"""A plan: what to merge, why, what to expect of it, and what was left out. Frozen values with a JSON form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from tblctl.metrics.html import fields_html, table_html
from tblctl.metrics.partitions import TABLE
from tblctl.selector.budget import Budget
from tblctl.selector.pricing.price import Bill, Price
from tblctl.tableformat.errors import InvalidDataError, InvalidOptionError
from tblctl.tableformat.model.cluster_key import Sort

PLAN_VERSION = 5
"""Version of the JSON form. Plans of version 4 are read too: they have no prices. Others are refused."""

_MOST_LEVEL = 1_000  # far above what any policy gives, and what segments can hold


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Figures of the table, as `info` reports them (closed intervals): now, and predicted for after the plan.

    Averages are None where there are blocks, but none in the order of the key; those after only without groups that get
    into that order. What gets another sort counts as `info` counts it: as a block that is not in the order of the key.
    The numbers of blocks count all, measured or not. Of these now, bounds of some are unknown, or inexact: wider than
    their keys, perhaps. `figures_of` says of which blocks all this is: of the `table`, or, with a condition, of the
    `partitions that may match`.

    Raises:
        ValueError: at construction: a predicted figure is below 0.
    """

    average_depth_before: float | None
    average_depth_after: float | None
    average_overlaps_before: float | None
    average_overlaps_after: float | None
    block_count_before: int
    block_count_after: int
    unknown_block_count: int = 0
    inexact_block_count: int = 0
    figures_of: str = TABLE

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int | float) and value < 0:
                raise ValueError(f"{name} is {value}, expected at least 0")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Blocks to merge together.

    Attributes:
        number: its place in the plan, from 0.
        blocks: their paths, in key order where that is known.
        sort_id: the sort of its output: the table's current one, or another live one.
        output_level: the level of its output (constant full blocks become -1 all the same).
        why: the reason, for people.
        rows, size_bytes, decoded_bytes: of all its blocks.
        same_key_rows: no key has more of the rows; None if that is not known, as with another sort than the current.
        depth_before: average depth of its blocks in the table; None if that of one of them is not known.
        depth_after: the same that is expected of what it becomes; None with another sort than the current one.
        partition: which one its blocks are in, as the table format names it: a JSON value; None for a table without.
        price: what merging it is expected to take; None if that was not predicted.

    Raises:
        ValueError: at construction: a number is out of range.
    """

    number: int
    blocks: tuple[str, ...]
    sort_id: int
    output_level: int
    why: str
    rows: int
    size_bytes: int
    decoded_bytes: int
    same_key_rows: int | None
    depth_before: float | None
    depth_after: float | None
    partition: Any = None
    price: Price | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.output_level <= _MOST_LEVEL:
            raise ValueError(
                f"group {self.number}: output_level is {self.output_level}, expected 1 to {_MOST_LEVEL}"
            )
        if (
            min(self.rows, self.rows if self.same_key_rows is None else self.same_key_rows) < 1
            or min(self.size_bytes, self.decoded_bytes) < 0
        ):
            raise ValueError(
                f"group {self.number}: rows and same_key_rows must be at least 1, size_bytes and decoded_bytes at "
                "least 0"
            )
        if self.same_key_rows is not None and self.same_key_rows > self.rows:
            raise ValueError(
                f"group {self.number}: same_key_rows is {self.same_key_rows}, more than its {self.rows} rows"
            )
        if self.depth_before is not None and self.depth_before < 1:
            raise ValueError(f"group {self.number}: depth_before is {self.depth_before}, expected at least 1")


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """Blocks that were not selected.

    Attributes:
        rule: the reason as one word for programs: constant, unclustered, other_sort, where, failed, pending,
            listed_twice, max_level, too_few_blocks, well_clustered, no_gain, max_group_bytes, max_bytes, max_blocks,
            max_groups, max_seconds, max_cost, target_reached. One that is the name of an option says that this option
            is a limit, which may be raised.
        level: theirs; None if they are of several, or of none.
        blocks, size_bytes: how many they are, and of how many bytes.
        why: for people.
        average_selection_depth, threshold: of a level that is well clustered, and what it was compared with; else None.
    """

    rule: str
    level: int | None
    blocks: int
    size_bytes: int
    why: str
    average_selection_depth: float | None = None
    threshold: float | None = None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Another selection, which finds work where a plan found none.

    Attributes:
        policy, threshold: to select by; None for the policy's own threshold.
        average_depth_after: predicted average depth of the table after one round, as `info` counts it.
    """

    policy: str
    threshold: float | None
    average_depth_after: float

    @property
    def arguments(self) -> str:
        """The arguments of `tblctl recluster LOC` that make this selection."""
        return f"--policy {self.policy}" if self.threshold is None else f"--threshold {self.threshold:g}"


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What a plan was asked for.

    Attributes:
        policy: the policy's own options by name, JSON values.
        budget: how much the plan rewrites at most.
        memory_bytes: most memory of one merge task.

    Raises:
        ValueError: at construction: `memory_bytes` is below 1.
    """

    policy: Mapping[str, Any]
    budget: Budget
    memory_bytes: int

    def __post_init__(self) -> None:
        if self.memory_bytes < 1:
            raise ValueError(f"memory_bytes is {self.memory_bytes}, expected at least 1")

    @property
    def limits(self) -> dict[str, Any]:
        """What a caller may raise if a rejection's rule has its name: the options that are set, by name."""
        named = {**self.policy, **asdict(self.budget)}
        return {name: value for name, value in named.items() if value is not None}


def _may_repeat(names: Sequence[str]) -> bool:
    """Return whether two names have one hash. Of a million names that takes a third of the time of a set."""
    hashes = np.sort(np.fromiter(map(hash, names), np.int64, len(names)))
    return bool((hashes[1:] == hashes[:-1]).any())


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a policy decided for one snapshot. If it has no groups, there is nothing to do, and `note` says why.

    `advice` belongs to a plan without groups of a table whose blocks overlap: selections that would separate them.
    `sorts` are named by groups and new to the table. A sort becomes live with its first committed group. `bill` says
    what the plan is expected to cost and bring; None if that was not predicted.

    Raises:
        ValueError: at construction: groups are not numbered from 0, a group is empty, two groups share a block, or two
            sorts share an id.
    """

    table_id: str
    snapshot: int | str
    policy: str
    groups: tuple[Group, ...]
    rejected: tuple[Rejection, ...]
    predicted: Prediction
    note: str
    options: PlanOptions
    advice: tuple[Advice, ...] = ()
    sorts: tuple[Sort, ...] = ()
    bill: Bill | None = None

    def __post_init__(self) -> None:
        if [group.number for group in self.groups] != list(range(len(self.groups))):
            raise ValueError("groups must be numbered from 0, in order")
        if not all(group.blocks for group in self.groups):
            raise ValueError("a group has no blocks")
        paths = [path for group in self.groups for path in group.blocks]
        if _may_repeat(paths) and len(set(paths)) < len(paths):
            raise ValueError("a block is named twice")
        if len({sort.id for sort in self.sorts}) < len(self.sorts):
            raise ValueError("two sorts have one id")

    @property
    def is_limited(self) -> bool:
        """Whether there is nothing to do because limits leave no room for what there would be."""
        return not self.groups and any(item.rule in self.options.limits for item in self.rejected)

    def _repr_html_(self) -> str:
        """Return the plan for a notebook: what it would merge, or why there is nothing to do."""
        fields = {
            "snapshot": str(self.snapshot),
            "policy": self.policy,
            "what": self.note,
            "depth now": self.predicted.average_depth_before,
            "depth expected": self.predicted.average_depth_after,
        }
        groups = [
            (group.number, len(group.blocks), group.rows, group.size_bytes, group.depth_before, group.why)
            for group in self.groups
        ]
        names = ("group", "blocks", "rows", "bytes", "depth", "why")
        return fields_html("Plan", fields) + (table_html(names, groups) if groups else "")

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        sorts = [sort.to_json() for sort in self.sorts]
        return {"version": PLAN_VERSION, **_as_json(asdict(self)), "sorts": sorts}

    @classmethod
    def from_json(cls, value: Any) -> Plan:
        """Return the plan that `to_json` gave.

        Raises:
            InvalidDataError: the value is not such a plan, or of another version.
        """
        if not isinstance(value, Mapping) or "version" not in value:
            raise InvalidDataError("this is not a plan of tblctl: expected a JSON object with a version")
        if value["version"] not in (PLAN_VERSION, _WITHOUT_PRICES):
            raise InvalidDataError(
                f"the plan has version {value['version']!r}, this tblctl reads version {PLAN_VERSION}; plan again"
            )
        rest = {name: item for name, item in value.items() if name != "version"}
        if value["version"] == _WITHOUT_PRICES:
            rest = _with_prices(rest)
        return _read(cls, rest, "plan")


_WITHOUT_PRICES = 4
"""The version before prices."""


def _with_prices(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan of version 4 in the form of today, as far as it has that form; `_read` refuses the rest."""
    found = {"bill": None, **plan}
    if isinstance(plan.get("groups"), list):
        found["groups"] = [
            {"price": None, **group} if isinstance(group, Mapping) else group for group in plan["groups"]
        ]
    options = plan.get("options")
    if isinstance(options, Mapping) and isinstance(options.get("budget"), Mapping):
        unset = dict.fromkeys(("max_seconds", "max_cost", "price_per_gib", "price_per_hour"))
        found["options"] = {**options, "budget": {**unset, **options["budget"]}}
    return found


def _as_json(value: Any) -> Any:
    """Return the value with tuples replaced by lists, as JSON needs."""
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


Value = TypeVar("Value")


def _read(kind: type[Value], value: Any, place: str) -> Value:
    """Return a dataclass from JSON values. Strict: every field is there, no other is, and each has its type."""
    if not isinstance(value, Mapping):
        raise InvalidDataError(f"{place}: expected an object, got {value!r}")
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    problems = [f"{name} is missing" for name in names if name not in value]
    problems += [f"{name} is unknown" for name in value if name not in names]
    if problems:
        raise InvalidDataError(f"{place}: {'; '.join(problems)}")
    hints = get_type_hints(kind)
    found = {name: _item(hints[name], value[name], f"{place}.{name}") for name in names}
    try:
        return kind(**found)
    except (ValueError, InvalidOptionError) as cause:
        raise InvalidDataError(f"{place}: {cause}") from cause


def _item(hint: Any, value: Any, place: str) -> Any:
    if hint is Any:
        return value
    if get_origin(hint) is Mapping:
        if not isinstance(value, Mapping):
            raise InvalidDataError(f"{place}: expected an object, got {value!r}")
        return dict(value)
    choices = get_args(hint)
    if choices and choices[-1] is Ellipsis:
        if not isinstance(value, list | tuple):
            raise InvalidDataError(f"{place}: expected a list, got {value!r}")
        return tuple(_item(choices[0], item, f"{place}[{index}]") for index, item in enumerate(value))
    kinds = choices or (hint,)
    if value is None and type(None) in kinds:
        return None
    if Sort in kinds:
        return _sort(value, place)
    found = next((kind for kind in kinds if kind in _OBJECTS), None)
    if found is not None:
        return _read(found, value, place)
    if isinstance(value, float) and not math.isfinite(value):  # no JSON, but Python reads it
        raise InvalidDataError(f"{place}: expected a number, got {value!r}")
    exact = bool if isinstance(value, bool) else type(value)
    if exact is int and float in kinds and int not in kinds:
        return float(value)
    if exact not in kinds:
        wanted = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
        raise InvalidDataError(f"{place}: expected {wanted}, got {value!r}")
    return value


def _sort(value: Any, place: str) -> Sort:
    try:
        return Sort.from_json(value)
    except ValueError as cause:
        raise InvalidDataError(f"{place}: {cause}") from cause


_OBJECTS = (Prediction, Group, Rejection, Advice, PlanOptions, Budget, Price, Bill)
