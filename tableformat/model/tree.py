"""The parameters of qd-tree sorts: a tree of tests of single columns, and the key as people write it.

An inner node has a *cut*: rows for which its test is true go left, all others right, also those for which it is NULL.
Leaves are numbered from left to right, and a row's key is the number of its leaf. Source: Yang et al., Qd-tree:
Learning Data Layouts for Big Data Analytics, SIGMOD 2020.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import InvalidSchemaError, UnsupportedTypeError
from tblctl.tableformat.model.schema.text_scanner import TextScanner
from tblctl.tableformat.model.schema.types import (
    is_any_binary,
    is_any_string,
    is_orderable,
    statistic_type,
    type_from_text,
    type_to_text,
)
from tblctl.tableformat.model.values import value_to_json, values_from_json

TREE = "qdtree"
WORKLOAD = "workload"
"""The kind of sorts whose rows lie by the leaves of a tree."""

LESS, LESS_EQUAL, IN, PREFIX, NULL = "<", "<=", "in", "prefix", "null"
"""The tests of cuts. All but NULL are NULL for a null; all are false for NaN."""

MOST_LEAVES = 256
"""Of a tree. With fewer rows a leaf than a block holds, more of them prune no more."""

MOST_VALUES = 32
"""Of an IN. A longer list is cut by its least and its greatest value only."""

MOST_TEXT = 64
"""Characters or bytes of a text in a cut, and hexadecimal digits of bytes."""

LEAF = -1
"""In the place of a cut's number, in the nodes of a tree."""

_MOST_MIN_ROWS = 2**31 - 1
_MOST_KEY_TEXT = 4_200
_MOST_SOURCE_TEXT = 4_000
_QUOTED = re.compile(r'"(?:[^"]|"")+"')
_BARE_FILE = re.compile(r'[^\s,()"]+')
_FILE = re.compile(rf"{_QUOTED.pattern}|{_BARE_FILE.pattern}")
_PARAMETERS = {"text", "columns", "cuts", "nodes"}
_BY = "by"
"""The parameter that only trees with an order within leaves have."""


@dataclass(frozen=True, kw_only=True)
class TreeSource:
    """What a tree is made from.

    Attributes:
        file: path or URL of a file of conditions; empty for those of the log of the table's queries.
        min_rows: the least rows of a leaf; None for half of those of a block.
        by: the terms that rows of a leaf are sorted by, as text; empty for none.
    """

    file: str
    min_rows: int | None = None
    by: str = ""

    @property
    def text(self) -> str:
        """The key as people write it."""
        rows = "" if self.min_rows is None else f", min_rows={self.min_rows}"
        by = f", by={_quoted(self.by)}" if self.by else ""
        return f"{TREE}({self.name}{rows}{by})"

    @property
    def name(self) -> str:
        """Where the conditions are, as the key says it."""
        if not self.file:
            return WORKLOAD
        return f"file:{self.file if _BARE_FILE.fullmatch(self.file) else _quoted(self.file)}"


def take_tree(scanner: TextScanner) -> TreeSource | None:
    """Step over `qdtree(file:PATH, min_rows=N, by="a, b")`, or `qdtree(workload, ..)`; None if it is something else.

    Raises:
        InputError: of the scanner's type: the text is wrong after `qdtree(`.
    """
    start = scanner.offset
    if not (scanner.word(TREE) and scanner.take("(")):
        scanner.offset = start
        return None
    start = scanner.offset
    source = TreeSource(file=_take_source(scanner), **_take_options(scanner))
    scanner.expect(")")
    if len(source.text) > _MOST_SOURCE_TEXT:
        raise scanner.error(f"expected a key of at most {_MOST_SOURCE_TEXT:,} characters", start)
    return source


def _take_source(scanner: TextScanner) -> str:
    """Step over `file:PATH` and return the path, or over `workload` and return an empty text."""
    start = scanner.offset
    if scanner.word(WORKLOAD):
        return ""
    if not (scanner.word("file") and scanner.take(":")):
        msg = f"expected a file of conditions, as in {TREE}(file:cuts.sql), or {TREE}({WORKLOAD})"
        raise scanner.error(msg, start)
    file = scanner.match(_FILE)
    if file is None:
        raise scanner.error("expected the path or URL of a file of conditions")
    path = _unquoted(file)
    if not path:
        raise scanner.error("expected the path or URL of a file of conditions", start)
    return path


