"""How a table's data is written: options with default, unit and meaning, validated together.

Snapshots store them, so their names and units are part of the format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Any

from tblctl.tableformat.errors import InvalidOptionError

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_SIZE_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": _KIB, "m": _MIB, "g": _GIB, "t": 2**40,
    "kib": _KIB, "mib": _MIB, "gib": _GIB, "tib": 2**40,
}  # fmt: skip
_DURATION_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_QUANTITY = re.compile(r"\s*(\d{1,19}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*")

_LEVELS_OF_CODEC: dict[str, tuple[int, int] | None] = {
    "zstd": (1, 22),
    "gzip": (1, 9),
    "brotli": (0, 11),
    "snappy": None,
    "lz4": None,
    "none": None,
}
_ROW_GROUP_ROWS = 32_768
"""Tasks read whole row groups, so at the ends of their key ranges they also decode rows of neighbouring tasks. Measured
on lineitem (benchmarks/results/row_groups.txt): with twice as many rows in a row group, two tasks decode 1.66 x the
rows instead of 1.33 x, eight tasks 5.0 x instead of 3.3 x, and one week takes a third longer to read. With 20,000, a
full scan takes 7 % longer."""

_MAX_ROWS = 2**31 - 1
_MAX_BYTES = 2**40
_MAX_EVERY = 1_000_000

OFF, INLINE, ASYNC, SCHEDULE = "off", "inline", "async", "schedule"
"""The values of `recluster.mode`."""

ON, SAMPLE = "on", "sample:"
FULL, ROUNDED = "full", "rounded"
"""The values of `recluster.record_literals`."""


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How a table's data is written; `OPTION_DOCS` says what each means.

    Raises:
        InvalidOptionError: at construction; lists every problem at once.
    """

    block_rows: int = 1_000_000
    block_bytes: int = 128 * _MIB
    row_group_rows: int = _ROW_GROUP_ROWS
    compression: str = "zstd"
    compression_level: int | None = 1
    sort_scope: str = "append"
    memory_bytes: int = _GIB
    recluster_mode: str = field(default=OFF, metadata={"name": "recluster.mode"})
    recluster_every: int = field(default=1, metadata={"name": "recluster.every"})
    recluster_policy: str | None = field(default=None, metadata={"name": "recluster.policy"})
    recluster_record: str = field(default=OFF, metadata={"name": "recluster.record"})
    recluster_record_literals: str = field(default=FULL, metadata={"name": "recluster.record_literals"})

    def __post_init__(self) -> None:
        problems = _problems(self.to_json())
        if problems:
            raise InvalidOptionError("; ".join(problems), problems=tuple(problems))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> TableOptions:
        """Return the defaults with `values` in place of some; numbers may be text, sizes with a unit (`128MiB`).

        Raises:
            InvalidOptionError: lists every unknown key (with the nearest known one) and every wrong value.
        """
        if not isinstance(values, Mapping):
            raise InvalidOptionError(f"expected options by name, got {type(values).__name__}")
        return cls().updated(values)

    def updated(self, values: Mapping[str, Any]) -> TableOptions:
        """Return these options with some changed. If the codec changes, its own default level applies.

        Raises:
            InvalidOptionError: as `from_mapping`.
        """
        problems: list[str] = []
        parsed: dict[str, Any] = {}
        profile = values.get(PROFILE)
        if profile is not None and profile not in PROFILES:
            problems.append(f"{PROFILE}: expected {' or '.join(PROFILES)}, got {profile!r}")
        for name, value in {**PROFILES.get(profile, {}), **values}.items():
            if name in (PROFILE, AUTO):
                continue
            try:
                parsed[name] = _parse(name, value)
            except ValueError as cause:
                problems.append(str(cause))
        problems += _take_mode(values, parsed, self.recluster_mode)
        codec = parsed.get("compression", self.compression)
        if codec != self.compression and "compression_level" not in parsed:
            parsed["compression_level"] = _default_level(codec)
        if problems:
            problems += _problems({**self.to_json(), **parsed})
            raise InvalidOptionError("; ".join(problems), problems=tuple(problems))
        return replace(self, **{_FIELDS[name]: value for name, value in parsed.items()})

    def to_json(self) -> dict[str, Any]:
        """Return every option by name, as snapshots store them."""
        return {name: getattr(self, place) for name, place in _FIELDS.items()}


_FIELDS = {item.metadata.get("name", item.name): item.name for item in fields(TableOptions)}
"""The attributes of `TableOptions` by the options' names."""

PROFILE = "write.profile"
PROFILES: dict[Any, Mapping[str, Any]] = {
    "fast": {"compression": "snappy", "compression_level": None},
    "small": {"compression": "zstd", "compression_level": 9},
}
"""What a profile sets, unless given explicitly. Measured on lineitem against zstd 1 (benchmarks/results/encode.txt):
fast takes 0.84 times as long to encode and has 1.17 times the bytes, small 2.4 times as long and 0.94.
"""

