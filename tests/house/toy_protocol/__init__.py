"""A protocol of two commands, publish and read, whose messages begin with their headers: what adding one takes.

It has the files that docs/explanation/architecture.md names for a protocol. ``tests/house/test_toy_protocol.py`` adds
it with three lines, and holds it to the behaviours of all protocols.
"""
