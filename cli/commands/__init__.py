"""The commands, by theme: define a table, change its rows, read it, keep it in order."""
