"""About the command itself: its versions, its settings, and how a shell completes its words."""

from __future__ import annotations

import click

import tblctl
from tblctl.cli import config
from tblctl.cli.command import command
from tblctl.cli.show import page, render

PACKAGES = (
    "pyarrow",
    "numpy",
    "fsspec",
    "s3fs",
    "pyiceberg",
    "sqlglot",
    "pyspark",
    "matplotlib",
    "click",
    "rich",
)
"""The libraries whose version decides how tblctl behaves."""

SHELLS = ("bash", "zsh", "fish")


@command(
    "version",
    example="tblctl version --json",
    json_shape="object: tblctl, python, platform, packages {name: version, or null if it is not installed}",
    of_tables=False,
)
def version(*, as_json: bool) -> None:
    """Print the versions of tblctl and of what it uses.

    A report of a fault is easier to follow with them.
    """
    import platform

    found = {
        "tblctl": tblctl.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    packages = {name: package_version(name) for name in PACKAGES}
    if as_json:
        render.print_json({**found, "packages": packages})
        return
    page.put_fields({**found, **{name: text or "(not installed)" for name, text in packages.items()}})


def package_version(name: str) -> str | None:
    """Return the version of a package without loading it; None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@command(
    "config",
    example="""
    tblctl config show
    tblctl config show --profile prod --json""",
    json_shape="""
    object: file, is_there, profile (null: none), profiles [name], settings {name: {value, origin}},
    storage {scheme: {option: value}}, catalogs {name: {property: value}}; secrets are env:NAME, file:PATH or ***""",
    of_tables=False,
)
@click.argument("action", metavar="show", type=click.Choice(["show"]))
def config_show(*, action: str, as_json: bool) -> None:
    """Show the user's settings, without secrets.

    They come from ~/.config/tblctl.toml and from variables TBLCTL_... Profiles set defaults of options, and options of
    storages and catalogs. Flags go before variables, these before the profile.
    """
    del action
    found = config.current()
    assert found is not None
    storage = {scheme: config.blotted(options) for scheme, options in found.storage.items()}
    catalogs = {name: config.blotted(options) for name, options in found.catalogs.items()}
    settings = config.blotted(found.settings)
    if as_json:
        render.print_json(
            {
                "file": str(found.file),
                "is_there": found.file.exists(),
                "profile": found.name,
                "profiles": list(found.names),
                "settings": {
                    name: {"value": value, "origin": found.origins[name]} for name, value in settings.items()
                },
                "storage": storage,
                "catalogs": catalogs,
            }
        )
        return
    page.put_fields(
        {
            "file": f"{found.file}{'' if found.file.exists() else ' (missing)'}",
            "profile": found.name or "(none)",
            "profiles": ", ".join(found.names) or "(none)",
            **{name: f"{value} (from {found.origins[name]})" for name, value in settings.items()},
            **{
                f"{kind} {name}": render.json_text(options)
                for kind, parts in (("storage", storage), ("catalog", catalogs))
                for name, options in parts.items()
            },
        }
    )


@command(
    "completion",
    example="""
    tblctl completion bash >> ~/.bashrc
    tblctl completion zsh  >> ~/.zshrc
    tblctl completion fish > ~/.config/fish/completions/tblctl.fish""",
    json_shape="",
    of_tables=False,
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(*, shell: str) -> None:
    """Print what makes a shell complete commands and options.

    SHELL is bash (4.4 or newer), zsh or fish.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    group = click.get_current_context().find_root().command
    # The class of bash would ask the bash that is found here for its version: the script may be for another machine.
    click.echo(ShellComplete.source(kind(group, {}, "tblctl", "_TBLCTL_COMPLETE")))
