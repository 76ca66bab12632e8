"""Compaction: topics with ``cleanup.policy=compact`` keep the last message of each key."""
