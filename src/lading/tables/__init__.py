"""Topics into tables, each message exactly once; needs no PySpark."""
