"""Advise on cluster keys: which columns to cluster by, estimated from metadata."""
