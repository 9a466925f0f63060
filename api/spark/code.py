"""What of tblctl a Spark session gets: one choice for merges and the data source alike, so one zip a session."""

from __future__ import annotations

from tblctl.merger.engines.spark.shipping import Code

CODE = Code(
    packages=("tblctl.merger", "tblctl.selector", "tblctl.spark", "tblctl.tableformat"),
    modules=("__init__.py", "as_of.py", "storage_text.py"),
)
"""What tasks on workers and the processes beside Spark's driver import."""