AUTO = "recluster.auto"
POLICY = "recluster.policy"
RECORD, RECORD_LITERALS = "recluster.record", "recluster.record_literals"
"""A synonym: true is the mode inline, false is off."""

OPTION_DOCS: dict[str, str] = {
    "block_rows": "most rows of a block (1,000,000)",
    "block_bytes": "most bytes of a block before compression, a size such as 64MiB (128MiB)",
    "row_group_rows": "rows of a row group, the unit in which key ranges are read apart (32,768)",
    "compression": f"codec of the blocks: {', '.join(_LEVELS_OF_CODEC)} (zstd)",
    "compression_level": "the codec's level: zstd 1-22, gzip 1-9, brotli 0-11; none = the codec's default (1)",
    "sort_scope": (
        "append: rows that fit memory_bytes are sorted together by the cluster key, then cut into blocks; "
        "block: each block is sorted alone, faster to write and more to merge later (append)"
    ),
    "memory_bytes": "most bytes of rows that one write holds at a time, a size such as 2GiB (1GiB)",
    "recluster.mode": (
        "what follows an append, delete, update or overwrite: inline: a round of recluster; async: the same in the "
        "background of this process; schedule: a pending plan, for `recluster --pending` elsewhere. It needs a cluster "
        "key, or recluster.policy=size. Iceberg tables are "
        "written by others: `recluster --watch` serves them (off)"
    ),
    "recluster.every": (
        "it follows every so many such commits since the last recluster, whoever makes them (1)"
    ),
    POLICY: ("the policy of plans and reclusters that name none, such as runs; none = levels (none)"),
    RECORD: (
        "whether scans are recorded beside the table, for `tblctl workload` and policies that follow queries: off, on, "
        "or sample:0.1 for a tenth of them; see docs/workload.md (off)"
    ),
    RECORD_LITERALS: (
        "what is recorded of the values in conditions: full, or rounded: two digits of numbers, two characters of "
        "text, the hour of timestamps (full)"
    ),
    AUTO: "true is recluster.mode=inline, false is recluster.mode=off (false)",
    PROFILE: (
        "sets codec and level at once: fast for tables rewritten often, small for tables kept for long; codec and "
        "level are stored, not the profile (none)"
    ),
}
"""Meaning, unit and (default) of each option, for help texts."""


def parse_size(text: str, *, needs_unit: bool = False) -> int:
    """Return bytes from `1048576`, `500MB` (powers of ten), `2GiB` or `2G` (powers of two).

    Raises:
        InvalidOptionError: not such a size, not a whole number of bytes, or without a unit although `needs_unit`.
    """
    found = _QUANTITY.fullmatch(text)
    if needs_unit and found and not found[2]:
        in_bytes = f" or {found[1]}B" if found[1].isdecimal() else ""
        raise InvalidOptionError(f"{text!r} has no unit; write 500MB, 2GiB{in_bytes}")
    scale = _SIZE_UNITS.get(found[2].lower()) if found else None
    if found is None or scale is None:
        plain = "" if needs_unit else "1048576, "
        raise InvalidOptionError(f"{text!r} is not a size; write one such as {plain}500MB or 2GiB")
    size = Decimal(found[1]) * scale
    if size != int(size):
        raise InvalidOptionError(f"{text!r} is not a whole number of bytes")
    return int(size)


def parse_duration(text: str) -> float:
    """Return seconds from `90s`, `30m`, `24h`, `7d`, `2w` or `0`.

    Raises:
        InvalidOptionError: not such a duration; a number other than 0 needs a unit.
    """
    found = _QUANTITY.fullmatch(text)
    if found is not None and not found[2] and Decimal(found[1]) == 0:
        return 0.0
    if found is not None and not found[2]:
        raise InvalidOptionError(f"{text!r} has no unit; write {found[1]}s, {found[1]}m or {found[1]}h")
    scale = _DURATION_SECONDS.get(found[2].lower()) if found else None
    if found is None or scale is None:
        raise InvalidOptionError(
            f"{text!r} is not a duration; write a number with a unit: 90s, 30m, 24h, 7d or 2w"
        )
    return float(found[1]) * scale


def parse_time(text: str, name: str) -> float:
    """Return the seconds of an option's text, as `parse_duration` does.

    Raises:
        InvalidOptionError: not a duration; it names the option.
    """
    try:
        return parse_duration(text)
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{name} is wrong: {error}") from error


def _parse(name: str, value: Any) -> Any:
    """Return a value in the option's type; ValueError for an unknown name or text that is not such a value."""
    if name not in _CHECKS:
        raise ValueError(_unknown(name))
    if not isinstance(value, str):
        return value
    text = value.strip()
    if name in ("compression", "sort_scope", "recluster.mode", RECORD, RECORD_LITERALS):
        return text.lower()
    if name == POLICY:
        return None if text.lower() in ("none", "default", "") else text
    if name == "compression_level" and text.lower() in ("none", "default"):
        return None
    if name in ("block_bytes", "memory_bytes"):
        try:
            return parse_size(text)
        except InvalidOptionError as cause:
            raise ValueError(f"{name}: {cause}") from cause
    digits = text.replace("_", "").replace(",", "")
    if not re.fullmatch(r"-?\d{1,19}", digits):
        raise ValueError(f"{name}: expected a whole number, got {value!r}")
    return int(digits)


