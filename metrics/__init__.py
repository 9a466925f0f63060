"""Metrics: overlap and depth of blocks, clustering information. Numbers in, numbers out: no keys, no storage."""
