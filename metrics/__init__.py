"""Metrics (from part C): depth and overlap of blocks, clustering information, an incremental index. No I/O."""