def _take_options(scanner: TextScanner) -> dict[str, Any]:
    """Step over `, min_rows=N` and `, by="terms"`, in any order."""
    found: dict[str, Any] = {}
    while scanner.take(","):
        start = scanner.offset
        name = next((word for word in ("min_rows", _BY) if scanner.word(word)), None)
        if name is None or not scanner.take("="):
            raise scanner.error(
                'expected min_rows=N, the least rows of a leaf, or by="a, b", their order', start
            )
        if name in found:
            raise scanner.error(f"{name} is given twice", start)
        if name == _BY:
            text = scanner.match(_QUOTED)
            if text is None:
                raise scanner.error('expected the order of the rows of a leaf in double quotes: by="a, b"')
            found[name] = _unquoted(text)
        else:
            found[name] = scanner.number(1, _MOST_MIN_ROWS)
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _unquoted(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """A test of one column.

    Attributes:
        column_id: the column.
        operator: LESS, LESS_EQUAL, IN, PREFIX or NULL.
        values: what is compared, of the statistic type that the column had when the tree was made; of PREFIX binary; of
            NULL none.

    Raises:
        ValueError: at construction: the operator is unknown, or takes other values than these.
    """

    column_id: int
    operator: str
    values: pa.Array

    def __post_init__(self) -> None:
        most = {LESS: 1, LESS_EQUAL: 1, IN: MOST_VALUES, PREFIX: 1, NULL: 0}.get(self.operator)
        if most is None:
            msg = f"a cut of the kind {self.operator!r:.40}"
            raise ValueError(msg)
        count = len(self.values)
        if count > most or count < min(most, 1) or self.values.null_count:
            msg = f"a cut {self.operator} with {count} values, {self.values.null_count} of them null"
            raise ValueError(msg)
        if _has_nan(self.values) or max(map(_length, self.values), default=1) > MOST_TEXT:
            msg = f"a value of a cut is NaN, or longer than {MOST_TEXT}"
            raise ValueError(msg)

    def to_json(self) -> tuple[Any, ...]:
        """Return the cut as a parameter of a sort."""
        return self.column_id, self.operator, tuple(map(value_to_json, self.values))


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """A tree with at least one cut.

    Attributes:
        text: the key as people write it.
        columns: id and statistic type, at that time, of each column that a cut tests.
        cuts: the tests, each once.
        nodes: the number of the cut of each node, LEAF for a leaf: a node, then all on its left, then all on its right.
        by: what the rows of a leaf are sorted by: the members of each term, a column's id first.

    Raises:
        ValueError: at construction: nodes are not those of a tree, or columns not those of its cuts.
    """

    text: str
    columns: tuple[tuple[int, pa.DataType], ...]
    cuts: tuple[Cut, ...]
    nodes: tuple[int, ...]
    by: tuple[tuple[Any, ...], ...] = ()

    def __post_init__(self) -> None:
        if len(self.text) > _MOST_KEY_TEXT:
            msg = f"expected a key's text of at most {_MOST_KEY_TEXT} characters"
            raise ValueError(msg)
        ids = [column_id for column_id, _ in self.columns]
        if len({*ids}) < len(ids) or {*ids} != {cut.column_id for cut in self.cuts}:
            msg = "the columns of a tree are not those of its cuts"
            raise ValueError(msg)
        if {*self.nodes} - {LEAF} != {*range(len(self.cuts))} or not self.cuts:
            msg = f"the nodes of a tree do not use each of its {len(self.cuts)} cuts"
            raise ValueError(msg)
        if self.leaf_count > MOST_LEAVES:
            msg = f"a tree of {self.leaf_count} leaves, expected at most {MOST_LEAVES}"
            raise ValueError(msg)
        _ = self.rights

    @property
    def leaf_count(self) -> int:
        """How many leaves there are."""
        return self.nodes.count(LEAF)

    @functools.cached_property
    def leaf_numbers(self) -> tuple[int, ...]:
        """For each node the number of the first leaf at or below it."""
        return tuple(itertools.accumulate((cut == LEAF for cut in self.nodes[:-1]), initial=0))

    @functools.cached_property
    def rights(self) -> tuple[int, ...]:
        """For each inner node the node on its right; the one on its left is the next. 0 for leaves.

        Raises:
            ValueError: a node is missing, or one is left over.
        """
        found = [0] * len(self.nodes)
        complete: list[int] = []
        for node in reversed(range(len(self.nodes))):
            if self.nodes[node] != LEAF:
                if len(complete) < 2:  # noqa: PLR2004
                    msg = "a node of a tree has no end"
                    raise ValueError(msg)
                complete.pop()
                found[node] = complete.pop()
            complete.append(node)
        if len(complete) != 1:
            msg = f"expected the nodes of one tree, got those of {len(complete)}"
            raise ValueError(msg)
        return tuple(found)

    def to_parameters(self) -> tuple[tuple[str, Any], ...]:
        """Return the parameters of the sort."""
        return (
            ("text", self.text),
            ("columns", tuple((column_id, type_to_text(kind)) for column_id, kind in self.columns)),
            ("cuts", tuple(cut.to_json() for cut in self.cuts)),
            ("nodes", self.nodes),
            *([(_BY, self.by)] if self.by else []),
        )


def tree_of(parameters: tuple[tuple[str, Any], ...]) -> Tree:
    """Return the tree in the parameters of a sort. Cached.

    Raises:
        ValueError: they are not those of a tree; says what is wrong.
    """
    try:
        return _tree_of(parameters)
    except TypeError as error:
        msg = f"expected numbers and texts, got {str(parameters)[:100]}"
        raise ValueError(msg) from error


@functools.lru_cache(maxsize=128)
def _tree_of(parameters: tuple[tuple[str, Any], ...]) -> Tree:
    given = dict(parameters)
    if given.keys() - {_BY} != _PARAMETERS:
        msg = f"expected {', '.join(sorted(_PARAMETERS))}, got {', '.join(map(str, given))[:100]}"
        raise ValueError(msg)
    nodes = given["nodes"]
    by = given.get(_BY, ())
    arrays = (given["columns"], given["cuts"], nodes, by)
    if not isinstance(given["text"], str) or not all(isinstance(item, tuple) for item in arrays):
        msg = "expected a key's text, and arrays of columns, cuts and nodes"
        raise ValueError(msg)
    if any(type(node) is not int for node in nodes):
        msg = "expected numbers of cuts as nodes"
        raise ValueError(msg)
    columns = tuple(map(_column_of, given["columns"]))
    kinds = dict(columns)
    cuts = tuple(_cut_of(item, kinds) for item in given["cuts"])
    if _BY in given and (not by or not all(isinstance(item, tuple) for item in by)):
        msg = "expected terms in the order within leaves"
        raise ValueError(msg)
    return Tree(text=given["text"], columns=columns, cuts=cuts, nodes=nodes, by=by)


def _column_of(item: object) -> tuple[int, pa.DataType]:
    match item:
        case (int(column_id), str(text)) if type(column_id) is int:
            pass
        case _:
            msg = f"expected the id of a column and its type, got {item!r:.100}"
            raise ValueError(msg)
    try:
        kind = type_from_text(text)
    except (InvalidSchemaError, UnsupportedTypeError) as error:
        raise ValueError(str(error)) from error
    if not is_orderable(kind) or statistic_type(kind) != kind:
        msg = f"{text} is not a type of bounds"
        raise ValueError(msg)
    return column_id, kind


def _cut_of(item: object, kinds: dict[int, pa.DataType]) -> Cut:
    match item:
        case (int(column_id), str(operator), tuple(values)) if column_id in kinds:
            kind = kinds[column_id]
        case _:
            msg = f"expected a column of the tree, a test and its values, got {item!r:.100}"
            raise ValueError(msg)
    if operator == PREFIX:
        if not has_prefixes(kind):
            msg = f"{kind} has no prefixes"
            raise ValueError(msg)
        kind = pa.binary()
    if None in values or len(values) > MOST_VALUES:
        msg = f"a cut needs at most {MOST_VALUES} values, and no null"
        raise ValueError(msg)
    return Cut(column_id=column_id, operator=operator, values=values_from_json(values, kind))


def has_prefixes(kind: pa.DataType) -> bool:
    """Return whether values of a statistic type have prefixes."""
    return bool(is_any_string(kind) or is_any_binary(kind) or pt.is_fixed_size_binary(kind))


def columns_of(cuts: Sequence[Cut], kinds: dict[int, pa.DataType]) -> tuple[tuple[int, pa.DataType], ...]:
    """Return id and type of each column that cuts test, in the order of the cuts."""
    return tuple((id_, kinds[id_]) for id_ in dict.fromkeys(cut.column_id for cut in cuts))


def _length(value: pa.Scalar) -> int:
    found = value.as_py() if is_any_string(value.type) or is_any_binary(value.type) else ""
    return len(found)


def _has_nan(values: pa.Array) -> bool:
    import pyarrow.compute as pc

    return pt.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())
