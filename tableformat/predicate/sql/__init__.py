"""Conditions as SQL text: read into trees of tests."""
