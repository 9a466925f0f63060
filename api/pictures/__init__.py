"""Pictures of a table's blocks: worked out from versions, drawn as SVG, PNG and HTML."""
