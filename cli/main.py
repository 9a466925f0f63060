"""The entry point: the group of all commands."""

from __future__ import annotations

import os
import signal

from tblctl.cli.command import Application, terminated
from tblctl.cli.commands import change, define, depth, keep, measure, read, recluster, sql, suggest

COMMANDS = (
    define.create,
    change.append,
    read.scan,
    change.delete,
    change.update,
    change.overwrite,
    define.alter,
    measure.info,
    depth.depth,
    suggest.suggest,
    recluster.recluster,
    sql.sql,
    read.history,
    keep.rollback,
    keep.tag,
    define.drop,
    read.files,
    keep.gc,
    keep.check,
)

EXAMPLE = """
tblctl create /data/lineitem --like lineitem.parquet --cluster-by "l_shipdate, l_orderkey"
tblctl append /data/lineitem part-*.parquet
tblctl scan   /data/lineitem --where "l_shipdate >= '1995-01-01'" --limit 5
tblctl info   /data/lineitem
tblctl recluster /data/lineitem --final
"""

application = Application(
    name="tblctl",
    example=EXAMPLE,
    help="""Tables of immutable Parquet blocks, on disk or object storage, kept well clustered for the least work.

    LOC is a path or a URL such as s3://bucket/table. Credentials and endpoints come from where fsspec and boto look
    (environment, ~/.config/fsspec), and from --storage-option.

    Exit codes: 0 done, 1 the operation failed, 2 wrong usage, 130 interrupted, 143 terminated.""",
)
for command in COMMANDS:
    application.add_command(command)


ALLOCATOR = ("MIMALLOC_PURGE_DELAY", "10000")
"""How many milliseconds Arrow's allocator keeps freed pages before it gives them back to the system. Its default of 10
costs large merges a tenth of their time, since pages are given back and taken again. A merge near its memory limit
still gives pages back at once (`merger/task/memory.py`). With -1 it could not."""


def run() -> None:
    """Run the command line of this process, and exit."""
    os.environ.setdefault(*ALLOCATOR)  # Arrow reads it when it is loaded, which happens later
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminated)
    application.main(prog_name="tblctl")
