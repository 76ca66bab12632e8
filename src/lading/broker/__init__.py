"""Decisions: topics, append, read, visibility, groups, positions, transactions, retention.

Takes the time as an argument, owns no socket, raises Refusal. Endpoints use ``Broker`` and none of its parts.
"""
