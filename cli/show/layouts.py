"""Print which layouts a table could have, what conditions would read by them, and how to give it the first one."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import tblctl
from tblctl.cli.show import page, render

MOST_SHOWN = 12
LEAST_GAIN = 0.95
"""A layout is recommended if conditions read at most this share of what they read now."""

_PLAIN = re.compile(r'[^\s,()"]+')


def with_file(found: tblctl.Suggestion, path: str | None) -> tblctl.Suggestion:
    """Return the ranking with the path of the file of conditions in the keys of trees. '-' is no file."""
    if found.layouts is None or path in {None, "-"}:
        return found
    assert path is not None
    quoted = '"' + path.replace('"', '""') + '"'
    name = f"file:{path if _PLAIN.fullmatch(path) else quoted}"
    named = [
        replace(item, key=item.key.replace("file:FILE", name, 1)) if item.kind == "qdtree" else item
        for item in found.layouts.candidates
    ]
    left_out = found.layouts.left_out.replace("file:FILE", name)
    return replace(found, layouts=replace(found.layouts, candidates=tuple(named), left_out=left_out))


def put_layouts(found: tblctl.Suggestion, location: str, *, is_iceberg: bool) -> None:
    """Print the ranking and the next command."""
    layouts = found.layouts
    assert layouts is not None
    page.put_fields(
        {
            "snapshot": f"{found.snapshot}",
            "blocks": f"{found.total_block_count:,}; {layouts.block_count:,} if written anew",
            "cluster key": ", ".join(found.cluster_by) or "(none)",
            "conditions": f"{len(found.predicates):,}"
            + (" from the log of queries" if found.queries else ""),
            "sample": f"{layouts.row_count:,} rows, of {layouts.row_group_count:,} row groups",
        }
    )
    page.put()
    rows = [
        (
            number,
            item.key,
            f"{layouts.read_share_now:.1%}",
            f"{item.average_read_share:.1%}",
            f"± {item.average_read_share * item.error:.1%}",
        )
        for number, item in enumerate(layouts.candidates[:MOST_SHOWN], 1)
    ]
    names = ("rank", "key", "reads now", "would read", "error")
    page.put_table(names, rows, right=(0, 2, 3, 4), least={1: 16}, dropped=(2,))
    page.put(("(shares of the blocks that a condition reads on average)", page.RULE))
    for note in notes(layouts):
        page.put((note, page.RULE))
    page.put()
    put_next(found, location, is_iceberg=is_iceberg)


def notes(layouts: tblctl.Layouts) -> list[str]:
    """Return what else there is to say of a ranking."""
    found = []
    if (more := len(layouts.candidates) - MOST_SHOWN) > 0:
        found.append(f"({more:,} more: --json)")
    if layouts.block_count == 1:
        found.append("(all rows fit into one block: no layout lets a condition skip any)")
    if layouts.part_count < layouts.block_count:
        found.append(
            f"(estimates are for {layouts.part_count:,} blocks: the sample is too small for more, which read less)"
        )
    if layouts.left_out:
        found.append(f"(no tree: {layouts.left_out})")
    return found


def put_next(found: tblctl.Suggestion, location: str, *, is_iceberg: bool) -> None:
    """Print the commands that give the table the first layout, or why there are none."""
    layouts = found.layouts
    assert layouts is not None
    best = layouts.candidates[0]
    is_key = bool(found.cluster_by) and best.key == ", ".join(found.cluster_by)
    if best.average_read_share > LEAST_GAIN * layouts.read_share_now:
        page.put("no layout would make these conditions read much less than now")
        return
    page.put(
        "the table has this cluster key; next, to bring all blocks into its order:" if is_key else "next:"
    )
    place, key = shlex.quote(location), shlex.quote(best.key)
    if is_iceberg and not is_key:
        commands = [f"tblctl recluster {place} --cluster-by {key} --final"]
    else:
        altered = [] if is_key else [f"tblctl alter {place} --cluster-by {key}"]
        commands = [*altered, f"tblctl recluster {place} --final"]
    for command in commands:
        page.put(f"  {render.printable(command)}")
