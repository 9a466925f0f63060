"""Merge: plan a group's tasks, run them in an engine, verify and commit what they wrote, or salvage it."""