def _take_mode(values: Mapping[str, Any], parsed: dict[str, Any], before: str) -> list[str]:
    """Set the mode that the synonym stands for in `parsed`; return what is wrong with the options of reclusters."""
    if AUTO in values:
        given = values[AUTO]
        flag = {"true": True, "false": False}.get(given.strip().lower()) if isinstance(given, str) else given
        if not isinstance(flag, bool):
            return [f"{AUTO}: expected true or false, got {given!r}"]
        mode = INLINE if flag else OFF
        if parsed.setdefault("recluster.mode", mode) != mode:
            return [
                f"{AUTO} means recluster.mode={mode}, yet recluster.mode is given too: leave one of them out"
            ]
    elif "recluster.every" in values and "recluster.mode" not in values and before == OFF:
        return ["recluster.every has no effect while recluster.mode is off: set recluster.mode with it"]
    return []


def _unknown(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(str(name), OPTION_DOCS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"options are {', '.join(OPTION_DOCS)}"
    return f"unknown option {name!r}; {hint}"


def _default_level(codec: Any) -> int | None:
    return 1 if codec == "zstd" else None


def _problems(values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the values of all options."""
    checked = (check(values[name], name) for name, check in _CHECKS.items())
    problems = [problem for problem in checked if problem is not None]
    return problems or _level_problems(values["compression"], values["compression_level"])


def _level_problems(codec: str, level: int | None) -> list[str]:
    levels = _LEVELS_OF_CODEC[codec]
    if level is None:
        return []
    if levels is None:
        return [f"compression_level: {codec} has no levels, got {level}; leave it out"]
    least, most = levels
    if not least <= level <= most:
        return [f"compression_level: {codec} has levels {least} to {most}, got {level}"]
    return []


_Check = Callable[[Any, str], str | None]


def _whole(least: int, most: int) -> _Check:
    def check(value: Any, name: str) -> str | None:
        if type(value) is not int or not least <= value <= most:
            return f"{name}: expected a whole number from {least} to {most}, got {value!r}"
        return None

    return check


def _one_of(*allowed: str) -> _Check:
    def check(value: Any, name: str) -> str | None:
        if not isinstance(value, str) or value not in allowed:
            return f"{name}: expected {' or '.join(allowed)}, got {value!r}{_nearest(value, allowed)}"
        return None

    return check


def _nearest(value: Any, allowed: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(str(value), allowed, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _level(value: Any, name: str) -> str | None:
    if value is not None and type(value) is not int:
        return f"{name}: expected a whole number or none, got {value!r}"
    return None


def _policy_name(value: Any, name: str) -> str | None:
    if value is not None and not (isinstance(value, str) and re.fullmatch(r"[\w.-]{1,100}", value)):
        return f"{name}: expected the name of a policy, got {value!r:.120}"
    return None


def record_rate(text: str) -> float:
    """Return the share of scans that a value of `recluster.record` has recorded, from 0 to 1.

    Raises:
        InvalidOptionError: it is no such value.
    """
    problem = _record(text, "record")
    if problem is not None:
        raise InvalidOptionError(problem)
    return {OFF: 0.0, ON: 1.0}[text] if text in (OFF, ON) else float(text.removeprefix(SAMPLE))


def _record(value: Any, name: str) -> str | None:
    if isinstance(value, str):
        share = value.removeprefix(SAMPLE)
        is_share = value.startswith(SAMPLE) and re.fullmatch(r"0?\.[0-9]{1,9}|1(?:\.0{1,9})?", share)
        if value in (OFF, ON) or (is_share and float(share) > 0):
            return None
    return f"{name}: expected off, on or sample: and a share such as sample:0.1, got {value!r:.60}"


_CHECKS: dict[str, _Check] = {
    "block_rows": _whole(1, _MAX_ROWS),
    "block_bytes": _whole(1, _MAX_BYTES),
    "row_group_rows": _whole(1, _MAX_ROWS),
    "compression": _one_of(*_LEVELS_OF_CODEC),
    "compression_level": _level,
    "sort_scope": _one_of("append", "block"),
    "memory_bytes": _whole(_MIB, _MAX_BYTES),
    "recluster.mode": _one_of(OFF, INLINE, ASYNC, SCHEDULE),
    "recluster.every": _whole(1, _MAX_EVERY),
    POLICY: _policy_name,
    RECORD: _record,
    RECORD_LITERALS: _one_of(FULL, ROUNDED),
}
assert {PROFILE, AUTO, *_CHECKS} == set(OPTION_DOCS) == {PROFILE, AUTO, *_FIELDS}
