"""Cluster keys: ordered terms over columns, and the sorts that a table registers.

A term is a column, or a transform of one, with a direction and a place for nulls. Transforms are Iceberg's;
`term_values.py` computes them.

Texts, in which words ignore case: `l_shipdate, year(ts) desc nulls first, truncate(4, s), bucket(16, "odd name")`, or
a *layout*, alone: a curve through 2 to 4 columns, `zorder(ts, customer)`, `hilbert(ts, customer, "odd name")`, or a
tree made from conditions, `qdtree(file:cuts.sql, min_rows=100000, by="ts, id")`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.errors import InvalidKeyError, UnknownColumnError
from tblctl.tableformat.model.curve import (
    CURVES,
    LEAST_COLUMNS,
    MOST_COLUMNS,
    curve_text,
    frozen,
    ranges_of,
)
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.schema.text_scanner import TextScanner, quote_name
from tblctl.tableformat.model.schema.types import (
    is_any_binary,
    is_any_string,
    is_orderable,
    statistic_type,
    type_to_text,
)
from tblctl.tableformat.model.tree import TREE, TreeSource, take_tree, tree_of

__all__ = [
    "AS_LISTED",
    "NO_SORT",
    "TIME_TRANSFORMS",
    "Key",
    "Sort",
    "Term",
    "curve_key_text",
    "leaf_of_term",
    "parse_key",
    "parse_terms",
    "term_to_text",
    "transform_problem",
]

NO_SORT = -1
"""In the place of the sort of a block that is in the order of no live one, or of none that is known."""

TIME_TRANSFORMS = ("year", "month", "day", "hour")
_WIDTH_TRANSFORMS = ("truncate", "bucket")
_TRANSFORM = re.compile(r"identity|year|month|day|hour|(?:truncate|bucket)\[([1-9]\d{0,9})\]")
_MAX_WIDTH = 2**31 - 1

LISTED = "listed"
"""The kind of `AS_LISTED`. No table stores a sort of this kind."""


@dataclass(frozen=True, kw_only=True)
class Term:
    """One term of a cluster key.

    `transform` is identity, year, month, day, hour, truncate[n] or bucket[n].

    Raises:
        ValueError: at construction: `transform` is none of these.
    """

    column_id: int
    transform: str = "identity"
    descending: bool = False
    nulls_first: bool = False

    def __post_init__(self) -> None:
        found = _TRANSFORM.fullmatch(self.transform)
        if found is None or (found[1] is not None and int(found[1]) > _MAX_WIDTH):
            raise ValueError(f"{self.transform!r} is not a transform of a key term")

    @property
    def function(self) -> str:
        """The transform's name without its number."""
        return self.transform.partition("[")[0]

    @property
    def width(self) -> int | None:
        """The number of truncate and bucket, else None."""
        _, _, rest = self.transform.partition("[")
        return int(rest[:-1]) if rest else None


