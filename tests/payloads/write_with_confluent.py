"""A producer with Confluent's serialisers: orders with the id of their schema before the payload, and in a header.

Of Avro, and of Protobuf, whose message is the second of its file.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
)

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
    message = make_message_class()
    for topic, more in (
        ("protobuf_prefix", {}),
        ("protobuf_header", {"schema.id.serializer": header_schema_id_serializer}),
    ):
        serialize_message = ProtobufSerializer(message, registry, {"use.deprecated.format": False, **more})
        for row in range(COUNT):
            sent = message(name=f"n{row}", order={"amount": str(row * 1.25), "tags": ["a", "b"][: row % 3]})
            sent.at.FromMilliseconds(row)
            headers = []
            context = SerializationContext(topic, MessageField.VALUE, headers)
            producer.produce(topic, serialize_message(sent, context), headers=headers, partition=0)
    producer.flush(30)


def make_message_class() -> Any:
    """Return the class of the message Named, as protoc makes it of order.proto."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    order = file.message_type.add(name="Order")
    order.field.add(name="amount", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order.field.add(name="tags", number=2, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    named = file.message_type.add(name="Named")
    named.field.add(name="name", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    named.field.add(
        name="order", number=2, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL, type_name=".shop.Order"
    )
    named.field.add(
        name="at", number=3, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL,
        type_name=".google.protobuf.Timestamp",
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Named"))


if __name__ == "__main__":
    main()
