"""Options that several policies have: one text for all of them, each with its own default."""

from __future__ import annotations

from typing import Any

from tblctl.selector.option_fields import option


def group_bytes(default: int | None) -> Any:
    """Return the field of `max_group_bytes`; None for no limit."""
    return option(
        default=default,
        unit="bytes",
        help="Most bytes in memory of the blocks that are merged together, such as 2GiB.",
    )


def unclustered(*, default: bool) -> Any:
    """Return the field of `include_unclustered`."""
    return option(
        default=default,
        unit="flag",
        help="Also blocks that are not sorted by the current cluster key (default: with --final).",
    )
