"""Upkeep of a native table: collect garbage, check every invariant."""
