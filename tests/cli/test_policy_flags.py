"""Options of policies never meet what the command, or the library's methods, call something else."""

from __future__ import annotations

import inspect

import click

from tblctl.cli.arguments import policy_flags
from tblctl.cli.main import COMMANDS
from tblctl.clustered import ClusteredTable
from tblctl.selector.option_fields import RESERVED_NAMES

PLANNING = [command for command in COMMANDS if command.name in {"plan", "recluster"}]


def test_every_name_of_the_commands_and_the_methods_is_reserved() -> None:
    from_policies = {param.name for param in policy_flags.parameters()} - {"policy"}
    taken = {"help", "policy"}
    params = [param for command in PLANNING for param in command.get_params(click.Context(command))]
    for param in params:
        if param.name not in from_policies:
            words = [*param.opts, *param.secondary_opts, str(param.name).removeprefix("_click_default_")]
            taken |= {word.lstrip("-").replace("-", "_") for word in words}
    for method in (ClusteredTable.plan, ClusteredTable.recluster):
        taken |= set(inspect.signature(method).parameters) - {"self"}
    assert taken == RESERVED_NAMES


def test_no_two_flags_are_alike() -> None:
    for command in PLANNING:
        found = [word for param in command.get_params(click.Context(command)) for word in param.opts]
        assert len(found) == len(set(found))
