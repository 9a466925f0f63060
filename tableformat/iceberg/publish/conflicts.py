"""Decide what at the head of the branch stands against a replacement. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AppliedDeletes:
    """The delete files that may apply to each of some data files.

    Attributes:
        position, equality: paths of delete files by data file.
    """

    position: Mapping[str, frozenset[str]]
    equality: Mapping[str, frozenset[str]]


def conflicting_inputs(
    inputs: Collection[str],
    entries: Mapping[str, int],
    planned: AppliedDeletes,
    now: AppliedDeletes,
    names: Callable[[str, str], bool],
) -> tuple[str, ...]:
    """Return the inputs that can no longer be replaced, sorted.

    An input conflicts if it left the table, or is in it twice; if a delete file that was applied in the merge is gone,
    since it may have come back in another one; or if a new delete file has rows of it. Equality deletes that are newer
    than the plan do not conflict: outputs have the planned sequence number, so they apply to these as well. (There are
    none in the plan.)

    Args:
        inputs: paths of the merged data files.
        entries: how many live entries of the head name each of them.
        planned: their delete files in the planned snapshot.
        now: those at the head.
        names: whether a position delete file, given first, has rows of a data file. Asked for new delete files only.
    """
    return tuple(
        sorted(
            path
            for path in inputs
            if entries.get(path, 0) != 1
            or planned.position[path] - now.position[path]
            or planned.equality[path]
            or any(names(delete, path) for delete in sorted(now.position[path] - planned.position[path]))
        )
    )


def without_use(deletes: Mapping[str, Collection[str]], is_live: Callable[[str], bool]) -> list[str]:
    """Return the delete files of which no path is a live data file, sorted.

    Args:
        deletes: the paths in the rows of each delete file.
        is_live: whether a data file is live after the commit.
    """
    return sorted(delete for delete, paths in deletes.items() if not any(map(is_live, paths)))


def manifests_to_merge(
    sizes: Sequence[int], groups: Sequence[object], *, target_bytes: int, least_count: int
) -> list[list[int]]:
    """Return which manifests become one, so that their number stays bounded: the places of each set, ascending.

    Nothing is merged before a group has `least_count` manifests below the target size; then all of these are. So each
    entry is copied again once in about `least_count` commits.

    Args:
        sizes: the bytes of each manifest.
        groups: manifests of different groups cannot be merged.
        target_bytes: of a merged manifest.
        least_count: see above.
    """
    small: dict[object, list[int]] = {}
    for place, (size, group) in enumerate(zip(sizes, groups, strict=True)):
        if size < target_bytes:
            small.setdefault(group, []).append(place)
    merged: list[list[int]] = []
    for places in small.values():
        if len(places) < max(least_count, 2):
            continue
        bin_: list[int] = []
        held = 0
        for place in places:
            if bin_ and held + sizes[place] > target_bytes:
                merged.append(bin_)
                bin_, held = [], 0
            bin_.append(place)
            held += sizes[place]
        merged.append(bin_)
    return [places for places in merged if len(places) > 1]
