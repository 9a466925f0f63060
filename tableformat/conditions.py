"""Where the conditions come from that a tree is made from."""

from __future__ import annotations

import os
from collections.abc import Callable

from tblctl.tableformat.errors import InvalidKeyError, InvalidPredicateError, TblctlError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.tree import TreeSource
from tblctl.tableformat.predicate.cuts import contradiction
from tblctl.tableformat.predicate.nodes import Node, node_of, tests_of
from tblctl.tableformat.predicate.sql.condition_file import PredicateText, split_predicates
from tblctl.tableformat.storage import Storage

MOST_CONDITIONS = 200
"""Of a file. Growing a tree for so many takes some seconds."""

MOST_BYTES = 1 << 20
"""Of a file."""


def conditions_of(source: TreeSource, reach: Callable[[str], Storage], schema: Schema) -> list[Node]:
    """Return the conditions of a source: the one place where the source that a key names becomes conditions.

    Args:
        source: what the key says.
        reach: returns the storage at a folder's path or URL.
        schema: of the table.

    Raises:
        InvalidKeyError, InvalidPredicateError: see `read_conditions`.
    """
    return read_conditions(source.file, reach, schema)


def read_conditions(file: str, reach: Callable[[str], Storage], schema: Schema) -> list[Node]:
    """Return the conditions of a file: each ends with a `;`, or each line is one.

    Args:
        file: path or URL.
        reach: returns the storage at a folder's path or URL.
        schema: of the table.

    Raises:
        InvalidKeyError: there is no such file, it is too large or not text, or has no condition or too many.
        InvalidPredicateError: a condition cannot be read, names no column, or can hold for no row; says where.
    """
    texts = split_predicates(_text_of(file, reach))
    if not texts:
        msg = f"{file} has no condition; write one a line, such as: l_shipdate >= '1995-01-01'"
        raise InvalidKeyError(msg)
    if len(texts) > MOST_CONDITIONS:
        msg = f"{file} has {len(texts):,} conditions, a tree is made from at most {MOST_CONDITIONS}"
        raise InvalidKeyError(msg)
    return [_condition(file, item, schema) for item in texts]


def _text_of(file: str, reach: Callable[[str], Storage]) -> str:
    folder, _, name = file.replace(os.sep, "/").rpartition("/")
    if not folder and file.startswith("/"):
        folder = "/"
    try:
        data = reach(folder or ".").try_read(name)
    except TblctlError as error:
        msg = f"the conditions in {file} cannot be read: {error}"
        raise InvalidKeyError(msg) from error
    if data is None:
        msg = f"there is no file of conditions {file}"
        raise InvalidKeyError(msg)
    if len(data) > MOST_BYTES:
        msg = f"{file} has {len(data):,} bytes, a file of conditions at most {MOST_BYTES:,}"
        raise InvalidKeyError(msg)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{file} is no text in UTF-8 ({error})"
        raise InvalidKeyError(msg) from error


def _condition(file: str, item: PredicateText, schema: Schema) -> Node:
    from tblctl.tableformat.predicate.sql.conditions import parse_where

    try:
        node = node_of(parse_where(item.padded, schema), schema)
    except InvalidPredicateError as error:
        raise InvalidPredicateError(f"{file}: {error}", **error.details) from error
    problem = None
    if not any(tests_of(node)):
        problem = "it names no column"
    elif tests := contradiction(node):
        problem = f"no row satisfies {tests}"
    if problem:
        before = item.padded[: len(item.padded) - len(item.padded.lstrip())]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        msg = (
            f"{file}: line {line}, column {column}: the condition {item.text[:200]!r} is of no use: {problem}"
        )
        raise InvalidPredicateError(msg, position=len(before))
    return node
