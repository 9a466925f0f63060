"""Rows that are sorted before merge tasks take them: when, and how."""
