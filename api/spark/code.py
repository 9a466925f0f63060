"""The parts of tblctl that a Spark session gets: the same for merges and the data source, so one zip for a session."""

from __future__ import annotations

from tblctl.merger.engines.spark.shipping import Code

CODE = Code(
    packages=(
        "tblctl.maintain",
        "tblctl.merger",
        "tblctl.metrics",
        "tblctl.selector",
        "tblctl.spark",
        "tblctl.tableformat",
        "tblctl.workload",
    ),
    modules=(
        "__init__.py",
        "as_of.py",
        "conditions.py",
        "installed.py",
        "policies.py",
        "recorded.py",
        "results.py",
        "sizes.py",
        "storage_text.py",
    ),
)
"""Modules that tasks on workers and the processes beside Spark's driver import."""
