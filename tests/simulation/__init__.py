"""Deterministic simulation of a table: several actors, one storage, all faults, from one seed."""
