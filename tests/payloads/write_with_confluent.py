"""A producer with Confluent's serialisers: orders with the id of their schema before the payload, and in a header."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

COUNT = 20


def main() -> None:
    kafka, url = sys.argv[1:]
    registry = SchemaRegistryClient({"url": url})
    producer = Producer({"bootstrap.servers": kafka})
    schema = Path(__file__).with_name("order.avsc").read_text()
    for topic, more in (
        ("avro_prefix", {}),
        ("avro_header", {"schema.id.serializer": header_schema_id_serializer}),
    ):
        serialize = AvroSerializer(registry, schema, conf=more)
        for row in range(COUNT):
            order = {"amount": Decimal(row * 125) / 100, "tags": ["a", "b"][: row % 3]}
            headers: list[tuple[str, str | bytes | None]] = []
            context = SerializationContext(topic, MessageField.VALUE, headers)
            value = serialize({"name": f"n{row}", "order": order}, context)
            producer.produce(topic, value, headers=headers, partition=0)
    producer.flush(30)


if __name__ == "__main__":
    main()
