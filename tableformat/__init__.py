"""Tables of immutable Parquet blocks: the model, the storage and the native format."""
