"""Conditions as SQL text, parsed into trees of tests."""
