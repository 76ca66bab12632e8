"""From a queue into a spool: a log that can be read again and again, also by those who have no queue (design.md
Spark).
"""
