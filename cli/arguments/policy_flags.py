"""The flags of `plan` and `recluster` that follow from the registered policies and from the budget.

The policies are loaded when the command is called, because they load numpy. Other commands start without it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tblctl.cli.arguments import params
from tblctl.cli.arguments.common import is_typed
from tblctl.cli.command import Command

if TYPE_CHECKING:
    from tblctl.policies import Flag, Option

_OTHERS = ("memory_bytes",)
"""Options of a plan that belong neither to a policy nor to the budget."""


class PlanningCommand(Command):
    """A command that plans: with the flags of the policies that are registered when it is called."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; click calls this whenever it needs them."""
        fixed = super().get_params(ctx)
        place = [param.name for param in fixed].index("memory_bytes")
        return [*fixed[:place], *parameters(), *fixed[place:]]


def parameters() -> tuple[click.Parameter, ...]:
    """Return `--policy`, and a flag for each option of the policies and of the budget."""
    from tblctl import policies

    return _parameters(policies.flags(), policies.budget_options(), tuple(policies.summaries().items()))


def names() -> tuple[str, ...]:
    """Return the options of a plan, by the library's names."""
    return (*(str(param.name) for param in parameters() if param.name != "policy"), *_OTHERS)


def given(words: Mapping[str, Any], *, with_settings: bool) -> dict[str, Any]:
    """Return the options of a plan that have a value; `with_settings` also those that the user's settings give."""
    return {
        name: words[name] for name in names() if words[name] is not None and (with_settings or is_typed(name))
    }


def check(policy: str | None, given: Mapping[str, Any]) -> None:
    """Refuse options that the policy does not have. An unknown policy, or the table's own, is left to the library."""
    from tblctl import policies

    if policy not in policies.summaries():
        return
    for flag in policies.flags():
        if flag.option.name in given and policy not in flag.policies:
            others = " or ".join(flag.policies)
            name = _flag_name(flag.option)
            params.refuse(f"--policy {policy} does not take {name}: leave {name} out, or choose {others}")


@functools.cache
def _parameters(
    flags: tuple[Flag, ...], budget: tuple[Option, ...], summaries: tuple[tuple[str, str], ...]
) -> tuple[click.Parameter, ...]:
    policy = click.Option(["--policy"], metavar="NAME", help=_policy_help(summaries))
    return (policy, *(_parameter(item) for item in (*(flag.option for flag in flags), *budget)))


def _policy_help(summaries: tuple[tuple[str, str], ...]) -> str:
    known = [
        f"{name} (default)" if number == 0 else f"{name}, which {summary}" if summary else name
        for number, (name, summary) in enumerate(summaries)
    ]
    return f"How to choose: {', '.join(known[:-1])}, or {known[-1]}."


def _flag_name(option: Option) -> str:
    return f"--{option.name.replace('_', '-')}"


def _parameter(option: Option) -> click.Option:
    name = _flag_name(option)
    if option.kind is bool:
        return click.Option([f"{name}/--no-{name[2:]}"], default=None, help=option.help)
    if option.unit == "bytes":
        return click.Option([name], metavar="SIZE", callback=params.read_size, help=option.help)
    if option.kind is int:
        least = None if option.least is None else int(option.least)
        most = None if option.most is None else int(option.most)
        return click.Option([name], metavar="N", type=click.IntRange(min=least, max=most), help=option.help)
    return click.Option([name], metavar=option.unit.upper(), type=option.kind, help=option.help)
