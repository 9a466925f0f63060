"""The simulation over an Iceberg table: other engines are played by PyIceberg, and a catalog that can fail."""
