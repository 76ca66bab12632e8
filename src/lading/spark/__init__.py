"""Spark: the data source ``lading``, the table path, the sink, header functions. PySpark is needed only here."""

from .session import register, session

__all__ = ["register", "session"]
