"""The log of a native table: snapshots and segments, and how the next one is published."""
