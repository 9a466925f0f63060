"""Costs and gains of each choice of encoding, for lineitem sorted by l_shipdate, in memory.

Every case differs from ours in one setting, and all cases run in every round. A ratio compares the processor seconds
of a case with ours in one round; the result is the median. Above 1 the case is slower or larger than ours.

    python -m benchmarks.encode --rounds 7
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import Report, lineitem, main, rounds_in_all
from benchmarks.merging.contender import KEY
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.parquet.block_writer import PHYSICAL
from tblctl.tableformat.parquet.encodings import choose_encodings

ROWS = 1_000_000
CODECS = (("zstd", 3), ("zstd", 6), ("zstd", 9), ("snappy", None), ("lz4", None), ("none", None))
GROUP_ROWS = (65_536, 131_072)


class Case(NamedTuple):
    """The data of a case, the arguments for pyarrow, and the columns that are read as dictionaries."""

    rows: pa.Table
    writer: dict[str, Any]
    coded: Sequence[str] = ()


class Cost(NamedTuple):
    """Processor seconds, and bytes."""

    encode: float
    decode: float
    size: float


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="that count, after one that does not")


def measure(report: Report, tiny: bool, *, rounds: int) -> None:
    rows = sorted_rows("0.01" if tiny else "1", 10_000 if tiny else ROWS)
    rounds = 1 if tiny else rounds
    cases = every_case(rows)
    found: dict[str, list[Cost]] = {name: [] for name in cases}
    for _ in range(rounds_in_all(rounds)):
        for name, case in cases.items():
            found[name].append(cost(case))
    found = {name: costs[-rounds:] for name, costs in found.items()}
    report.line(f"{rows.num_rows:,} rows of lineitem, sorted by {KEY}; {rounds} rounds, processor seconds")
    report.line()
    report.line(f"  {'':<46} {'encode':>9} {'decode':>9} {'MiB':>9}")
    ours = found["ours"]
    middle = [statistics.median(values) for values in zip(*ours, strict=True)]
    report.line(f"  {'ours':<46} {middle[0]:7.3f} s {middle[1]:7.3f} s {middle[2] / 2**20:9.2f}")
    for name, costs in found.items():
        if name != "ours":
            ratios = [
                statistics.median(case[place] / base[place] for case, base in zip(costs, ours, strict=True))
                for place in range(3)
            ]
            report.line(f"  {name:<46} {ratios[0]:7.2f} x {ratios[1]:7.2f} x {ratios[2]:7.2f} x")
    compare_threads(report, cases["ours"], rounds)


def sorted_rows(scale: str, count: int) -> pa.Table:
    source = lineitem(scale)
    schema = pq.read_schema(source)
    plain = [item.with_type(pa.string()) if pa.types.is_string_view(item.type) else item for item in schema]
    rows = pq.read_table(source, schema=pa.schema(plain)).slice(0, count)
    return rows.sort_by(KEY).combine_chunks()


def every_case(rows: pa.Table) -> dict[str, Case]:
    """Return the cases by their titles; `ours` is the first."""
    default = TableOptions()
    chosen = choose_encodings(rows.slice(0, default.row_group_rows), rows.schema)
    ours: dict[str, Any] = {
        **PHYSICAL,
        "use_dictionary": list(chosen.dictionaries),
        "column_encoding": dict(chosen.named),
        "compression": default.compression,
        "compression_level": default.compression_level,
        "row_group_size": default.row_group_rows,
    }
    text = [
        item.name
        for item in rows.schema
        if item.name in chosen.dictionaries and pa.types.is_string(item.type)
    ]
    coded = rows
    for name in text:
        coded = coded.set_column(coded.schema.get_field_index(name), name, coded[name].dictionary_encode())
    cases = {
        "ours": Case(rows, ours),
        "text of few values stays in dictionaries": Case(coded, ours, text),
        "no differences: plain numbers and text": Case(rows, without(ours, "column_encoding")),
        "dictionaries for all columns": Case(
            rows, without(ours, "column_encoding") | {"use_dictionary": True}
        ),
        "decimals as fixed bytes": Case(rows, as_bytes(ours, rows)),
        "with a page index": Case(rows, ours | {"write_page_index": True}),
        "without checksums of pages": Case(rows, ours | {"write_page_checksum": False}),
    }
    for codec, level in CODECS:
        title = codec if level is None else f"{codec} {level}"
        cases[title] = Case(rows, ours | {"compression": codec, "compression_level": level})
    for size in GROUP_ROWS:
        cases[f"row groups of {size:,} rows"] = Case(rows, ours | {"row_group_size": size})
    return cases


def without(writer: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in writer.items() if key != name}


def as_bytes(writer: dict[str, Any], rows: pa.Table) -> dict[str, Any]:
    """Return the arguments for decimals as bytes, which have no encoding as differences."""
    named = {
        name: encoding
        for name, encoding in writer["column_encoding"].items()
        if not pa.types.is_decimal(rows.schema.field(name).type)
    }
    return writer | {"store_decimal_as_integer": False, "column_encoding": named}


def cost(case: Case) -> Cost:
    started = time.process_time()
    data = encoded(case.rows, case.writer)
    written = time.process_time()
    pq.ParquetFile(
        pa.BufferReader(data), read_dictionary=list(case.coded), page_checksum_verification=True
    ).read(use_threads=False)
    return Cost(encode=written - started, decode=time.process_time() - written, size=data.size)


def encoded(rows: pa.Table, writer: dict[str, Any]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **writer)
    return sink.getvalue()


def compare_threads(report: Report, case: Case, rounds: int) -> None:
    """Write the gain of two threads on one block, with half of its columns each, on an idle machine."""
    columns = case.rows.column_names
    halves = [columns[::2], columns[1::2]]

    def half(names: list[str]) -> None:
        writer = case.writer | {
            "use_dictionary": [name for name in case.writer["use_dictionary"] if name in names],
            "column_encoding": {
                name: kind for name, kind in case.writer["column_encoding"].items() if name in names
            },
        }
        encoded(case.rows.select(names), writer)

    def together() -> None:
        with ThreadPoolExecutor(len(halves)) as pool:
            list(pool.map(half, halves))

    pairs = [
        (seconds_of(together), seconds_of(lambda: encoded(case.rows, case.writer)))
        for _ in range(rounds_in_all(rounds))
    ][-rounds:]
    report.begin("columns encoded by two threads, half of them each, against one: where no other task runs")
    for place, name in enumerate(("wall seconds", "processor seconds")):
        report.figure(name, statistics.median(two[place] / one[place] for two, one in pairs), "x")


def seconds_of(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main("encode", measure, options)
