"""Apache Iceberg tables behind the port: the only room that knows PyIceberg's catalogs, tables and manifests."""
