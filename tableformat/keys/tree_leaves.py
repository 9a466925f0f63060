"""What the leaves of a tree tell of the rows in them: which conditions hold for none, some or all of these.

A block in the order of a tree knows its first and last leaf. Its rows lie in these and those between, so its outcomes
are those of all these leaves. This is more than bounds can say: that a country is none of a list, or has a prefix.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tblctl.tableformat.keys.kinds import has_key_columns
from tblctl.tableformat.keys.linear import needed_leaf
from tblctl.tableformat.keys.tree_keys import test_of_cut
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.tree import LEAF, TREE, Tree, tree_of
from tblctl.tableformat.predicate.implied import Implied, Known
from tblctl.tableformat.predicate.nodes import Node, tests_of
from tblctl.tableformat.predicate.outcomes import FALSE, NULL, TRUE, Sets

Integers = npt.NDArray[np.int64]


class TreeLeaves:
    """The leaves of one tree, as tests of their rows, for a condition.

    Raises:
        pa.ArrowInvalid: at construction: a value of the tree does not fit its column's present type.
    """

    def __init__(self, sort: Sort, condition: Node, schema: Schema) -> None:
        tree = tree_of(sort.parameters)
        tests = [test_of_cut(cut, needed_leaf(cut.column_id, sort, schema)) for cut in tree.cuts]
        self.sort_id = sort.id
        self.leaf_count = tree.leaf_count
        self._implied = Implied(tests, [condition])
        self.known = _known_of_leaves(tree, self._implied)

    def outcomes(self, part: Node, first: Integers, last: Integers) -> Sets:
        """Return the outcomes that the condition, or a part of it, may have in leaves `first` to `last` of n blocks."""
        sets = self._implied.outcomes(part, self.known)
        found = np.zeros(len(first), np.uint8)
        for bit in (TRUE, FALSE, NULL):
            before = np.concatenate(([0], np.cumsum((sets & bit) != 0)))
            found |= (before[last + 1] > before[first]) * np.uint8(bit)
        return found


def leaves_for(sorts: Iterable[Sort], node: Node, schema: Schema) -> list[TreeLeaves]:
    """Return the leaves of those trees that test a column of a condition."""
    ids = {test.leaf.id for test in tests_of(node)}
    found = []
    for sort in sorts:
        if (
            sort.kind == TREE
            and ids & {term.column_id for term in sort.terms}
            and has_key_columns(sort, schema)
        ):
            try:
                leaves = TreeLeaves(sort, node, schema)
            except (
                pa.ArrowInvalid
            ):  # a column was widened to a type that lacks a value: blocks have their bounds
                continue
            found += [leaves] if leaves.known else []
    return found


def _known_of_leaves(tree: Tree, implied: Implied) -> Known:
    """Return what is known of the leaves of a tree, from left to right."""
    todo: list[tuple[int, Known]] = [(0, implied.nothing())]
    found: list[Known] = []
    while todo:
        node, known = todo.pop()
        cut = tree.nodes[node]
        if cut == LEAF:
            found.append(known)
        else:
            todo.append((tree.rights[node], implied.narrowed(known, cut, holds=False)))
            todo.append((node + 1, implied.narrowed(known, cut, holds=True)))
    return {column_id: np.concatenate([known[column_id] for known in found]) for column_id in found[0]}
