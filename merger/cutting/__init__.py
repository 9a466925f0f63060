"""Cutting a group into tasks, from the keys of its blocks alone."""
