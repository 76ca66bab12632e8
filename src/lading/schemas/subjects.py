"""Subjects: the names of schemas in a registry, by the strategies of Confluent's serialisers.

``TOPIC`` is ``TOPIC-value`` or ``TOPIC-key``, ``RECORD`` the full name of the record, ``TOPIC_RECORD`` topic and record
with a hyphen. The last two have no suffix: the schemas of a key and a value of one record are in one subject.
"""

from __future__ import annotations

from typing import Final

from .parsed import ParsedSchema

TOPIC, RECORD, TOPIC_RECORD = "TOPIC", "RECORD", "TOPIC_RECORD"
STRATEGIES: Final = (TOPIC, RECORD, TOPIC_RECORD)


def build_subject(strategy: str, topic: str, record: str | None, part: str = "value") -> str | None:
    """Return the subject of a schema with a record's name; None without a name, if the strategy needs it.

    ``part`` is ``value`` or ``key``.
    """
    if strategy == TOPIC:
        return f"{topic}-{part}"
    if record is None:
        return None
    return record if strategy == RECORD else f"{topic}-{record}"


def list_record_names(schema: ParsedSchema) -> list[str]:
    """Return the record names in a schema: for Protobuf all messages of the file, of which a payload is one.

    For Avro it is the full name of the record, enum or fixed, for JSON Schema the title; empty for a schema without
    one.
    """
    # imported here: readers of JSON do not need the modules of other formats
    if schema.kind == "PROTOBUF":
        from .protobuf import ProtobufSchema
        from .protobuf_types import resolve_messages

        assert isinstance(schema, ProtobufSchema)
        return resolve_messages(schema).list_names()
    if schema.kind == "AVRO":
        from .avro import AvroSchema

        assert isinstance(schema, AvroSchema)
        name: str | None = schema.root.name
    else:
        from .json_schema import JsonSchema

        assert isinstance(schema, JsonSchema)
        name = schema.title
    return [name] if name else []
