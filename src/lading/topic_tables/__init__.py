"""Topics as live, read-only Iceberg tables: a REST catalog, and the objects of its tables, rendered when read."""
