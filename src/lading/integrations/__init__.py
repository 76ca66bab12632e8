"""Sources for data frames and query engines, each with the extra of its name: Polars, DuckDB, Daft, Ray Data."""
