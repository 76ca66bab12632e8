"""Byte formats of messages and commands: bytes <-> Batch, commands <-> dataclasses; no I/O, no clock, no broker."""
