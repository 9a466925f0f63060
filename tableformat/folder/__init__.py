"""Plain Parquet files that no table format describes: a folder, a glob, or one file. Read only."""
