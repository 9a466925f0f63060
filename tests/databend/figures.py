"""Make tables in an embedded Databend and store the results of its `clustering_information`. A separate program.

    python figures.py CASES RESULTS

CASES is a JSON list of tables (see `Case.to_json` in test_differential.py). RESULTS gets a JSON list of figures in the
same order. Databend keeps its data in the current folder, and its threads do not survive a fork: so it needs its own
process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import databend

FIGURES = """
select cluster_key, total_block_count, constant_block_count, unclustered_block_count, average_overlaps,
    average_depth, to_string(block_depth_histogram) as block_depth_histogram
from clustering_information('default', '{name}')"""


def main(cases: Path, results: Path) -> None:
    context = databend.SessionContext()

    def run(statement: str) -> list[dict]:
        return [row for batch in context.sql(statement).to_py_arrow() for row in batch.to_pylist()]

    run("set enable_compact_after_write = 0")  # or blocks of many small inserts are merged
    found = []
    for number, case in enumerate(json.loads(cases.read_text())):
        name = f"t{number}"
        columns = ", ".join(f"{column} {kind} null" for column, kind in case["columns"])
        run(f"create table {name}({columns}) row_per_block={case['block_rows']}")
        for step in case["steps"]:
            if "key" in step:
                run(f"alter table {name} cluster by({step['key']})")
            else:
                rows = ", ".join(f"({', '.join(row)})" for row in step["rows"])
                run(f"insert into {name} values {rows}")
        figures = run(FIGURES.format(name=name))[0]
        figures["block_depth_histogram"] = json.loads(figures["block_depth_histogram"])
        found.append(figures)
    results.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
