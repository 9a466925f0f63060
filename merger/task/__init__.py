"""One merge task: rows of some blocks in, whole blocks out. The same code in every engine."""
