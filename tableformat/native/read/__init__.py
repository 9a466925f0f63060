"""Read rows and metadata of a native table."""