@dataclass(frozen=True, kw_only=True)
class Sort:
    """An order in which blocks may be written, registered in the table under its id.

    `AS_LISTED` alone has no terms, and is in no table.

    Raises:
        ValueError: at construction: there are no terms, the id is not positive, or a curve lacks what it needs.
    """

    id: int
    kind: str = "linear"
    terms: tuple[Term, ...]
    parameters: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.kind == LISTED:
            if self.id or self.terms or self.parameters:
                raise ValueError(f"sort {self.id}: kind {LISTED!r} has id 0, and nothing else")
        elif self.id < 1 or not self.terms:
            raise ValueError(f"sort {self.id}: expected an id from 1 and at least one term")
        elif self.is_layout:
            self._check_layout()

    def _check_layout(self) -> None:
        problem, ids = None, [term.column_id for term in self.terms]
        if any(term != Term(column_id=term.column_id) for term in self.terms):
            problem = f"a {self.kind} takes columns as they are"
        elif len({*ids}) < len(ids):
            problem = "a column is named twice"
        try:
            tree = tree_of(self.parameters) if self.kind == TREE else None
            _ = self.within
            count = len(ids) if tree else len(ranges_of(self.parameters).boundaries)
        except ValueError as error:
            raise ValueError(f"sort {self.id}: {error}") from error
        if count != len(ids):
            problem = f"boundaries of {count} columns for {len(ids)}"
        elif tree and [column_id for column_id, _ in tree.columns] != ids:
            problem = "a tree of other columns"
        if problem:
            raise ValueError(f"sort {self.id}: {problem}")

    @property
    def within(self) -> tuple[Term, ...]:
        """What the rows of a tree's leaf are sorted by; nothing for other kinds."""
        tree = tree_of(self.parameters) if self.kind == TREE else None
        return tuple(map(_term_from_members, tree.by)) if tree else ()

    @property
    def is_curve(self) -> bool:
        """Whether rows lie along a curve through ranges of several columns."""
        return self.kind in CURVES

    @property
    def is_layout(self) -> bool:
        """Whether its parameters were made from rows, and belong to its id: a curve or a tree."""
        return self.kind in (*CURVES, TREE)

    @property
    def is_order(self) -> bool:
        """Whether rows are put into an order: not by `AS_LISTED`."""
        return self.kind != LISTED

    def to_json(self) -> dict[str, Any]:
        """Return the object that a snapshot stores."""
        terms = [
            {
                "column_id": term.column_id,
                "transform": term.transform,
                "descending": term.descending,
                "nulls_first": term.nulls_first,
            }
            for term in self.terms
        ]
        return {"id": self.id, "kind": self.kind, "terms": terms, "parameters": dict(self.parameters)}

    @classmethod
    def from_json(cls, value: object) -> Sort:
        """Return the sort of a stored object; strict.

        Raises:
            ValueError: anything is wrong; names where.
        """
        if not isinstance(value, dict) or set(value) != {"id", "kind", "terms", "parameters"}:
            raise _wrong("sort", "an object of id, kind, terms and parameters", value)
        id_, kind, terms, parameters = (value[key] for key in ("id", "kind", "terms", "parameters"))
        if type(id_) is not int:
            raise _wrong("sort.id", "a whole number", id_)
        if not isinstance(kind, str) or kind == LISTED:
            raise _wrong(f"sort {id_}.kind", "a kind that a table stores", kind)
        if not isinstance(terms, list) or not isinstance(parameters, dict):
            raise _wrong(f"sort {id_}", "an array of terms and an object of parameters", value)
        return cls(
            id=id_,
            kind=kind,
            terms=tuple(_term_from_json(term, f"sort {id_}.terms[{i}]") for i, term in enumerate(terms)),
            parameters=tuple((name, frozen(item)) for name, item in parameters.items()),
        )


