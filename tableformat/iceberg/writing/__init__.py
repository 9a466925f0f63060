"""Write data files inside merge tasks, as every reader of Iceberg takes them."""
