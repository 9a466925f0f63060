"""Keys of rows: their order, and one file for each kind of sort."""
