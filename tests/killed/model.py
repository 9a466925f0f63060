"""What a worker's own rows may be, by its log alone: the oracle of races between processes that are killed.

Each worker changes only rows of its own, `owner`, so its log is their whole history, whatever other workers do to the
blocks that they lie in. Row `number` of an owner lies at the key `key_of(owner, number)`; keys of all owners are mixed.
A change is written to the log before it begins, and its outcome after it ended:

    {"begun": {"kind": "update", "low": 10, "high": 90, "value": 7}}
    {"ended": "committed"}                      or "refused": it was certainly not committed; or "unknown"
    {"read": "<digest>", "rows": 120}           what a reader saw of the owner's rows

A change without an end, of a worker that was killed, and one whose end is unknown may be committed or not. So the
model keeps every `World` that is possible: usually one, two after a kill. A read must see one of them, and rules out
the others. Before its first read, a worker that was started again commits something: no request of the killed one
can take effect after that, since it would commit on a version that is no longer the newest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

KEYS = 1_000_003
"""Keys are below this prime."""

World = Mapping[int, int]
"""The value of each row, by its number."""


def key_of(owner: int, number: int) -> int:
    """Return the key of a row: numbers in a row lie far apart."""
    return (number * 7919 + owner * 104_729) % KEYS


def text_of(owner: int, number: int) -> str:
    """Return the text of a row, so that a row that was mixed up with another one shows."""
    return f"{owner}/{number}"


def digest_of(world: World) -> str:
    return hashlib.sha256(json.dumps(sorted(world.items())).encode()).hexdigest()[:32]


def changed(owner: int, world: World, change: Mapping[str, Any]) -> World:
    """Return the rows after a change was committed."""
    kind, found = change["kind"], dict(world)
    if kind != "append":
        chosen = [number for number in world if change["low"] <= key_of(owner, number) < change["high"]]
        for number in chosen:
            if kind == "update":
                found[number] = change["value"]
            else:
                del found[number]
    if kind in {"append", "overwrite"}:
        first = change["first"]
        found |= dict.fromkeys(range(first, first + change["count"]), change["value"])
    return found


class LostError(AssertionError):
    """A reader saw rows that no sequence of the logged changes explains."""


@dataclass(kw_only=True)
class Owner:
    """The rows of one owner, by its log.

    Attributes:
        owner: its number.
        worlds: what its rows may be now.
        changes, committed, refused, unknown: how many changes there were, and how they ended.
        rows_checked: rows of all reads that were compared.
    """

    owner: int
    worlds: list[World] = field(default_factory=lambda: [{}])
    changes: int = 0
    committed: int = 0
    refused: int = 0
    unknown: int = 0
    rows_checked: int = 0
    _open: Mapping[str, Any] | None = None

    def follow(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Go through a log.

        Raises:
            LostError: a read saw none of the possible worlds.
        """
        for line in lines:
            if "begun" in line:
                self._end("unknown")
                self._open, self.changes = line["begun"], self.changes + 1
            elif "ended" in line:
                self._end(line["ended"])
            elif "read" in line:
                self._end("unknown")
                self.saw(line["read"], line["rows"])
        self._end("unknown")

    def saw(self, digest: str, rows: int) -> None:
        """Compare what a reader saw."""
        found = [world for world in self.worlds if digest_of(world) == digest]
        if not found:
            sizes = [len(world) for world in self.worlds]
            msg = f"owner {self.owner}: {rows} rows were read, after {self.changes} changes; {sizes} were possible"
            raise LostError(msg)
        self.worlds = found[:1]
        self.rows_checked += rows

    def _end(self, how: str) -> None:
        change, self._open = self._open, None
        if change is None:
            return
        setattr(self, how, getattr(self, how) + 1)
        after = [changed(self.owner, world, change) for world in self.worlds]
        self.worlds = {"committed": after, "refused": self.worlds, "unknown": [*self.worlds, *after]}[how]
