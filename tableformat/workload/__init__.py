"""The queries that a table was asked lately, as values."""
