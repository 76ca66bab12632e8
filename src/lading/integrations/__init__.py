"""Sources for data frames and query engines of others, each with the extra of its name: Polars, DuckDB, Daft."""
