"""The text of a condition or statement: its tokens, its tree, and errors that point into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import sqlglot.errors
from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from tblctl.tableformat.errors import InputError, InvalidPredicateError

_EXCERPT = 60  # characters of the text shown on each side of the caret


class _Tokenizer(Tokenizer):
    COMMANDS = set()  # noqa: RUF012 (sqlglot's own turn the rest of a text that begins with SHOW or CALL into a string)
    IDENTIFIERS = ['"', "`"]  # noqa: RUF012
    HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class SqlText:
    """The text being read, and how to complain about a place in it."""

    text: str
    noun: str
    error: type[InputError] = InvalidPredicateError

    def tokens(self) -> list[Token]:
        """Return the text's tokens; the tokenizer's own errors name no position, so it is found here."""
        try:
            tokens = _Tokenizer().tokenize(self.text)
        except sqlglot.errors.TokenError as error:
            position, problem = _token_error(self.text)
            self.refuse(problem, position, cause=error)
        while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
            tokens.pop()
        for token in tokens:
            if token.token_type in (TokenType.UNKNOWN, TokenType.SEMICOLON):
                hint = "; one statement is expected" if token.text == ";" else ""
                self.refuse(f"unexpected {token.text!r}{hint}", token.start)
        return tokens

    def refuse(self, problem: str, position: int | None, *, cause: Exception | None = None) -> NoReturn:
        """Raise the error with the column number and a caret under the place."""
        if position is None:
            msg = f"cannot read the {self.noun}: {problem}"
            raise self.error(msg) from cause
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        first, last = (
            max(start, position - _EXCERPT),
            min(end if end >= 0 else len(self.text), position + _EXCERPT),
        )
        excerpt = "".join(char if char.isprintable() else " " for char in self.text[first:last])
        line = self.text.count("\n", 0, start) + 1
        where = (
            f"column {position - start + 1}" if line == 1 else f"line {line}, column {position - start + 1}"
        )
        caret = " " * (position - first) + "^"
        msg = f"cannot read the {self.noun} at {where}: {problem}\n  {excerpt}\n  {caret}"
        raise self.error(msg, position=position) from cause

    def parse(self, tokens: Sequence[Token]) -> exp.Expr:
        """Return the one expression that `tokens` make up."""
        try:
            found = Parser().parse_into(exp.Condition, list(tokens), self.text)
        except sqlglot.errors.ParseError as error:
            self._refuse_syntax(error, tokens)
        except RecursionError:
            found = None
        if found is None:  # not in the except clause: the traceback of a thousand frames would be the context
            self.refuse("this nests too deeply; write it with fewer parentheses and signs", tokens[0].start)
        if len(found) != 1 or found[0] is None:
            self.refuse("this is not understood", tokens[0].start)
        return found[0]

    def _refuse_syntax(self, error: sqlglot.errors.ParseError, tokens: Sequence[Token]) -> NoReturn:
        details = error.errors[0] if error.errors else {}
        place = (details.get("line"), details.get("col"))
        token = next((token for token in tokens if (token.line, token.col) == place), tokens[-1])
        found = self.text[token.start : token.end + 1]
        what = str(details.get("description", ""))
        if what.startswith("Required keyword"):
            problem = f"something is missing near {found!r:.40}"
        elif what.startswith("Expecting"):
            problem = f"{what[10:]!r} is missing near {found!r:.40}"
        else:
            problem = f"unexpected {found!r:.40}"
        self.refuse(problem, token.start, cause=error)

    def split_at_commas(self, tokens: Sequence[Token]) -> Iterator[list[Token]]:
        """Yield the tokens between commas that stand in no parentheses."""
        part: list[Token] = []
        depth, last = 0, tokens[0]
        for token in tokens:
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            last = token
            if token.token_type is TokenType.COMMA and depth == 0:
                if not part:
                    self.refuse("an assignment is missing before the comma", token.start)
                yield part
                part = []
            else:
                part.append(token)
        if not part:
            self.refuse("an assignment is missing after the comma", last.start)
        yield part


def _token_error(text: str) -> tuple[int, str]:
    """Return where and why tokenizing fails: a quote or comment that is never closed, or a bad hexadecimal string."""
    opened, index = 0, 0
    closers = {"'": "'", '"': '"', "`": "`", "/*": "*/"}
    while index < len(text):
        opener = "/*" if text.startswith("/*", index) else text[index]
        if text.startswith("--", index):
            index = text.find("\n", index) if "\n" in text[index:] else len(text)
        elif opener in closers:
            opened = index
            end = text.find(closers[opener], index + len(opener))
            if end < 0:
                return opened, f"{opener} is never closed"
            if opener == "'" and text[index - 1 : index] in ("x", "X") and not is_hex(text[index + 1 : end]):
                return index - 1, "a binary literal X'..' needs pairs of hexadecimal digits"
            index = end + len(closers[opener])
        else:
            index += 1
    return 0, "it cannot be split into words"


def is_hex(text: str) -> bool:
    """Tell whether `text` is made of pairs of hexadecimal digits."""
    return len(text) % 2 == 0 and all(char in "0123456789abcdefABCDEF" for char in text)
