"""Take a condition apart into AND, OR, NOT and parentheses around predicates, without recursion.

sqlglot's own descent runs out of Python's stack at about 40 nested parentheses, and programs that generate
conditions nest deeper. So the boolean structure is read here, over sqlglot's tokens and with a stack of our own,
and sqlglot parses each predicate. That also keeps every error next to the predicate it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyiceberg import expressions as ice
from sqlglot.tokenizer_core import Token, TokenType

from tblctl.tableformat.predicate.resolve import DEPTH_LIMIT
from tblctl.tableformat.predicate.sql_text import SqlText

_JOINTS = {TokenType.AND, TokenType.OR}


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A condition being built: a chain of one kind stays a list, so that (a AND b) AND c becomes one balanced tree."""

    kind: Literal["and", "or", "one"]
    parts: tuple[ice.BooleanExpression, ...]
    depth: int

    def build(self) -> ice.BooleanExpression:
        if len(self.parts) == 1:
            return self.parts[0]
        return ice.And(*self.parts) if self.kind == "and" else ice.Or(*self.parts)


@dataclass(kw_only=True)
class _Group:
    """What is open: the whole condition or one pair of parentheses; alternatives of conjunctions read so far."""

    opened: Token | None
    alternatives: list[list[_Part]] = field(default_factory=lambda: [[]])
    negated: bool = False


def read_structure(
    text: SqlText, tokens: Sequence[Token], read_predicate: Callable[[Sequence[Token]], ice.BooleanExpression]
) -> ice.BooleanExpression:
    """Return the condition that `tokens` make up; `read_predicate` reads what lies between AND, OR and NOT.

    NOT stays a node of its own: turning `NOT x > 5` into `x <= 5` would be wrong for NaN. O(tokens).

    Raises:
        InvalidPredicateError: parentheses or operands are missing, or nesting exceeds `DEPTH_LIMIT`.
    """
    partner = _matching_parentheses(text, tokens)
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
                _add(text, groups[-1], _joined(group), token)
            index += 1
        elif kind is TokenType.NOT:
            group.negated = not group.negated
            index += 1
        elif kind is TokenType.L_PAREN and _ends_operand(tokens, partner[index] + 1):
            groups.append(_Group(opened=token))
            index += 1
        else:
            end = _predicate_end(tokens, index, partner)
            if end == index:
                _refuse_missing(text, tokens, index)
            predicate = read_predicate(tokens[index:end])
            _add(text, group, _Part(kind="one", parts=(predicate,), depth=0), token)
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
                text.refuse("unexpected ')', nothing is open", token.start)
            partner[opened.pop()] = index
    if opened:
        text.refuse("'(' is never closed", tokens[opened[-1]].start)
    return partner


def _ends_operand(tokens: Sequence[Token], index: int) -> bool:
    """Tell whether a parenthesis closed before `index` held a condition of its own; `(a) = 1` goes on."""
    return index == len(tokens) or tokens[index].token_type in _JOINTS | {TokenType.R_PAREN}


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
    """Put a finished operand into the group, under the NOTs read before it."""
    if group.negated:
        part = _Part(kind="one", parts=(ice.Not(part.build()),), depth=part.depth + 1)
        group.negated = False
    if part.depth > DEPTH_LIMIT:
        text.refuse(
            f"AND, OR and NOT are nested more than {DEPTH_LIMIT} levels deep; write it flatter", token.start
        )
    group.alternatives[-1].append(part)


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
    """Complain that there is no condition where one must start."""
    if index == len(tokens) or (index and tokens[index].token_type is TokenType.R_PAREN):
        before = tokens[index - 1]
        text.refuse(f"a condition is missing after {before.text!r}", before.start)
    text.refuse(f"a condition is missing before {tokens[index].text!r}", tokens[index].start)
