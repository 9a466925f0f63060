"""The log of a native table: snapshots and segments, and how the next snapshot is published."""
