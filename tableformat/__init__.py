"""Tables of immutable Parquet blocks: model, keys, conditions, storage, Parquet, the port, and the native format."""
