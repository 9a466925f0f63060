"""Merge (from part B): key ranges, merge tasks, the engines that run them, conflict rules, the commit loop."""
