"""All options of a plan in one value: the policy's options, the budget, and the memory of the merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tblctl.selector.budget import Budget, price_problems
from tblctl.selector.option_fields import (
    from_mapping,
    option,
    options_of,
    require_valid,
    unknown_names,
)
from tblctl.selector.policies.levels import LevelsOptions, threshold_problems
from tblctl.selector.policy import Policy
from tblctl.tableformat.errors import InvalidOptionError

DEFAULT_MEMORY_BYTES = 2**30


def _like(kind: type, name: str) -> Any:
    """Return a copy of the field of that name, with None for the policy's own default."""
    item = next(item for item in fields(kind) if item.name == name)
    return field(default=None, metadata=item.metadata)


@dataclass(frozen=True, kw_only=True)
class SelectOptions:
    """What to select, and how much at most. `parts` divides it among policy, planner and merge.

    Attributes:
        threshold: a level is well clustered while its average selection depth is at most this. At least 1, since no
            depth is below 1. None: by `ratio`, or clamp(0.001 x blocks of the table, 1, 64).
        ratio: the threshold as a share of the table's blocks, between 0 and 1. A resulting threshold below 1 counts
            as 1.
        max_group_bytes: most decoded bytes that are merged together. None: the policy's own limit, 8 GiB for `levels`,
            none for `full`.
        memory_bytes: most memory of one merge task, which takes at least 16 MiB. Policies ignore it; a plan carries it
            to the merge.
        max_bytes: most bytes of files that are decoded: a plan counts all bytes of the files that it reads. With
            `final` the limit is that of the whole run, and what was copied undecoded does not count. None: no limit.
        max_blocks: most blocks that a plan rewrites. None: no limit.
        max_groups: most groups of a plan. None: no limit but `draft.MOST_GROUPS`.
        target_depth: a plan has no more groups than are expected to bring the average depth of the table to this. At
            least 1. None: all that the policy chooses.
        max_seconds: no group is planned or begun that is expected to end later; with `final` counted from the start of
            the run, else of the round. A run may overshoot by what one group takes longer. Above 0. None: no limit.
        max_cost: the same for money, by the two prices, one of which it needs. Above 0. None: no limit.
        price_per_gib: of files that are read to be merged. Above 0. None: they cost nothing.
        price_per_hour: of all machines that merge. Above 0. None: time costs nothing.
        include_unclustered: also select blocks that are not sorted by the current key. None: the policy decides: `full`
            selects them, `levels` does not (unless `--final` is given).

    Raises:
        InvalidOptionError: at construction; lists every problem at once.
    """

    threshold: float | None = _like(LevelsOptions, "threshold")
    ratio: float | None = _like(LevelsOptions, "ratio")
    max_group_bytes: int | None = _like(LevelsOptions, "max_group_bytes")
    memory_bytes: int = option(
        default=DEFAULT_MEMORY_BYTES, unit="bytes", help="Most memory of one merge task."
    )
    max_bytes: int | None = _like(Budget, "max_bytes")
    max_blocks: int | None = _like(Budget, "max_blocks")
    max_groups: int | None = _like(Budget, "max_groups")
    target_depth: float | None = _like(Budget, "target_depth")
    max_seconds: float | None = _like(Budget, "max_seconds")
    max_cost: float | None = _like(Budget, "max_cost")
    price_per_gib: float | None = _like(Budget, "price_per_gib")
    price_per_hour: float | None = _like(Budget, "price_per_hour")
    include_unclustered: bool | None = _like(LevelsOptions, "include_unclustered")

    def __post_init__(self) -> None:
        require_valid(self, [*threshold_problems(self), *price_problems(self)])

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SelectOptions:
        """Return the defaults with `values` in place of some; sizes may be text with a unit (`2GiB`).

        Raises:
            InvalidOptionError: lists every unknown name (with the nearest known one) and every wrong value.
        """
        return from_mapping(cls, values)

    def to_json(self) -> dict[str, Any]:
        """Return every option by name."""
        return asdict(self)

    def threshold_for(self, block_count: int) -> float:
        """Return the threshold of `levels` for a table of `block_count` blocks; at least 1."""
        return LevelsOptions(threshold=self.threshold, ratio=self.ratio).threshold_for(block_count)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Options, divided among those who use them.

    Attributes:
        policy: an instance of the policy's `options`.
        budget: for the planner.
        memory_bytes: for the merge: most memory of one task.
    """

    policy: Any
    budget: Budget
    memory_bytes: int


def parts(policy: Policy, asked: Mapping[str, Any] | SelectOptions | None, *, final: bool = False) -> Parts:
    """Return the options of each part, from a value or from a mapping of names to values.

    Names are those of the policy's own options and of `SelectOptions`. A policy ignores fields of `SelectOptions` that
    it does not have. None stands for the default. `final` selects unclustered blocks too, unless `asked` forbids it.

    Raises:
        InvalidOptionError: lists every unknown name and every wrong value.
    """
    values = dict(asked.to_json() if isinstance(asked, SelectOptions) else asked or {})
    own = {item.name: item for item in options_of(policy.options)}
    common = {item.name: item for item in options_of(SelectOptions)}
    problems = unknown_names(values, {**common, **own})
    found: dict[type, Any] = {}
    general = {name: value for name, value in values.items() if name in common and name not in own}
    mine = {name: value for name, value in values.items() if name in own and (value is not None)}
    if final and "include_unclustered" in own:
        mine.setdefault("include_unclustered", True)
    for kind, chosen in ((SelectOptions, general), (policy.options, mine)):
        try:
            found[kind] = from_mapping(kind, chosen)
        except InvalidOptionError as cause:
            problems += cause.details["problems"]
    if problems:
        raise InvalidOptionError("; ".join(problems), problems=tuple(problems))
    rest = found[SelectOptions]
    budget = Budget(**{item.name: getattr(rest, item.name) for item in fields(Budget)})
    return Parts(policy=found[policy.options], budget=budget, memory_bytes=rest.memory_bytes)
