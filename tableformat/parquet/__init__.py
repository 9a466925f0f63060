"""Parquet files of any table format: footers, encodings, statistics, reading and writing blocks."""
