"""Rows of imported files added to an Iceberg table: the table, data files, the list of files, the commit."""
