"""The entry point: the group of all commands."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from typing import NoReturn

from tblctl.cli.command import Application, interrupted, terminated
from tblctl.cli.commands import (
    about,
    bring,
    change,
    define,
    depth,
    estimate,
    keep,
    measure,
    plan,
    read,
    recluster,
    sql,
    suggest,
    workload,
)
from tblctl.cli.failures import FAILED
from tblctl.cli.load_arrow import load_arrow
from tblctl.cli.show.encoding import write_any_text

COMMANDS = (
    define.create,
    bring.import_files,
    change.append,
    read.scan,
    bring.export,
    change.delete,
    change.update,
    change.overwrite,
    define.alter,
    measure.info,
    depth.depth,
    suggest.suggest,
    workload.workload,
    plan.plan,
    estimate.estimate,
    recluster.recluster,
    sql.sql,
    read.history,
    keep.rollback,
    keep.tag,
    define.drop,
    read.files,
    keep.gc,
    keep.check,
    about.version,
    about.config_show,
    about.completion,
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
    (environment, ~/.config/fsspec), from --storage-option, and from profiles of ~/.config/tblctl.toml.

    Exit codes: 0 done, 1 the operation failed, 2 wrong usage, 130 interrupted, 143 terminated (`recluster --watch`
    ends with 0 in both cases), 141 nobody reads the output any more. With --json an error is one line of JSON on
    standard error: code, message, details, notes, exit_code.""",
)
for command in COMMANDS:
    application.add_command(command)


ENVIRONMENT = {
    "MIMALLOC_PURGE_DELAY": "10000",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Read by libraries when they are loaded, which happens later.

MIMALLOC_PURGE_DELAY: how many milliseconds Arrow's allocator keeps freed pages before it gives them back to the system.
Its default of 10 costs large merges a tenth of their time, since pages are given back and taken again. A merge near its
memory limit still gives pages back at once (`merger/task/memory.py`). With -1 it could not.

OPENBLAS_NUM_THREADS: numpy would start threads for linear algebra, of which there is none here.
"""

_OBJECTS_BEFORE_COLLECTION = 50_000
"""Python looks for garbage in cycles after this many new objects, not after 700: imports make many, and no garbage. It
takes a sixth of the time of a command on a small table otherwise."""


def run() -> NoReturn:
    """Run the command line of this process, and exit."""
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminated)
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)
    write_any_text(sys.stdout)
    try:
        application.main(prog_name="tblctl", obj=load_arrow)
    except SystemExit as end:
        _leave(end.code if isinstance(end.code, int) else FAILED)


def _leave(code: int) -> NoReturn:
    """End the process without taking down a thousand modules, which takes a fifth of a command on a small table.

    What Python does first at the end of a process is done here: threads end, and functions of `atexit` are called.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None
            stream.flush()
    os._exit(code)
