"""Spark: the data source ``lading``, the sink, header functions, the executor of ingest. Needs PySpark."""

from .session import register, session

__all__ = ["register", "session"]
