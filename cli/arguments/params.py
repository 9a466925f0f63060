"""Options that several commands share, and the functions that parse them. Pure: no table is touched."""

from __future__ import annotations

import csv
import functools
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

import tblctl

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_folders(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Let the shell complete the name of a folder."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="dir")]


def complete_files(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="file")]


LOCATION = click.argument("location", metavar="LOC", shell_complete=complete_folders)
NATIVE_LOCATION = click.argument(
    "location",
    metavar="LOC",
    callback=lambda ctx, _param, text: refuse_iceberg(ctx, text),
    shell_complete=complete_folders,
)
"""The location of a table of tblctl's own format."""


def refuse_iceberg(ctx: click.Context, location: str) -> str:
    """Refuse an Iceberg table for a command that only the native format has; a callback for click."""
    from tblctl.iceberg import refuse_iceberg as check

    check(location, f"tblctl {ctx.info_name}")
    return location


def refuse(problem: str) -> NoReturn:
    """Raise a usage error."""
    raise click.UsageError(problem, click.get_current_context(silent=True))


def read_pairs(pairs: tuple[str, ...], *, option: str) -> dict[str, str]:
    """Parse `key=value` words. The error names all words that are malformed or repeat a key."""
    problems = [
        f"{pair!r} is not KEY=VALUE"
        for pair in pairs
        if not pair.partition("=")[0].strip() or "=" not in pair
    ]
    values: dict[str, str] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key.strip() in values:
            problems.append(f"{key.strip()!r} is given twice")
        values[key.strip()] = value.strip()
    if problems:
        raise click.UsageError(f"{option}: {'; '.join(problems)}", click.get_current_context(silent=True))
    return values


