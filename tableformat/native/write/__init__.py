"""Rows into a native table."""
