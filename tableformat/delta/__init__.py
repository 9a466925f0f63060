"""Delta tables behind the port, read only: the files that their log names, with the log's statistics."""
