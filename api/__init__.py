"""Tables of immutable Parquet blocks on object storage."""
