"""Blocks that TPC-H's conditions read by a tree, by linear keys and by Hilbert curves, of as many blocks.

The rows are those of lineitem, joined with the columns of other tables that the queries test, as in the paper (Yang et
al., SIGMOD 2020). The conditions are those of Q1, 3, 6, 12, 14 and 20 with the parameters that the specification draws
(2.4.x). The tree grows from some draws, and all layouts are measured by others. Rows are really sorted and cut into
blocks, those of trees where leaves end as merges do (`model/cut.py`): all layouts have the same number of blocks, so
that those of trees may hold some more rows. A block is read unless its bounds, or its leaves, rule a condition out, by
the code of scans.

Q1 asks for 97 % of the rows, which no layout can skip: so figures without it are stated too. "Cut evenly" are blocks of
the same tree that end anywhere, so that most hold rows of two leaves.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, replace
from datetime import date, timedelta
from pathlib import Path
from statistics import mean

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.common import DATA, Report, lineitem, main, script
from tblctl.advise.arranged import Arranged, Rows
from tblctl.tableformat.keys.order import key_table
from tblctl.tableformat.keys.tree_making import TREE_ROWS, TreeMaker
from tblctl.tableformat.model.cluster_key import Sort, parse_key
from tblctl.tableformat.model.cut import leaf_cuts
from tblctl.tableformat.model.schema.schema import Schema
from tblctl.tableformat.model.statistics import NONE
from tblctl.tableformat.model.tree import TREE, TreeSource, tree_of
from tblctl.tableformat.native.read.key_sample import ranges_of_rows
from tblctl.tableformat.predicate.match import match
from tblctl.tableformat.predicate.nodes import Node, node_of
from tblctl.tableformat.predicate.sql.conditions import parse_where

SCALE = "0.1"
BLOCKS = (128, 512, 1024)
LEARNED, HELD_OUT = 33, 16  # draws of each query
QUERIES = ("Q1", "Q3", "Q6", "Q12", "Q14", "Q20")
COLUMNS = {
    "lineitem": ("l_shipdate", "l_receiptdate", "l_discount", "l_quantity", "l_shipmode"),
    "orders": ("o_orderdate",),
    "customer": ("c_mktsegment",),
    "part": ("p_name",),
    "nation": ("n_name",),
}
LINEAR = tuple(name for names in COLUMNS.values() for name in names)
CURVES = (
    "l_shipdate, o_orderdate",
    "l_shipdate, l_discount",
    "l_shipdate, l_shipmode",
    "l_shipdate, n_name",
    "l_shipdate, p_name",
    "l_shipdate, l_discount, l_shipmode",
)
WITHIN = "l_shipdate"
WITHIN_TREE = f"tree, by {WITHIN}"
MOST_OF_LINEAR, MOST_OF_HILBERT = 0.6, 0.8
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")


def measure(report: Report, tiny: bool) -> None:
    table = joined("0.001" if tiny else SCALE)
    rows = Rows(schema=Schema.create(table.schema), table=table)
    rng = random.Random(19)
    values = {name: sorted(pc.unique(table[name]).to_pylist()) for name in ("p_name", "n_name")}
    learned = [draw(query, rng, values) for query in QUERIES for _ in range(LEARNED)]
    held_out = [(query, draw(query, rng, values)) for query in QUERIES for _ in range(HELD_OUT)]
    for blocks in (16,) if tiny else BLOCKS:
        report.begin(f"{len(table):,} rows in {blocks} blocks: share of the blocks that a condition reads")
        report.line(f"  {'':<38}" + "".join(f"{query:>8}" for query in QUERIES) + "     all  but Q1")
        plain = tree_sort(rows, learned, blocks)
        found: dict[str, list[float]] = {}

        def add(name: str, arranged: Arranged) -> None:
            shares = found[name] = reads(rows, arranged, held_out)  # noqa: B023 (called at once)
            cells = "".join(f"{share:8.2%}" for share in (*shares, mean(shares), mean(shares[1:])))
            report.line(f"  {name:<38}{cells}")

        add("tree", at_leaves(rows, plain, blocks))
        add(WITHIN_TREE, at_leaves(rows, ordered_within(plain, rows), blocks))
        add("tree, cut evenly", CutEvenly(rows, plain, blocks))
        for key in (*LINEAR, *(f"hilbert({key})" for key in CURVES)):
            add(key, Arranged(rows, sort_of(rows, key), blocks))
        leaves = tree_of(plain.parameters).leaf_count
        report.begin(f"{blocks} blocks: those that the tree of {leaves} leaves reads, of those by others")
        for kind, most in (("linear", MOST_OF_LINEAR), ("hilbert", MOST_OF_HILBERT)):
            names = [key for key in found if "tree" not in key and ("hilbert" in key) == (kind == "hilbert")]
            compare(report, found, names, kind, None if tiny else most)


def compare(
    report: Report, found: dict[str, list[float]], names: Sequence[str], kind: str, most: float | None
) -> None:
    """Write what trees read of what the best of some keys reads; the limit is that of the tree as it is advised."""
    for queries, skipped in (("all", 0), ("all but Q1", 1)):
        best = min(names, key=lambda name: mean(found[name][skipped:]))
        report.line(f"  {queries}; the best {kind} key is {best}")
        for name, shares in found.items():
            if name.startswith("tree"):
                ratio = mean(shares[skipped:]) / mean(found[best][skipped:])
                report.figure(f"  {name}", ratio, "", most=most if name == WITHIN_TREE else None)
        if not skipped:
            floor = found["tree"][0] / sum(found[best])
            report.figure("  if Q1 alone read any block", floor, "")


def ordered_within(sort: Sort, rows: Rows) -> Sort:
    """Return the same tree with the rows of each leaf in the order of `WITHIN`."""
    terms = parse_key(WITHIN, rows.schema).terms
    tree = replace(tree_of(sort.parameters), by=tuple(map(astuple, terms)))
    return replace(sort, parameters=tree.to_parameters())


def at_leaves(rows: Rows, sort: Sort, blocks: int) -> Arranged:
    """Return the rows in as many blocks, or as few less as possible, each at most so large that these suffice."""
    leaf_rows = np.bincount(key_table(rows.table, sort, rows.schema).column("0").to_numpy()).tolist()
    parts = next(
        parts
        for parts in range(blocks, 0, -1)
        if len(leaf_cuts(leaf_rows, -(-sum(leaf_rows) // parts))) <= blocks
    )
    return Arranged(rows, sort, parts)


def reads(rows: Rows, arranged: Arranged, conditions: Sequence[tuple[str, str]]) -> list[float]:
    """Return for each query the share of the blocks that its conditions read, on average."""
    shares: dict[str, list[float]] = {query: [] for query in QUERIES}
    for query, text in conditions:
        outcome = match(resolved(text, rows), arranged, rows.schema).outcome
        shares[query].append(float(np.mean(outcome != NONE)))
    return [mean(each) for each in shares.values()]


def resolved(text: str, rows: Rows) -> Node:
    return node_of(parse_where(text, rows.schema), rows.schema)


def tree_sort(rows: Rows, conditions: Sequence[str], blocks: int, by: str = "") -> Sort:
    maker = TreeMaker(
        TreeSource(file="learned", by=by),
        parse_key(by, rows.schema).terms if by else (),
        [resolved(text, rows) for text in conditions],
        rows.schema,
    )
    step = -(-len(rows.table) // (8 * TREE_ROWS))
    sample = rows.table.take(pa.array(np.arange(step // 2, len(rows.table), step)))
    sample = sample.select([leaf.name for leaf in maker.leaves])
    weights = np.full(len(sample), len(rows.table) / len(sample))
    made = maker.layout(sample, weights, block_rows=len(rows.table) // blocks)
    return Sort(id=1, kind=TREE, terms=made.terms, parameters=made.parameters)


def sort_of(rows: Rows, text: str) -> Sort:
    key = parse_key(text, rows.schema)
    if not key.is_curve:
        return Sort(id=1, terms=key.terms)
    step = -(-len(rows.table) // (1 << 17))
    sample = rows.table.take(pa.array(np.arange(step // 2, len(rows.table), step)))
    parameters = ranges_of_rows([sample], rows.schema, key.terms, "lineitem").to_parameters()
    return Sort(id=1, kind=key.kind, terms=key.terms, parameters=parameters)


def draw(query: str, rng: random.Random, values: dict[str, list[str]]) -> str:
    """Return the condition of a query with parameters as the specification draws them."""
    year = rng.randint(1993, 1997)
    in_year = f">= '{year}-01-01' AND {{0}} < '{year + 1}-01-01'"
    if query == "Q1":
        return f"l_shipdate <= '{date(1998, 12, 1) - timedelta(rng.randint(60, 120))}'"
    if query == "Q3":
        day = date(1995, 3, rng.randint(1, 31))
        return f"c_mktsegment = '{rng.choice(SEGMENTS)}' AND o_orderdate < '{day}' AND l_shipdate > '{day}'"
    if query == "Q6":
        discount, quantity = rng.randint(2, 9), rng.randint(24, 25)
        return (
            f"l_shipdate {in_year.format('l_shipdate')} AND l_discount BETWEEN 0.{discount - 1:02} AND "
            f"0.{discount + 1:02} AND l_quantity < {quantity}"
        )
    if query == "Q12":
        first, second = rng.sample(MODES, 2)
        return f"l_shipmode IN ('{first}', '{second}') AND l_receiptdate {in_year.format('l_receiptdate')}"
    if query == "Q14":
        month = rng.randint(1, 12)
        end = date(year + month // 12, month % 12 + 1, 1)
        return f"l_shipdate >= '{date(year, month, 1)}' AND l_shipdate < '{end}'"
    color, nation = rng.choice(values["p_name"]), rng.choice(values["n_name"])
    return f"p_name LIKE '{color}%' AND n_name = '{nation}' AND l_shipdate {in_year.format('l_shipdate')}"


def joined(scale: str) -> pa.Table:
    """Return lineitem with columns of the tables that it refers to. Of a part's name, the first word."""
    items = pq.read_table(
        lineitem(scale), columns=[*COLUMNS["lineitem"], "l_orderkey", "l_partkey", "l_suppkey"]
    )
    tables = {name: pq.read_table(path) for name, path in others(scale).items()}

    def plain(values: pa.ChunkedArray) -> pa.Array:
        is_view = pa.types.is_string_view(values.type)
        return (values.cast(pa.string()) if is_view else values).combine_chunks()

    def looked_up(keys: pa.Array, table: str, key: str, column: str) -> pa.Array:
        at = pc.index_in(keys, tables[table][key].combine_chunks())
        return plain(tables[table][column]).take(at)

    order_keys, part_keys, supplier_keys = (
        items[name].combine_chunks() for name in ("l_orderkey", "l_partkey", "l_suppkey")
    )
    customers = looked_up(order_keys, "orders", "o_orderkey", "o_custkey")
    names = looked_up(part_keys, "part", "p_partkey", "p_name")
    nations = looked_up(supplier_keys, "supplier", "s_suppkey", "s_nationkey")
    more = {
        "o_orderdate": looked_up(order_keys, "orders", "o_orderkey", "o_orderdate"),
        "c_mktsegment": looked_up(customers, "customer", "c_custkey", "c_mktsegment"),
        "p_name": pc.list_element(pc.split_pattern(names, " ", max_splits=1), 0),
        "n_name": looked_up(nations, "nation", "n_nationkey", "n_name"),
    }
    rows = items.select(COLUMNS["lineitem"]).combine_chunks()
    place = rows.column_names.index("l_shipmode")
    rows = rows.set_column(place, "l_shipmode", rows["l_shipmode"].cast(pa.string()))
    for name, values in more.items():
        rows = rows.append_column(name, values)
    return rows


def others(scale: str) -> dict[str, Path]:
    """Return the files of the other tables at a scale factor. tpchgen-cli makes them at first use."""
    folder = DATA / f"tpch-{scale}"
    names = ("orders", "customer", "part", "supplier", "nation")
    if not all((folder / f"{name}.parquet").exists() for name in names):
        with tempfile.TemporaryDirectory(dir=folder) as made:
            words = ["parquet", "-s", scale, f"--tables={','.join(names)}", f"--output-dir={made}"]
            subprocess.run([script("tpchgen-cli"), *words], check=True, capture_output=True)
            for name in names:
                (Path(made) / f"{name}.parquet").rename(folder / f"{name}.parquet")
    return {name: folder / f"{name}.parquet" for name in names}


class CutEvenly(Arranged):
    """Blocks of equal size, wherever leaves end."""

    def __init__(self, rows: Rows, sort: Sort, block_count: int) -> None:
        super().__init__(rows, sort, block_count)
        ends = np.rint(np.linspace(0, len(self._order), block_count + 1))
        self._cut(np.unique(ends.astype(np.int64)))


if __name__ == "__main__":
    main("qdtree", measure)
