"""Print the policies that may be named."""

from __future__ import annotations

from tblctl.cli.show import render

POLICIES_JSON = """
object: policies [{name, summary, source (tblctl, PACKAGE VERSION, program, or package if it cannot be used), options
        [{name, type, default, unit, least, most, help}], is_default, problem (why it cannot be used, or null)}]"""


def print_policies(*, as_json: bool) -> None:
    """Print what each policy does, where it comes from, and the flags that only some take."""
    from tblctl import policies  # numpy comes with them, and help of other commands goes without

    found = policies.listed()
    if as_json:
        render.print_json({"policies": [policy.to_dict() for policy in found]})
        return
    rows = [
        (
            policy.name + (" (default)" if policy.is_default else ""),
            policy.source,
            policy.problem or policy.summary,
            " ".join(f"--{option.name.replace('_', '-')}" for option in policy.options),
        )
        for policy in found
    ]
    render.print_table(("policy", "from", "what it does", "options"), rows, text=(2, 3))
