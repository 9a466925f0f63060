"""Conditions on rows: SQL in, block pruning and row masks out."""
