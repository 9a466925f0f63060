"""Benchmarks against plain pyarrow, other engines and the project's own limits; see `common.py`."""

import os

# As in the command (cli/main.py), set before Arrow is loaded. The baselines of pyarrow gain as much from it.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")
