"""Avro files decoded as columns: many records at a time, with numpy. It knows nothing of Iceberg."""
