"""Split a condition into AND, OR, NOT, IS TRUE and parentheses around predicates, without recursion.

sqlglot's own parser exhausts Python's stack at about 40 nested parentheses, and programs that generate conditions nest
deeper. So the boolean structure is read here, from sqlglot's tokens with an explicit stack, and sqlglot parses each
predicate. Errors then also point at the predicate that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pyiceberg import expressions as ice
from sqlglot.tokenizer_core import Token, TokenType

from tblctl.tableformat.predicate.resolve import DEPTH_LIMIT
from tblctl.tableformat.predicate.sql.text import SqlText

_JOINTS = {TokenType.AND, TokenType.OR}
_TRUTHS: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "UNKNOWN": None, "NULL": None}
_TESTS = {
    TokenType.EQ,
    TokenType.NEQ,
    TokenType.NULLSAFE_EQ,
    TokenType.LT,
    TokenType.LTE,
    TokenType.GT,
    TokenType.GTE,
    TokenType.BETWEEN,
    TokenType.IN,
    TokenType.LIKE,
    TokenType.ILIKE,
    TokenType.IS,
    TokenType.NOT,
    TokenType.AND,
    TokenType.OR,
    TokenType.NULL,
    TokenType.TRUE,
    TokenType.FALSE,
}
"""Tokens that turn a column or a literal into a condition."""


_IsValue: TypeAlias = Callable[[ice.BooleanExpression, bool | None], ice.BooleanExpression]


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A condition under construction. A chain of one kind stays a list: (a AND b) AND c becomes a balanced tree."""

    kind: Literal["and", "or", "one"]
    parts: tuple[ice.BooleanExpression, ...]
    depth: int

    def build(self) -> ice.BooleanExpression:
        if len(self.parts) == 1:
            return self.parts[0]
        return ice.And(*self.parts) if self.kind == "and" else ice.Or(*self.parts)


@dataclass(kw_only=True)
class _Group:
    """The open whole condition or pair of parentheses, with the alternatives of conjunctions read so far."""

    opened: Token | None
    alternatives: list[list[_Part]] = field(default_factory=lambda: [[]])
    negated: bool = False


def read_structure(
    text: SqlText,
    tokens: Sequence[Token],
    read_predicate: Callable[[Sequence[Token]], ice.BooleanExpression],
    is_value: _IsValue,
) -> ice.BooleanExpression:
    """Return the condition of `tokens`.

    NOT stays a node of its own: turning `NOT x > 5` into `x <= 5` would be wrong for NaN. IS TRUE and the like after a
    condition bind weaker than its comparison and stronger than NOT, as in PostgreSQL and DuckDB. O(tokens).

    Args:
        text: for errors.
        tokens: of the whole condition.
        read_predicate: parses the tokens between AND, OR, NOT and IS TRUE. IS NULL after a column belongs to these.
        is_value: returns the condition that a condition is TRUE, FALSE, or with None UNKNOWN.

    Raises:
        InvalidPredicateError: parentheses or operands are missing, or nesting exceeds `DEPTH_LIMIT`.
    """
    partner = _matching_parentheses(text, tokens)
    tested = _next_tests(tokens)
    groups = [_Group(opened=None)]
    index, operand_expected = 0, True
    while index < len(tokens):
        token, group = tokens[index], groups[-1]
        kind = token.token_type
        if not operand_expected:
            operand_expected = kind in _JOINTS
            if kind is TokenType.OR:
                group.alternatives.append([])
            elif kind is TokenType.R_PAREN:
                groups.pop()
                end = _truths_end(tokens, index + 1)
                part = _tested(text, _joined(group), tokens[index:end], is_value)
                _add(text, groups[-1], part, token)
                index = end - 1
            index += 1
        elif kind is TokenType.NOT:
            group.negated = not group.negated
            index += 1
        elif kind is TokenType.L_PAREN and _is_group(tokens, index, partner[index], tested):
            groups.append(_Group(opened=token))
            index += 1
        else:
            end = _predicate_end(tokens, index, partner)
            if end == index:
                _refuse_missing(text, tokens, index)
            stop = _truths_start(tokens, index, end)
            if tested[index] >= stop:
                stop = _own_null_end(tokens, stop)
            part = _Part(kind="one", parts=(read_predicate(tokens[index:stop]),), depth=0)
            _add(text, group, _tested(text, part, tokens[stop - 1 : end], is_value), token)
            index, operand_expected = end, False
    if operand_expected:
        _refuse_missing(text, tokens, len(tokens))
    return _joined(groups[0]).build()