AS_LISTED = Sort(id=0, kind=LISTED, terms=())
"""Rows stay as they come: those of the first block, those of the second, .. What is written is in no order. It takes
the place of the cluster key where there is none."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """What the text of a cluster key says: all of a sort but its id and parameters.

    Of a tree it says only the source, and as `terms` what the rows of a leaf are sorted by.
    """

    kind: str = "linear"
    terms: tuple[Term, ...]
    tree: TreeSource | None = None

    @property
    def is_curve(self) -> bool:
        """Whether it is a curve."""
        return self.kind in CURVES

    @property
    def is_layout(self) -> bool:
        """Whether it is a curve or a tree, whose sort has parameters that are made from rows."""
        return self.kind in (*CURVES, TREE)

    def is_of(self, sort: Sort) -> bool:
        """Return whether the sort has this text, whatever its boundaries or its tree."""
        if self.tree and sort.kind == TREE:
            return self.tree.text == tree_of(sort.parameters).text
        return (self.kind, self.terms) == (sort.kind, sort.terms)

    def texts(self, schema: Schema) -> tuple[str, ...]:
        """Return a text for each term, or one for a layout."""
        if self.tree:
            return (self.tree.text,)
        if self.is_layout:
            return (curve_key_text(self.kind, self.terms, schema),)
        return tuple(term_to_text(term, schema) for term in self.terms)


def parse_key(texts: str | Sequence[str], schema: Schema) -> Key:
    """Parse a cluster key: a curve, a tree, or terms as `parse_terms` takes them.

    Raises:
        InvalidKeyError: as for `parse_terms`; a curve of one column or of more than four, with a column twice, with
            anything but columns in it; a tree without a file; or anything beside either.
    """
    given = (texts,) if isinstance(texts, str) else tuple(texts)
    scanners = [TextScanner(text, InvalidKeyError) for text in given]
    tree = take_tree(scanners[0]) if scanners else None
    kind = TREE if tree else _take_curve(scanners[0]) if scanners else None
    if kind is None:
        return Key(terms=parse_terms(given, schema))
    terms = _parse_curve_columns(scanners[0], kind, schema) if tree is None else ()
    if tree and tree.by:
        terms = parse_terms(tree.by, schema)
        tree = replace(tree, by=", ".join(term_to_text(term, schema) for term in terms))
    if not scanners[0].at_end() or len(given) > 1:
        raise scanners[0].error(f"{kind}(...) is a whole cluster key; expected nothing beside it")
    return Key(kind=kind, terms=terms, tree=tree)


def _parse_curve_columns(scanner: TextScanner, kind: str, schema: Schema) -> tuple[Term, ...]:
    terms: list[Term] = []
    while True:
        terms.append(_parse_curve_column(scanner, schema, terms))
        if not scanner.take(","):
            break
    if not scanner.at(")"):
        raise scanner.error("a curve takes plain columns, without directions; expected , or )")
    if not LEAST_COLUMNS <= len(terms) <= MOST_COLUMNS:
        raise scanner.error(f"{kind} takes {LEAST_COLUMNS} to {MOST_COLUMNS} columns, not {len(terms)}", 0)
    scanner.take(")")
    return tuple(terms)


def _take_curve(scanner: TextScanner) -> str | None:
    """Step over `zorder(` or `hilbert(`. A column may have such a name too."""
    start = scanner.offset
    word = scanner.bare_name()
    if word is not None and word.lower() in CURVES and scanner.take("("):
        return word.lower()
    scanner.offset = start
    return None


def _parse_curve_column(scanner: TextScanner, schema: Schema, before: Sequence[Term]) -> Term:
    start = scanner.offset
    name = _rest_of_name(scanner, scanner.name())
    if scanner.at("("):
        raise scanner.error("a curve takes plain columns, without transforms", start)
    term = Term(column_id=_column(scanner, name, "identity", schema, start).id)
    if term in before:
        raise scanner.error(f"column {_describe(term, schema)} is given twice", start)
    return term


def parse_terms(texts: str | Sequence[str], schema: Schema) -> tuple[Term, ...]:
    """Parse the terms of a cluster key. Each text may hold several, separated by commas.

    Raises:
        InvalidKeyError: wrong syntax, unknown column, a type without an order, a transform that the type does not have,
            or a term given twice. Names the term and its position; `details["position"]` is its offset.
    """
    terms: list[Term] = []
    for text in (texts,) if isinstance(texts, str) else texts:
        scanner = TextScanner(text, InvalidKeyError)
        while True:
            start = scanner.offset
            term = _parse_term(scanner, schema)
            if any(_same_values(term, other) for other in terms):
                raise scanner.error(f"term {_describe(term, schema)} is given twice", start)
            terms.append(term)
            if not scanner.take(","):
                break
        scanner.end()
    return tuple(terms)


def curve_key_text(kind: str, terms: Sequence[Term], schema: Schema) -> str:
    """Return the text that `parse_key` reads back to the same curve.

    Raises:
        InvalidKeyError: the schema lacks a column of it.
    """
    return curve_text(kind, [_describe(term, schema) for term in terms])


def term_to_text(term: Term, schema: Schema) -> str:
    """Return the text that `parse_terms` reads back to the same term; defaults are left out.

    Raises:
        InvalidKeyError: the schema has no leaf with the term's column id.
    """
    text = _describe(term, schema)
    if term.descending:
        text += " desc"
    if term.nulls_first:
        text += " nulls first"
    return text


def _parse_term(scanner: TextScanner, schema: Schema) -> Term:
    start = scanner.offset
    function, width, name = _parse_column(scanner)
    descending = scanner.word("desc")
    if not descending:
        scanner.word("asc")
    nulls_first = False
    if scanner.word("nulls"):
        nulls_first = scanner.word("first")
        if not nulls_first and not scanner.word("last"):
            raise scanner.error("expected first or last after nulls")
    leaf = _column(scanner, name, function, schema, start)
    transform = function if width is None else f"{function}[{width}]"
    return Term(column_id=leaf.id, transform=transform, descending=descending, nulls_first=nulls_first)


def _column(scanner: TextScanner, name: str, function: str, schema: Schema, start: int) -> Leaf:
    """Return the column of a name, which `function` can be taken of."""
    try:
        leaf = schema.leaf(name)
    except UnknownColumnError as cause:
        raise InvalidKeyError(f"{cause} (position {start} of {scanner.text!r})", position=start) from cause
    problem = transform_problem(function, leaf)
    if problem:
        raise scanner.error(problem, start)
    return leaf


def _parse_column(scanner: TextScanner) -> tuple[str, int | None, str]:
    """Read `a.b`, `year(a.b)` or `bucket(16, a.b)`: function, its number, and dotted column name."""
    start = scanner.offset
    quoted = scanner.at('"')
    first = scanner.name()
    if quoted or not scanner.take("("):
        return "identity", None, _rest_of_name(scanner, first)
    function = first.lower()
    if function in (*CURVES, TREE):
        problem = f"{function}(...) is a whole cluster key; here columns and transforms of columns can stand"
        raise scanner.error(problem, start)
    if function not in (*TIME_TRANSFORMS, *_WIDTH_TRANSFORMS, "identity"):
        known = (*TIME_TRANSFORMS, *_WIDTH_TRANSFORMS)
        near = get_close_matches(function, (*known, *CURVES, TREE), 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise scanner.error(f"{first!r} is not a transform{hint}, expected one of {', '.join(known)}", start)
    width = None
    if function in _WIDTH_TRANSFORMS:
        width = scanner.number(1, _MAX_WIDTH)
        scanner.expect(",")
    name = _rest_of_name(scanner, scanner.name())
    scanner.expect(")")
    return function, width, name


def _rest_of_name(scanner: TextScanner, first: str) -> str:
    names = [first]
    while scanner.take("."):
        names.append(scanner.name())
    return ".".join(names)


def transform_problem(function: str, leaf: Leaf) -> str | None:
    """Return why a column cannot be used in a key this way, or None."""
    shown = f"column {leaf.name!r} of type {type_to_text(leaf.type)}"
    if not is_orderable(leaf.type):
        return f"{shown} has no order and cannot be in a cluster key"
    plain = statistic_type(leaf.type)
    text_or_number = is_any_string(plain) or is_any_binary(plain) or _is_iceberg_number(plain)
    fits = {
        "identity": True,
        "year": pt.is_date(plain) or pt.is_timestamp(plain),
        "month": pt.is_date(plain) or pt.is_timestamp(plain),
        "day": pt.is_date(plain) or pt.is_timestamp(plain),
        "hour": pt.is_timestamp(plain),
        "truncate": text_or_number,
        "bucket": text_or_number or pt.is_temporal(plain) or pt.is_fixed_size_binary(plain),
    }[function]
    if fits:
        return None
    return f"{function} cannot be taken of {shown}; use the column itself, or a transform for its type"


def _is_iceberg_number(plain: pa.DataType) -> bool:
    """Return whether Iceberg has the numbers of this type. It lacks unsigned 64-bit integers and 256-bit decimals."""
    return bool((pt.is_integer(plain) and not pt.is_uint64(plain)) or pt.is_decimal128(plain))


def _same_values(one: Term, other: Term) -> bool:
    return one.column_id == other.column_id and one.transform == other.transform


def leaf_of_term(term: Term, schema: Schema) -> Leaf:
    """Return the column that a term is of.

    Raises:
        InvalidKeyError: the schema has no leaf with the term's column id.
    """
    leaf = schema.leaf_by_id(term.column_id)
    if leaf is None:
        raise InvalidKeyError(
            f"the cluster key needs column id {term.column_id}, which the schema does not have"
        )
    return leaf


def _describe(term: Term, schema: Schema) -> str:
    name = ".".join(quote_name(step) for step in leaf_of_term(term, schema).path)
    if term.function == "identity":
        return name
    return f"{term.function}({name})" if term.width is None else f"{term.function}({term.width}, {name})"


def _term_from_members(members: tuple[Any, ...]) -> Term:
    names = ("column_id", "transform", "descending", "nulls_first")
    if len(members) != len(names):
        raise _wrong("by", f"{', '.join(names)} of each term", members)
    return _term_from_json(dict(zip(names, members, strict=True)), "by")


def _term_from_json(value: object, place: str) -> Term:
    keys = {"column_id", "transform", "descending", "nulls_first"}
    if not isinstance(value, dict) or set(value) != keys:
        raise _wrong(place, f"an object of {', '.join(sorted(keys))}", value)
    kinds = {"column_id": int, "transform": str, "descending": bool, "nulls_first": bool}
    for key, kind in kinds.items():
        if type(value[key]) is not kind:
            raise _wrong(f"{place}.{key}", kind.__name__, value[key])
    return Term(**value)


def _wrong(place: str, expected: str, value: object) -> ValueError:
    return ValueError(f"{place}: expected {expected}, got {ascii(value)[:100]}")
