"""The native table format: snapshots, segments and blocks as objects under one root."""
