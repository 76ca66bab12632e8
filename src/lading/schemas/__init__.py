"""Schemas of payloads, parsed: Avro, Protobuf and JSON Schema; what makes two the same, and which can read which.

No I/O: a caller gives the texts of referenced schemas. ``formats.FORMATS`` is the table of the three.
"""