def read_settings(_ctx: click.Context, _param: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse `--set key=value` words; a callback for click."""
    return read_pairs(pairs, option="--set")


def read_storage_options(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Parse `--storage-option` words into options of fsspec."""
    from tblctl.storage_text import read_storage_options as read

    try:
        return read(read_pairs(pairs, option="--storage-option"))
    except tblctl.errors.InvalidOptionError as error:
        raise click.UsageError(f"--storage-option: {error}") from error


def cache_folder() -> Path:
    """Return where manifests and footers are kept unless the user says otherwise (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tblctl" / "manifests"


CATALOG_OPTION = click.option(
    "--catalog-option",
    "catalog_options",
    metavar="KEY=VALUE",
    multiple=True,
    callback=lambda _ctx, _param, pairs: read_pairs(pairs, option="--catalog-option"),
    help="A property of the Iceberg catalog, such as uri=sqlite:///c.db, beside PyIceberg's own configuration. "
    "Repeatable.",
)


def opens_any_format(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that find Iceberg tables. The command gets them all as `opening`, arguments of `tblctl.open`."""

    @CATALOG_OPTION
    @click.option("--branch", metavar="NAME", help="The branch of the Iceberg table (default: main).")
    @click.option(
        "--metadata-cache",
        metavar="DIR",
        help="Where manifests of Iceberg tables on remote storage are kept, which never change, and footers of plain "
        "Parquet files; 'none' keeps none "
        "(default: ~/.cache/tblctl/manifests).",
    )
    @click.option(
        "--refine",
        is_flag=True,
        help="Also read the footers of Iceberg's data files whose manifest has no bounds of a column, or inexact "
        "ones.",
    )
    @functools.wraps(function)
    def call(
        *,
        storage_options: dict[str, Any],
        catalog_options: dict[str, str],
        branch: str | None,
        metadata_cache: str | None,
        refine: bool,
        **words: Any,
    ) -> None:
        opening = {
            "storage_options": storage_options,
            "catalog_options": catalog_options,
            "branch": branch,
            "metadata_cache": None if metadata_cache == "none" else metadata_cache or cache_folder(),
            "refine": refine,
        }
        function(opening=opening, **words)

    return call


def refine_advice(location: str, opening: Mapping[str, Any]) -> str:
    """Return what makes more bounds of a table known and exact, a clause; empty for nothing."""
    from tblctl.iceberg import is_iceberg

    return (
        "--refine reads them from the files' footers"
        if is_iceberg(location) and not opening["refine"]
        else ""
    )


def read_as_of(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | str | None:
    """Parse `--as-of`. Digits are a sequence; the library distinguishes timestamps from tags."""
    if text is None:
        return None
    from tblctl.as_of import number_or_text

    return number_or_text(text)


def read_names(_ctx: click.Context, _param: click.Parameter, text: str | None) -> list[str] | None:
    """Parse `a, b, "odd, name"`; None stays None."""
    if text is None:
        return None
    try:
        names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error:  # a line break outside of quotes
        names = []
    if not names or not all(names):
        raise click.BadParameter("expected names separated by commas, such as a,b")
    return names


COLUMNS = click.option(
    "--columns",
    metavar="NAMES",
    callback=read_names,
    help="Only these columns, in this order: a,b or nested a.b; quote odd names.",
)
"""Which columns are read."""


def read_column(text: str, *, option: str) -> tuple[str, str]:
    """Parse `name: type`. The name may be quoted, and may be a path such as a.b."""
    name, colon, kind = text.rpartition('":') if text.startswith('"') else text.partition(":")
    name = name.removeprefix('"') if text.startswith('"') else name
    if not colon or not name.strip() or not kind.strip():
        raise click.UsageError(
            f'{option}: expected "name: type", such as "c: int64", not {text!r}',
            click.get_current_context(silent=True),
        )
    return name.strip(), kind.strip()


SETTINGS = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    callback=read_settings,
    help="A setting of the table, see below. Repeatable.",
)


def read_size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """Parse a size such as `2GiB` into bytes; a callback for click."""
    if text is None:
        return None
    try:
        size_bytes = tblctl.parse_size(text, needs_unit=True)
    except tblctl.errors.InvalidOptionError as error:
        raise click.BadParameter(str(error)) from error
    if size_bytes == 0:
        raise click.BadParameter(f"{text!r} is not above 0; write a size such as 500MB or 2GiB")
    return size_bytes


def size_option(option: str, help: str, *, name: str | None = None) -> Callable[[Any], Any]:  # noqa: A002 (click's word)
    """Return an option that takes a size."""
    names = [option] if name is None else [option, name]
    return click.option(*names, metavar="SIZE", callback=read_size, help=help)


WHERE = click.option("--where", metavar="CONDITION", help="SQL: only rows for which this is true.")
WHERE_BLOCKS = click.option(
    "--where", metavar="CONDITION", help="SQL: only blocks that may hold rows for which this is true."
)
_CLUSTER_BY = (
    "Iceberg: the cluster key, if it is not to be the table's sort order. The first commit keeps it as the table's "
    "property tblctl.cluster-by."
)
CLUSTER_BY_ICEBERG = click.option("--cluster-by", metavar="TERMS", help=_CLUSTER_BY)
CLUSTER_BY_OR_AUTO = click.option(
    "--cluster-by",
    metavar="TERMS",
    help=f"{_CLUSTER_BY} auto, for any table: choose the key by its log of queries, and say why.",
)


def excluded(flag: str, other: str, why: str = "") -> NoReturn:
    """Raise a usage error: two flags exclude each other, maybe with a clause that says why."""
    if other == "--cluster-by":
        why = "the key of an Iceberg table is its property tblctl.cluster-by, or else its sort order: set the property"
    refuse(f"{flag} and {other} exclude each other" + (f": {why}" if why else ""))


def check_namespace(namespace: str | None, below: str | None) -> None:
    """Refuse a namespace where it would be ignored: it is one of a catalog that --all names."""
    if namespace is not None and below is None:
        refuse("--namespace goes with --all iceberg://CATALOG")


PLANS_AT = click.option(
    "--plans-at",
    metavar="URL",
    help="Iceberg: where pending plans are kept, if the table's property tblctl.plans does not say. Not below the "
    "table's location: other engines delete what they do not know there.",
)


METRICS_FILE = click.option(
    "--metrics-file",
    metavar="FILE",
    shell_complete=complete_files,
    help="Also write figures of the table to FILE, as text for Prometheus: depth, overlaps, bytes, the unclustered "
    "share, the last recluster.",
)


def table_words(table: tblctl.Table, **given: str | None) -> str:
    """Return the words that name a table in a command to type next, with the flags that were given, by their names."""
    from tblctl.warehouse import shown

    words = [table.location]
    for name, value in given.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", shown(value) if "://" in value else value]
    return shlex.join(words)


def keyed_by(table: tblctl.Table, cluster_by: str | None) -> dict[str, Any]:
    """Return the argument for a plan or a recluster by another key; refuse one for a table of our own format."""
    if cluster_by is None:
        return {}
    if not isinstance(table, tblctl.IcebergTable | tblctl.ParquetFolder):  # (the latter refuses all of it)
        refuse("--cluster-by is for Iceberg tables; for others: `tblctl alter LOC --cluster-by ...`")
    return {"cluster_by": cluster_by}
