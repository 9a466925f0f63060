"""Schemas: named, typed columns with ids; their types, JSON and changes."""
