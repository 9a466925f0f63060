"""Measurements against plain pyarrow and against the limits that the project has set itself; see `common.py`."""
