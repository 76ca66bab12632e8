"""Schemas of payloads, parsed: Avro, Protobuf and JSON Schema; which of them are the same, and which can read which.

No I/O: a caller gives the texts of referenced schemas. ``formats.FORMATS`` is the table of the three.
"""
