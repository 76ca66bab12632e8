"""Copying a queue into a spool: a log that readers can read again, without access to the queue (design.md Spark)."""
