"""Topics and stores as Apache Iceberg tables, exactly once."""
