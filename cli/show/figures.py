"""Print how well a table is clustered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tblctl
from tblctl.cli.show import page, render
from tblctl.cli.show.flags import located

BAR_WIDTH = 40
LEAST_KEY_WIDTH = 12
MUCH_OUTSIDE = 0.05  # of the rows: with less, the outer ranges are hardly larger than others
BESIDE_KEYS = 52  # columns that a table of ranges needs beside the two keys

INFO_JSON = """
object: cluster_by_keys [term], total_block_count, constant_block_count, unclustered_block_count,
unknown_block_count, average_overlaps, average_depth, block_depth_histogram {label: blocks},
depth {p50, p95, p99, max}, levels {level: the same figures of its blocks alone}, rows, bytes,
inexact_block_count (their bounds may be wider than their keys), unclustered_share (of the blocks, from 0 to 1),
worst [{min [value], max [value], depth, blocks, rows, bytes}] (the deepest ranges of keys); averages and
percentiles are null if there are blocks, but none in the order of the key; of a zorder or hilbert key also
outside {column: share of the rows in blocks that lie beyond the boundaries of the curve}; of these, and in
`tblctl depth` of any key of 2 to 4 columns, boxes {columns, total_block_count, unknown_block_count,
depth {mean, p99, max, sampled, standard_error} (the last two null if all blocks are counted), selectivity,
reads [{columns, share, best}]} (the shares of the blocks that ranges on these columns read, now and at best);
where other sorts are live beside the key, live_sorts [the same object without boxes] (of the blocks in each
one's order alone)"""


def put_info(found: tblctl.ClusteringInfo, advice: str = "", *, is_iceberg: bool = False) -> None:
    """Print the figures, the histogram, the levels if there are several, the boxes and the worst ranges.

    `advice` is what makes more bounds known and exact, a clause; empty for nothing.
    """
    put_headline(found, advice, is_iceberg=is_iceberg)
    put_histogram(found)
    if len(found.levels) > 1:
        put_levels(found)
    if found.live_sorts:
        put_live_sorts(found.live_sorts)
    if found.boxes is not None:
        put_boxes(found.boxes)
    if found.worst:
        put_worst(found.worst)


def put_headline(found: tblctl.ClusteringInfo, advice: str = "", *, is_iceberg: bool = False) -> None:
    """Print the figures of the whole table."""
    apart = [
        f"{count:,} {word}"
        for count, word in (
            (found.constant_block_count, "constant"),
            (found.unclustered_block_count, "unclustered"),
            (found.unknown_block_count, "of unknown range"),
            (found.inexact_block_count, "of inexact range"),
        )
        if count
    ]
    depth = found.depth
    spread = ", ".join(f"{name} {figure:,}" for name, figure in depth.to_dict().items() if figure is not None)
    known = found.average_depth is not None
    average = average_depth(found, 4, " on average")
    page.put_fields(
        {
            "cluster key": ", ".join(found.cluster_by_keys),
            "rows": f"{found.rows:,}",
            "blocks": f"{found.total_block_count:,}" + (f" ({', '.join(apart)})" if apart else ""),
            "size": render.size(found.bytes),
            "overlaps": f"{render.average(found.average_overlaps)} on average" if known else "?",
            "depth": (
                f"{average}; {spread}" if known else average,
                page.depth_style(None if found.is_mostly_unclustered else found.average_depth),
            ),
        }
    )
    for note in doubts(found.unknown_block_count, found.inexact_block_count, advice):
        page.put((note, page.RULE))
    for note in drift(found.outside, is_iceberg=is_iceberg):
        page.put((note, page.RULE))
    if found.unclustered_block_count:
        page.put((unclustered(found), page.RULE))


def unclustered(found: tblctl.ClusteringInfo) -> str:
    """Return a note on blocks that are not in the order of the key: in that of another live sort, or in none."""
    count, every = found.unclustered_block_count, found.total_block_count
    elsewhere = sum(item.total_block_count for item in found.live_sorts)
    verb = "is" if count == 1 else "are"
    if elsewhere >= count:
        return (
            f"({count:,} of {render.count(every, 'block')} {verb} in the order of a live sort beside the key: no "
            "depth of the key counts them; see below)"
        )
    return located(
        f"({count:,} of {render.count(every, 'block')} {verb} not in the key's order, so no depth counts "
        f"{'it' if count == 1 else 'them'}: run `tblctl recluster LOC --final`)"
    )


def drift(outside: Sequence[tuple[str, float]], *, is_iceberg: bool) -> list[str]:
    """Return a note on the columns of a curve that have many rows beyond its boundaries."""
    parts = [f"{share:.0%} in {render.printable(name)}" for name, share in outside if share >= MUCH_OUTSIDE]
    if not parts:
        return []
    what = f"rows beyond the boundaries of the curve: {', '.join(parts)}"
    renew = "recluster LOC --cluster-by same --policy full" if is_iceberg else "alter LOC --cluster-by same"
    return [located(f"({what}; there they are not told apart. New boundaries: `tblctl {renew}`)")]


def doubts(unknown: int, inexact: int, advice: str) -> list[str]:
    """Return a note on blocks of unknown, and one on those of inexact bounds, the last with the advice."""
    found = []
    if unknown:
        blocks = render.count(unknown, "block")
        found.append(f"statistics do not bound the key of {blocks}: no depth counts them")
    if inexact:
        blocks = render.count(inexact, "block")
        found.append(f"the bounds of {blocks} may be wider than the keys: the true depth may be less")
    if found and advice:
        found[-1] += f"; {advice}"
    return [f"({text})" for text in found]


def average_depth(found: tblctl.ClusteringInfo, digits: int, suffix: str = "") -> str:
    """Return the average depth, with the number of unclustered blocks that it leaves out; `?` if it is unknown."""
    if found.average_depth is None:
        return "?"
    left_out = found.unclustered_block_count
    mark = f" ({left_out:,} unclustered)" if left_out else ""
    return f"{render.average(found.average_depth, digits)}{suffix}{mark}"


def put_histogram(found: tblctl.ClusteringInfo) -> None:
    """Print a bar for each bucket of depths that has blocks."""
    most = max((count for *_, count in found.depth_buckets), default=0)
    if not most:
        return
    page.put()
    rows = [
        (
            f"{deepest:,}" if least == deepest else f"{least:,}-{deepest:,}",
            f"{count:,}",
            "█" * max(1, round(BAR_WIDTH * count / most)),
        )
        for least, deepest, count in found.depth_buckets
    ]
    styles = [page.depth_style(deepest) for _, deepest, _ in found.depth_buckets]
    page.put_table(("depth", "blocks", ""), rows, right=(0, 1), styles=styles)


def put_live_sorts(live_sorts: Sequence[tblctl.ClusteringInfo]) -> None:
    """Print a line for every live sort beside the key: of the blocks in its order."""
    page.put()
    rows = [
        (
            render.printable(", ".join(found.cluster_by_keys)),
            f"{found.total_block_count:,}",
            render.average(found.average_overlaps),
            render.average(found.average_depth),
        )
        for found in live_sorts
    ]
    page.put_table(("live sort beside the key", "blocks", "overlaps", "depth"), rows, right=(1, 2, 3))


def put_levels(found: tblctl.ClusteringInfo) -> None:
    """Print a line for every level, each measured alone."""
    page.put()
    rows = [
        (
            level,
            f"{figures.total_block_count:,}",
            f"{figures.rows:,}",
            render.size(figures.bytes),
            render.average(figures.average_overlaps),
            render.average(figures.average_depth),
            *("?" if figure is None else f"{figure:,}" for figure in figures.depth.to_dict().values()),
        )
        for level, figures in found.levels
    ]
    names = ("level", "blocks", "rows", "size", "overlaps", "depth", "p50", "p95", "p99", "max")
    page.put_table(names, rows, right=range(len(names)))


def put_boxes(boxes: tblctl.BoxFigures) -> None:
    """Print how deep boxes lie, and a line for each column: which share of the blocks a range of it reads."""
    page.put()
    columns, depth = ", ".join(boxes.columns), depth_of_boxes(boxes.depth)
    page.put((f"boxes of {render.printable(columns)}: {depth}", page.HEADING))
    if boxes.unknown_block_count:
        blocks = render.count(boxes.unknown_block_count, "block")
        page.put((f"(statistics do not bound these columns of {blocks}: no figure counts them)", page.RULE))
    page.put()
    rows = [(", ".join(read.columns), percent(read.share), percent(read.best)) for read in boxes.reads]
    names = (f"a {percent(boxes.selectivity, 0)} range of", "blocks read", "at best")
    page.put_table(names, rows, right=(1, 2))


def depth_of_boxes(depth: tblctl.BoxDepth) -> str:
    """Return box depths in one line, with the error if they were sampled."""
    if depth.mean is None:
        return "depth unknown"
    text = f"depth {render.average(depth.mean)} on average, p99 {depth.p99:,}, max {depth.max:,}"
    if depth.sampled is None:
        return text
    return f"{text} ({depth.sampled:,} samples; standard error of the average {render.average(depth.standard_error)})"


def percent(share: float | None, digits: int = 2) -> str:
    """Return a share as a percentage; `?` if it is unknown."""
    return "?" if share is None else f"{100 * share:.{digits}f} %"


def put_worst(worst: Sequence[tblctl.DeepRange]) -> None:
    """Print a line for each range, with the size of the blocks that would have to be rewritten to reduce its depth."""
    page.put()
    width = render.terminal_width()
    partitioned = any(item.partition is not None for item in worst)
    columns = 3 if partitioned else 2
    limit = render.CELL_WIDTH if width is None else max(LEAST_KEY_WIDTH, (width - BESIDE_KEYS) // columns)
    rows = [
        (
            number,
            *((partition_text(item.partition, limit if width else None),) if partitioned else ()),
            key_text(item.min, limit if width else None),
            key_text(item.max, limit if width else None),
            f"{item.depth:,}",
            f"{item.blocks:,}",
            f"{item.rows:,}",
            render.size(item.bytes),
        )
        for number, item in enumerate(worst, 1)
    ]
    inside = ("partition",) if partitioned else ()
    names = ("worst", *inside, "from key", "to key", "depth", "blocks", "rows", "to rewrite")
    page.put_table(names, rows, right=(0, *range(len(names) - 4, len(names))))


def partition_text(partition: str | None, limit: int | None) -> str:
    """Return a partition, cut to `limit` characters; a word for files without one."""
    text = partition or "(none)"
    return text if limit is None else render.shorten(text, limit)


def put_comparison(versions: Sequence[tblctl.MeasuredVersion]) -> None:
    """Print the figures of versions side by side."""
    page.put()
    infos = [version.info for version in versions]
    rows = [
        ("rows", *(f"{info.rows:,}" for info in infos)),
        ("blocks", *(f"{info.total_block_count:,}" for info in infos)),
        ("constant", *(f"{info.constant_block_count:,}" for info in infos)),
        ("unclustered", *(f"{info.unclustered_block_count:,}" for info in infos)),
        ("of unknown range", *(f"{info.unknown_block_count:,}" for info in infos)),
        ("of inexact range", *(f"{info.inexact_block_count:,}" for info in infos)),
        ("size", *(render.size(info.bytes) for info in infos)),
        ("overlaps", *(render.average(info.average_overlaps) for info in infos)),
        ("depth", *(render.average(info.average_depth) for info in infos)),
        *(
            (f"depth {name}", *(render.average(info.depth.to_dict()[name], 0) for info in infos))
            for name in ("p50", "p95", "p99", "max")
        ),
        *compared_boxes([info.boxes for info in infos if info.boxes is not None]),
    ]
    names = ("compared", *(f"snapshot {version.snapshot}" for version in versions))
    optional = {"constant", "unclustered", "of unknown range", "of inexact range"}
    shown = [row for row in rows if row[0] not in optional or any(value != "0" for value in row[1:])]
    page.put_table(names, shown, right=range(1, len(names)))


def compared_boxes(boxes: Sequence[tblctl.BoxFigures]) -> list[tuple[str, ...]]:
    """Return the lines that compare boxes; none for keys without boxes."""
    if not boxes:
        return []
    selectivity = percent(boxes[0].selectivity, 0)
    return [
        ("box depth", *(render.average(item.depth.mean) for item in boxes)),
        ("box depth p99", *(render.average(item.depth.p99, 0) for item in boxes)),
        ("box depth max", *(render.average(item.depth.max, 0) for item in boxes)),
        *(
            (
                f"{selectivity} of {', '.join(reads[0].columns)} reads",
                *(percent(read.share) for read in reads),
            )
            for reads in zip(*(item.reads for item in boxes), strict=True)
        ),
    ]


def key_text(key: Sequence[Any], width: int | None) -> str:
    """Return a key as people read it, cut to `width`."""
    text = ", ".join(render.cell(value) for value in key)
    return text if width is None else render.shorten(text, width)
