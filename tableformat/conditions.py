"""Where the conditions come from that a tree is made from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from tblctl.tableformat.errors import InvalidKeyError, InvalidPredicateError, TblctlError
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.tree import TREE, TreeSource
from tblctl.tableformat.predicate.cuts import contradiction
from tblctl.tableformat.predicate.nodes import Node, node_of, tests_of
from tblctl.tableformat.predicate.sql.condition_file import PredicateText, split_predicates
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.workload.queries import Query
from tblctl.tableformat.workload.reader import ReadLog
from tblctl.tableformat.workload.typical import typical

MOST_CONDITIONS = 200
"""Of a file. Growing a tree for so many takes some seconds."""

MOST_LOGGED = 100
"""Conditions drawn from the log of queries."""

MOST_BYTES = 1 << 20
"""Of a file."""


def conditions_of(
    source: TreeSource, reach: Callable[[str], Storage], schema: Schema, log: Callable[[], ReadLog] | None
) -> list[Node]:
    """Return the conditions of a source: the one place where the source that a key names becomes conditions.

    Args:
        source: what the key says.
        reach: returns the storage at a folder's path or URL.
        schema: of the table.
        log: reads the newest queries of the table; None for a table that does not exist yet.

    Raises:
        InvalidKeyError, InvalidPredicateError: see `read_conditions`; or the log has no condition that can be used.
    """
    if source.file:
        return read_conditions(source.file, reach, schema)
    if log is None:
        msg = f"{source.text}: a new table was asked nothing yet; name a file of conditions: {TREE}(file:cuts.sql)"
        raise InvalidKeyError(msg)
    return _logged_conditions(source, log().queries, schema)


def _logged_conditions(source: TreeSource, queries: Sequence[Query], schema: Schema) -> list[Node]:
    """Return conditions of queries, as often as they weigh, without those that name no column or hold for no row."""
    found, _ = typical(queries, schema, MOST_LOGGED)
    nodes = [node_of(expression, schema) for _, expression in found]
    usable = [node for node in nodes if any(tests_of(node)) and not contradiction(node)]
    if not usable:
        msg = (
            f"{source.text}: the log of queries has no condition that can be used; set the option recluster.record=on, "
            f"or import logs (`tblctl workload LOC import FILE`), or name a file of conditions: {TREE}(file:cuts.sql)"
        )
        raise InvalidKeyError(msg)
    return usable


def read_conditions(file: str, reach: Callable[[str], Storage], schema: Schema) -> list[Node]:
    """Return the conditions of a file: each ends with a `;`, or each line is one.

    Args:
        file: path or URL.
        reach: returns the storage at a folder's path or URL.
        schema: of the table.

    Raises:
        InvalidKeyError: there is no such file, it is too large or not text, or has no condition or too many.
        InvalidPredicateError: a condition cannot be read, holds for all rows or for none; says where.
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
        problem = "it holds for all rows or for none, whatever the values of columns"
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