def _matching_parentheses(text: SqlText, tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the closing parenthesis by that of the opening one."""
    partner: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            opened.append(index)
        elif token.token_type is TokenType.R_PAREN:
            if not opened:
                text.refuse("unexpected ')' without a '('", token.start)
            partner[opened.pop()] = index
    if opened:
        text.refuse("'(' is never closed", tokens[opened[-1]].start)
    return partner


def _next_tests(tokens: Sequence[Token]) -> list[int]:
    """Return for each token the index of the next token, itself included, that makes a condition (`_TESTS`)."""
    found = [len(tokens)] * (len(tokens) + 1)
    for index in range(len(tokens) - 1, -1, -1):
        found[index] = index if tokens[index].token_type in _TESTS else found[index + 1]
    return found


def _is_group(tokens: Sequence[Token], opened: int, closed: int, tested: Sequence[int]) -> bool:
    """Return whether parentheses hold a complete condition; in `(a) = 1` and `(a) IS NULL` they do not."""
    end = _truths_end(tokens, closed + 1)
    if not (end == len(tokens) or tokens[end].token_type in _JOINTS | {TokenType.R_PAREN}):
        return False
    return end == closed + 1 or tested[opened] < closed


def _truth_at(tokens: Sequence[Token], index: int) -> int:
    """Return how many tokens of IS [NOT] TRUE, FALSE, UNKNOWN or NULL begin here; 0 for none."""
    if index >= len(tokens) or tokens[index].token_type is not TokenType.IS:
        return 0
    length = 2 if index + 1 < len(tokens) and tokens[index + 1].token_type is TokenType.NOT else 1
    word = tokens[index + length] if index + length < len(tokens) else None
    known = word is not None and word.token_type is not TokenType.IDENTIFIER and word.text.upper() in _TRUTHS
    return length + 1 if known else 0


def _truths_end(tokens: Sequence[Token], index: int) -> int:
    """Return the index after all IS TRUE and the like that begin here."""
    while length := _truth_at(tokens, index):
        index += length
    return index


def _own_null_end(tokens: Sequence[Token], index: int) -> int:
    """Return the index after an IS [NOT] NULL that begins here. After a column it is a test of the column."""
    end = index + _truth_at(tokens, index)
    return end if tokens[end - 1].token_type is TokenType.NULL else index


def _truths_start(tokens: Sequence[Token], start: int, end: int) -> int:
    """Return where the sequence of IS TRUE and the like that ends at `end` begins."""
    index = end
    while True:
        before = next(
            (index - n for n in (2, 3) if index - n > start and _truth_at(tokens, index - n) == n), None
        )
        if before is None:
            return index
        index = before


def _tested(text: SqlText, part: _Part, tokens: Sequence[Token], is_value: _IsValue) -> _Part:
    """Return a condition with all IS TRUE and the like that follow it; `tokens` begin with its last token."""
    start = 1
    while start < len(tokens):
        length = _truth_at(tokens, start)
        truth = _TRUTHS[tokens[start + length - 1].text.upper()]
        found = is_value(part.build(), truth)
        found = ice.Not(found) if length == 3 else found  # noqa: PLR2004 - IS NOT TRUE
        part = _Part(kind="one", parts=(found,), depth=part.depth + 1)
        _check_depth(text, part, tokens[start])
        start += length
    return part


def _predicate_end(tokens: Sequence[Token], start: int, partner: dict[int, int]) -> int:
    """Return the index after the predicate that begins at `start`; the AND of BETWEEN belongs to it."""
    index, betweens = start, 0
    while index < len(tokens):
        kind = tokens[index].token_type
        if kind is TokenType.BETWEEN:
            betweens += 1
        elif kind is TokenType.AND and betweens:
            betweens -= 1
        elif kind in _JOINTS or kind is TokenType.R_PAREN:
            break
        index = partner[index] + 1 if kind is TokenType.L_PAREN else index + 1
    return index


def _add(text: SqlText, group: _Group, part: _Part, token: Token) -> None:
    """Add a finished operand to the group, with the NOTs read before it."""
    if group.negated:
        part = _Part(kind="one", parts=(ice.Not(part.build()),), depth=part.depth + 1)
        group.negated = False
    _check_depth(text, part, token)
    group.alternatives[-1].append(part)


def _check_depth(text: SqlText, part: _Part, token: Token) -> None:
    if part.depth > DEPTH_LIMIT:
        text.refuse(
            f"AND, OR, NOT and IS are nested more than {DEPTH_LIMIT} levels deep; write it flatter",
            token.start,
        )


def _joined(group: _Group) -> _Part:
    return _join("or", [_join("and", conjunction) for conjunction in group.alternatives])


def _join(kind: Literal["and", "or"], parts: Sequence[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    flat: list[ice.BooleanExpression] = []
    depth = 0
    for part in parts:
        if part.kind == kind:
            flat += part.parts
            depth = max(depth, part.depth)
        else:
            flat.append(part.build())
            depth = max(depth, part.depth + 1)
    return _Part(kind=kind, parts=tuple(flat), depth=depth)


def _refuse_missing(text: SqlText, tokens: Sequence[Token], index: int) -> None:
    """Raise the error that a condition is missing."""
    if index == len(tokens) or (index and tokens[index].token_type is TokenType.R_PAREN):
        before = tokens[index - 1]
        text.refuse(f"a condition is missing after {before.text!r}", before.start)
    text.refuse(f"a condition is missing before {tokens[index].text!r}", tokens[index].start)
