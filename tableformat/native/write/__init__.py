"""Write rows into a native table."""
