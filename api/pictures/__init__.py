"""Pictures of a table: from versions to values, and from values to SVG, PNG and HTML."""
