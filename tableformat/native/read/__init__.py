"""Rows and metadata out of a native table."""
