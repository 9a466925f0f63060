"""Options for where merges run and how they are committed, for every command that reclusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread
from typing import Any

import click

import tblctl
from tblctl.cli.arguments import params
from tblctl.cli.arguments.common import is_typed

NAMES = ("engine", "master", "remote", "spark_conf", "on_conflict", "commit_every")


def read_commit_every(text: str | None) -> str | None:
    """Check that the text is a number of groups or a time."""
    if text is None:
        return None
    try:
        is_count = text.strip().isascii() and text.strip().isdigit()
        amount = int(text) if is_count else tblctl.parse_duration(text)
    except (ValueError, tblctl.errors.InvalidOptionError):
        amount = 0
    if amount <= 0:
        params.refuse(
            f"--commit-every is {text!r}, expected a number of groups such as 8, or a time such as 60s or 5m"
        )
    return text


OPTIONS = (
    click.option(
        "--engine",
        type=click.Choice(["auto", "local", "spark"]),
        default="auto",
        show_default=True,
        help="Where to merge: in this process (local), on Spark, or (auto) on Spark if --master or --remote is given.",
    ),
    click.option(
        "--master",
        metavar="MASTER",
        help='Start Spark with this master, such as "local[2]" or spark://host:7077.',
    ),
    click.option("--remote", metavar="URL", help="Use this Spark Connect server, such as sc://host:15002."),
    click.option(
        "--spark-conf",
        metavar="KEY=VALUE",
        multiple=True,
        callback=lambda _ctx, _param, pairs: params.read_pairs(pairs, option="--spark-conf"),
        help="A setting of the Spark session. Repeatable.",
    ),
    click.option(
        "--on-conflict",
        type=click.Choice(["salvage", "fail"]),
        default="salvage",
        show_default=True,
        help="If another writer has replaced blocks: commit the other groups (salvage), or nothing more (fail).",
    ),
    click.option(
        "--commit-every",
        metavar="N|TIME",
        callback=lambda _ctx, _param, text: read_commit_every(text),
        help="Commit after every N merged groups (8), or at intervals (60s, 5m), so that a killed run loses less "
        "(default: one commit a round, or beside another writer one a group).",
    ),
)


def engine_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of this module to a command. `EngineChoice.of` reads them."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """The values of the options of this module."""

    engine: str
    master: str | None
    remote: str | None
    spark_conf: dict[str, str]
    on_conflict: str
    commit_every: str | None

    @classmethod
    def of(cls, words: dict[str, Any]) -> EngineChoice:
        """Take the options of this module out of `words`. Refuse options that contradict each other."""
        choice = _without_settings(cls(**{name: words.pop(name) for name in NAMES}))
        if choice.master is not None and choice.remote is not None:
            params.refuse(
                "--master and --remote exclude each other: the first starts Spark, the second connects to a server"
            )
        asked = [
            option
            for option, value in (
                ("--master", choice.master),
                ("--remote", choice.remote),
                ("--spark-conf", choice.spark_conf),
            )
            if value
        ]
        if choice.engine == "local" and asked:
            params.refuse(f"--engine local runs without Spark, but {asked[0]} is for Spark")
        if asked == ["--spark-conf"] and choice.engine == "auto":
            params.refuse("--spark-conf needs a session to set: add --engine spark, --master or --remote")
        return choice

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for `Table.recluster`. Spark starts only if there is something to merge.

        Raises:
            InvalidOptionError: the master or the server's address is malformed.
        """
        spark: Callable[[], AbstractContextManager[Any]] | None = None
        if self.engine == "spark" or self.master is not None or self.remote is not None:
            spark = partial(
                tblctl.spark_session, master=self.master, remote=self.remote, conf=self.spark_conf
            )
            spark()  # refuses wrong words; nothing is started before it is entered
            if click.get_current_context().obj is not None:  # the process is the command's alone
                spark = partial(_to_the_end, spark)
        return {
            "engine": self.engine,
            "spark": spark,
            "on_conflict": self.on_conflict,
            "commit_every": self.commit_every,
        }


def _without_settings(choice: EngineChoice) -> EngineChoice:
    """Drop what the user's settings say of the engine where what was typed says otherwise."""
    if choice.remote is not None or (choice.engine == "local" and is_typed("engine")):
        choice = replace(choice, master=choice.master if is_typed("master") else None)
    if (choice.master is not None and is_typed("master")) or choice.remote is not None:
        choice = replace(choice, engine=choice.engine if is_typed("engine") else "auto")
    if choice.engine == "local" and not is_typed("master"):
        choice = replace(choice, master=None)
    return choice


@contextmanager
def _to_the_end(opened: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
    """Open a session that ends with this process.

    Once its JVM part has stopped, nothing of it is waited for: pyspark listens for counters from there for up to
    another second.
    """
    session = opened()
    with_session = session.__enter__()
    try:
        yield with_session
    finally:
        ending = Thread(target=session.__exit__, args=(None, None, None), daemon=True)
        ending.start()
        while ending.is_alive() and getattr(with_session, "_sc", None) and with_session._sc._jsc is not None:  # noqa: SLF001
            ending.join(_LOOK_SECONDS)
        if not getattr(with_session, "_sc", None):  # Connect's
            ending.join()


_LOOK_SECONDS = 0.02
