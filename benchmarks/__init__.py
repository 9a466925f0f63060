"""Measurements against plain pyarrow and against the limits that the project has set itself; see `common.py`."""

import os

# As in the command (cli/main.py), and before Arrow is loaded, for whatever of it a benchmark has: pyarrow's own
# reading and writing, which ours is compared with, gains as much.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")
