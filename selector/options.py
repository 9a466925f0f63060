"""What a caller may ask of a policy: thresholds and budgets, validated whole."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.options import parse_size

DEFAULT_GROUP_BYTES = 8 * 2**30
"""`max_group_bytes` of the policies that merge piece by piece: about 64 full blocks."""

_BYTES = ("max_group_bytes", "memory_bytes", "max_bytes")
_COUNTS = ("max_blocks", "max_groups")
_OPTIONAL = ("max_group_bytes", "max_bytes", "max_blocks", "max_groups")


@dataclass(frozen=True, kw_only=True)
class SelectOptions:
    """What to select, and how much at most.

    Attributes:
        threshold: a level is well clustered while its average selection depth is at most this; at least 1, which no
            table can be below. None: by `ratio`, or clamp(0.001 x blocks of the table, 1, 64).
        ratio: the threshold as a share of the table's blocks, between 0 and 1; it counts as 1 where it comes to less.
        max_group_bytes: most decoded bytes that are merged together. None: the policy's own limit, 8 GiB for `levels`,
            none for `full`.
        memory_bytes: most memory of one merge task; it takes 16 MiB at least. No policy needs it: a plan carries it to
            the merge.
        max_bytes: most bytes of files that a plan rewrites. None: no limit.
        max_blocks: most blocks that a plan rewrites. None: no limit.
        max_groups: most groups of a plan. None: no limit but `draft.MOST_GROUPS`.
        include_unclustered: select blocks that are not sorted by the current key too. None: the policy decides: `full`
            does, `levels` does not (`--final` asks for it).

    Raises:
        InvalidOptionError: at construction; lists every problem at once.
    """

    threshold: float | None = None
    ratio: float | None = None
    max_group_bytes: int | None = None
    memory_bytes: int = 2**30
    max_bytes: int | None = None
    max_blocks: int | None = None
    max_groups: int | None = None
    include_unclustered: bool | None = None

    def __post_init__(self) -> None:
        problems = _problems(self)
        if problems:
            raise InvalidOptionError("; ".join(problems), problems=tuple(problems))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SelectOptions:
        """Return the defaults with `values` in place of some; sizes may be text with a unit (`2GiB`).

        Raises:
            InvalidOptionError: lists every unknown name (with the nearest known one) and every wrong value.
        """
        problems: list[str] = []
        parsed: dict[str, Any] = {}
        known = [item.name for item in fields(cls)]
        for name, value in values.items():
            if name not in known:
                near = difflib.get_close_matches(str(name), known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"options are {', '.join(known)}"
                problems.append(f"unknown option {name!r}; {hint}")
                continue
            try:
                parsed[name] = parse_size(value) if name in _BYTES and isinstance(value, str) else value
            except InvalidOptionError as cause:
                problems.append(f"{name}: {cause}")
        try:
            options = cls(**parsed)
        except InvalidOptionError as cause:
            problems += cause.details["problems"]
        else:
            if not problems:
                return options
        raise InvalidOptionError("; ".join(problems), problems=tuple(problems))

    def to_json(self) -> dict[str, Any]:
        """Return every option by name."""
        return asdict(self)

    def threshold_for(self, block_count: int) -> float:
        """Return the threshold for a table of so many blocks; at least 1."""
        if self.threshold is not None:
            return self.threshold
        if self.ratio is not None:
            return max(1.0, self.ratio * block_count)
        return min(max(1.0, 0.001 * block_count), 64.0)


def _problems(options: SelectOptions) -> list[str]:
    values = asdict(options)
    problems = []
    if options.threshold is not None and options.ratio is not None:
        problems.append("threshold and ratio are two ways to say the same; give one of them")
    if options.threshold is not None and not (_is_number(options.threshold) and options.threshold >= 1):
        problems.append(
            f"threshold: expected a number from 1 on (no table has a lower depth), got {options.threshold!r}"
        )
    if options.ratio is not None and not (_is_number(options.ratio) and 0 <= options.ratio <= 1):
        problems.append(f"ratio: expected a share of the blocks from 0 to 1, got {options.ratio!r}")
    for name in _BYTES + _COUNTS:
        value = values[name]
        if value is None and name in _OPTIONAL:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            unit = "bytes" if name in _BYTES else name.removeprefix("max_")
            problems.append(f"{name}: expected a whole number of {unit} from 1 on, got {value!r}")
    if options.include_unclustered not in (None, True, False):
        problems.append(
            f"include_unclustered: expected true, false or nothing, got {options.include_unclustered!r}"
        )
    return problems


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
