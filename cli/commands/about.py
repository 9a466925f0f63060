"""About the command itself: its versions, and how a shell completes its words."""

from __future__ import annotations

import click

import tblctl
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
