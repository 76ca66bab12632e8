"""Streams and topics: how they are named, found, created, changed and deleted."""
