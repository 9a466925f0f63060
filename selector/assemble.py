"""From block numbers to the values of a plan: groups with their figures, rejections, the note."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tblctl.selector.candidates import Context, Integers, Mask, joined
from tblctl.selector.draft import MOST_LEVEL, Draft, finished, too_high
from tblctl.selector.options import DEFAULT_GROUP_BYTES
from tblctl.selector.plan import LIMITS, Group, Plan, Rejection
from tblctl.selector.predict import Forecast, forecast


def assemble(
    context: Context, *, policy: str, drafts: Sequence[Draft], rejected: Sequence[Rejection]
) -> Plan:
    """Return the plan of some drafts, which share no block."""
    predicted = forecast(context.blocks, drafts, context.table_options)
    return Plan(
        table_id=context.table_id,
        snapshot=context.snapshot,
        policy=policy,
        groups=tuple(_groups(context, drafts, predicted)),
        rejected=tuple(rejected),
        predicted=predicted.prediction,
        note=_note(context, drafts, rejected),
        options=context.options,
    )


def _groups(context: Context, drafts: Sequence[Draft], predicted: Forecast) -> list[Group]:
    blocks = context.blocks
    names = blocks.names(joined(draft.blocks for draft in drafts))
    groups, start = [], 0
    for number, draft in enumerate(drafts):
        chosen = draft.blocks
        groups.append(
            Group(
                number=number,
                blocks=tuple(names[start : start + chosen.size]),
                sort_id=context.sort_id,
                output_level=draft.output_level,
                why=draft.why,
                rows=int(blocks.row_count[chosen].sum()),
                size_bytes=int(blocks.size_bytes[chosen].sum()),
                decoded_bytes=int(blocks.decoded_bytes[chosen].sum()),
                same_key_rows=predicted.group_same_key_rows[number],
                depth_before=predicted.group_depth_before[number],
                depth_after=predicted.group_depth_after[number],
            )
        )
        start += chosen.size
    return groups


def rejection(
    context: Context,
    rule: str,
    chosen: Integers | Mask,
    why: str,
    *,
    level: int | None = None,
    average_selection_depth: float | None = None,
    threshold: float | None = None,
) -> Rejection:
    """Return why some blocks were not selected."""
    sizes = context.blocks.size_bytes[chosen]
    return Rejection(
        rule=rule,
        level=level,
        blocks=sizes.size,
        size_bytes=int(sizes.sum()),
        why=why,
        average_selection_depth=average_selection_depth,
        threshold=threshold,
    )


def left_out(context: Context, *, include_unclustered: bool) -> list[Rejection]:
    """Return what no policy looks at, by reason; each block under its first one."""
    blocks = context.blocks
    everywhere = np.ones(len(blocks), np.bool_)
    allowed = everywhere if context.restricted is None else context.restricted
    failed = ~everywhere if context.failed is None else context.failed
    ignored = everywhere & (blocks.unclustered & (not include_unclustered))
    reasons = (
        ("where", ~allowed, "cannot hold rows that the condition asks for"),
        ("failed", failed, "could not be merged in an earlier round"),
        (
            "unclustered",
            ignored,
            "not sorted by the current key: select them with --include-unclustered or --final",
        ),
        ("constant", finished(context), "one key only, and full: clustering again cannot help"),
        ("max_level", too_high(blocks), f"merged {MOST_LEVEL} times already: left alone"),
    )
    found, rest = [], everywhere.copy()
    for rule, mask, why in reasons:
        if (mask & rest).any():
            found.append(rejection(context, rule, mask & rest, why))
            rest &= ~mask
    return found


def _how_far(context: Context, rejected: Sequence[Rejection]) -> str:
    """Return which limits to raise, and, where that says enough, to what: two blocks of average size."""
    blocks = context.blocks
    typical = {
        "max_group_bytes": (blocks.decoded_bytes, "two blocks of average size take {} bytes of memory"),
        "max_bytes": (blocks.size_bytes, "two blocks of average size are {} bytes of files"),
        "max_blocks": (np.ones(1), "a group is {} blocks at least"),
    }
    found = []
    for rule in LIMITS:
        if any(item.rule == rule for item in rejected):
            limit = getattr(context.options, rule) or DEFAULT_GROUP_BYTES
            sizes, text = typical[rule]
            two = round(2 * float(sizes.mean()))
            found.append(f"Raise {rule}, now {limit}" + (f": {text.format(two)}" if two > limit else ""))
    return "; ".join(found)


def _note(context: Context, drafts: Sequence[Draft], rejected: Sequence[Rejection]) -> str:
    """Return one sentence: what is to be done, or why nothing is."""
    if drafts:
        chosen = joined(draft.blocks for draft in drafts)
        groups = f"{len(drafts)} group" + ("s" if len(drafts) > 1 else "")
        return f"{groups} of {chosen.size} blocks, {int(context.blocks.size_bytes[chosen].sum())} bytes"
    if not len(context.blocks):
        return "nothing to do: the table has no blocks"
    reasons = "; ".join(
        item.why if item.level is not None else f"{item.blocks} blocks: {item.why}" for item in rejected
    )
    measured = any(item.rule == "well_clustered" for item in rejected)
    if any(item.rule in LIMITS for item in rejected):
        return f"nothing to do within the limits: {reasons}. {_how_far(context, rejected)}"
    hint = (
        " (selection depth: blocks that share one key at their ends only do not overlap)" if measured else ""
    )
    return f"nothing to do: {reasons}{hint}"
