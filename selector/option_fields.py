"""Options as dataclass fields: one declaration gives the checks, the reading of mappings, and a command's flags.

    @dataclass(frozen=True, kw_only=True)
    class MyOptions:
        target: float = option(default=2.0, unit="depth", help="Merge until the average depth is this.", least=1)

Mappings are read, and flags made, from the fields, their types and their metadata alone:

- `unit`: one word. Values in `bytes` may be text with a unit (`2GiB`).
- `help`: one sentence for people.
- `least`, `most`: the smallest and the largest value; whole numbers begin at 1 unless `least` says otherwise.
- `above`: values are greater than this.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_args, get_type_hints

from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.options import parse_size

Kind = TypeVar("Kind")

KINDS = (int, float, bool, str)
"""What an option can be; or one of these and None."""

RESERVED_NAMES = frozenset(
    (
        *("location", "plan", "plan_file", "policy", "where", "options", "final", "dry_run", "if_exists"),
        *("memory", "memory_bytes", "engine", "spark", "master", "remote", "spark_conf", "on_conflict"),
        *(
            "commit_every",
            "progress",
            "storage_option",
            "storage_options",
            "json",
            "as_json",
            "debug",
            "help",
        ),
        *("locations", "watch", "every", "all", "below", "namespace", "daily_bytes", "output"),
        *("branch", "catalog_option", "catalog_options", "cluster_by", "metadata_cache", "refine"),
        *("h", "verbose", "v", "quiet", "q", "log_level", "color", "profile", "metrics_file"),
        *(
            "workload",
            "list_policies",
            "pending",
            "plans_at",
            "schedule",
            "keep",
            "expires",
            "list",
            "show",
            "cancel",
        ),
    )
)
"""What `Table.plan`, `Table.recluster` and the commands call something else; a test holds them together."""


def option(
    *,
    default: Any,
    unit: str,
    help: str,  # noqa: A002 (the word of the metadata)
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
) -> Any:
    """Return a dataclass field that is an option."""
    metadata = {"unit": unit, "help": help, "least": least, "most": most, "above": above}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option, as its field declares it.

    Attributes:
        kind: one of `KINDS`.
        is_optional: None is a value too.
        default, unit, help, least, most, above: see `option`.
    """

    name: str
    kind: type
    is_optional: bool
    default: Any
    unit: str
    help: str
    least: float | None
    most: float | None
    above: float | None = None

    def problem(self, value: Any) -> str | None:
        """Return what is wrong with a value, or None."""
        if (value is None and self.is_optional) or self._takes(value):
            return None
        return f"{self.name}: expected {self._expected}, got {value!r}"

    def _takes(self, value: Any) -> bool:
        if self.kind in (bool, str) or isinstance(value, bool):
            return type(value) is self.kind
        allowed = (int, float) if self.kind is float else (int,)
        if not isinstance(value, allowed) or not math.isfinite(value):
            return False
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
        )

    @property
    def _expected(self) -> str:
        if self.kind is bool:
            return "true, false or nothing" if self.is_optional else "true or false"
        if self.kind is str:
            return "text"
        if self.kind is int:
            noun = f"a whole number of {self.unit}"
        else:
            noun = "a number" if self.most is None else f"a {self.unit}"
        if self.above is not None:
            return f"{noun} above {self.above:g}" + ("" if self.most is None else f", up to {self.most:g}")
        least = "" if self.least is None else f" from {self.least:g}"
        most = " on" if least and self.most is None else "" if self.most is None else f" to {self.most:g}"
        return noun + least + most


def options_of(kind: type) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in order."""
    hints = get_type_hints(kind)
    return tuple(_declared(item, hints[item.name]) for item in fields(kind))


def _declared(item: Any, hint: Any) -> Option:
    kinds = get_args(hint) or (hint,)
    kind = next(one for one in kinds if one is not type(None))
    least = item.metadata.get("least")
    return Option(
        name=item.name,
        kind=kind,
        is_optional=type(None) in kinds,
        default=item.default,
        unit=item.metadata.get("unit", "number"),
        help=item.metadata.get("help", ""),
        least=1 if least is None and kind is int else least,
        most=item.metadata.get("most"),
        above=item.metadata.get("above"),
    )


def require_valid(options: Any, more: Iterable[str] = ()) -> None:
    """Do nothing if every field of `options` has a value that its declaration allows, and `more` is empty.

    Raises:
        InvalidOptionError: lists every problem at once, `more` first.
    """
    found = (item.problem(getattr(options, item.name)) for item in options_of(type(options)))
    problems = [*more, *(problem for problem in found if problem)]
    if problems:
        raise _refusal(problems)


def from_mapping(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Return the defaults of `kind` with `values` in place of some; sizes may be text with a unit (`2GiB`).

    Raises:
        InvalidOptionError: lists every unknown name (with the nearest known one) and every wrong value.
    """
    known = {item.name: item for item in options_of(kind)}
    problems = unknown_names(values, known)
    parsed: dict[str, Any] = {}
    for name, item in known.items():
        if name in values:
            try:
                parsed[name] = _parsed(item, values[name])
            except InvalidOptionError as cause:
                problems.append(f"{name}: {cause}")
    try:
        options = kind(**parsed)
        require_valid(options)
    except InvalidOptionError as cause:
        problems += cause.details.get("problems", (str(cause),))
    else:
        if not problems:
            return options
    raise _refusal(problems)


def unknown_names(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return what is wrong with the names that are not known."""
    known, problems = list(known), []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"options are {', '.join(known)}"
            problems.append(f"unknown option {name!r}; {hint}")
    return problems


def _parsed(item: Option, value: Any) -> Any:
    return parse_size(value) if item.unit == "bytes" and isinstance(value, str) else value


def _refusal(problems: list[str]) -> InvalidOptionError:
    return InvalidOptionError("; ".join(problems), problems=tuple(problems))
