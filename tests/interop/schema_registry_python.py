"""Sends and reads a value in each format and both forms: KAFKA URL; runs beside confluent-kafka's serialisers."""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
)

AVRO = (
    '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":"string"}]}'
)
JSON = '{"title":"Order","type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'
KINDS = ("avro", "json", "protobuf")


def make_message_class() -> Any:
    """Return the class of a message with an imported one and a timestamp in it."""
    assert timestamp_pb2
    item = descriptor_pb2.FileDescriptorProto(name="item.proto", package="shop", syntax="proto3")
    item.message_type.add(name="Item").field.add(name="price", number=1, label=1, type=1)
    imports = ["item.proto", "google/protobuf/timestamp.proto"]
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3", dependency=imports)
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, label=1, type=3)
    order.field.add(name="item", number=2, label=1, type=11, type_name=".shop.Item")
    order.field.add(name="at", number=3, label=1, type=11, type_name=".google.protobuf.Timestamp")
    pool = descriptor_pool.Default()
    pool.Add(item)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def main(kafka: str, url: str) -> None:
    order_class = make_message_class()
    order = order_class(id=7)
    order.item.price = 2.5
    order.at.seconds = 3
    client = SchemaRegistryClient({"url": url})
    producer = Producer({"bootstrap.servers": kafka})
    # the deserialiser for Avro refuses payloads of up to five bytes even if the id is in a header
    values = {"avro": {"id": 7, "note": "a longer one"}, "json": {"id": 7}, "protobuf": order}
    for form in ({}, {"schema.id.serializer": header_schema_id_serializer}):
        serializers = {
            "avro": AvroSerializer(client, AVRO, conf=dict(form)),
            "json": JSONSerializer(JSON, client, conf=dict(form)),
            "protobuf": ProtobufSerializer(order_class, client, {"use.deprecated.format": False, **form}),
        }
        for kind, serializer in serializers.items():
            headers: list[Any] = []
            context = SerializationContext(kind, MessageField.VALUE, headers)
            value = serializer(values[kind], context)
            assert bool(headers) == bool(form), headers
            producer.produce(kind, value, headers=headers)
    assert producer.flush(20) == 0
    fresh = SchemaRegistryClient({"url": url})
    dual = {"schema.id.deserializer": dual_schema_id_deserializer}
    deserializers = {
        "avro": AvroDeserializer(fresh, conf=dict(dual)),
        "json": JSONDeserializer(None, schema_registry_client=fresh, conf=dict(dual)),
        "protobuf": ProtobufDeserializer(order_class, {"use.deprecated.format": False, **dual}, fresh),
    }
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(list(KINDS))
    read: list[str] = []
    while len(read) < 6:
        message = consumer.poll(20)
        assert message is not None and message.error() is None, message and message.error()
        kind = message.topic() or ""
        context = SerializationContext(kind, MessageField.VALUE, message.headers() or [])
        found = deserializers[kind](message.value(), context)
        assert found == values[kind], (kind, found)
        read.append(kind)
    consumer.close()
    print("read", sorted(read))
    check_client(client)


def check_client(client: SchemaRegistryClient) -> None:
    print("subjects", client.get_subjects())
    schema = Schema(AVRO.replace('"long"', '"string"'), "AVRO")
    print("compatible", client.test_compatibility("avro-value", schema))
    try:
        client.register_schema("avro-value", schema)
    except SchemaRegistryError as error:
        print("refused", error.http_status_code, error.error_code)
    client.set_compatibility("avro-value", "NONE")
    print("registered", client.register_schema_full_response("avro-value", schema).version)
    print("latest", client.get_latest_version("avro-value").version, client.get_versions("avro-value"))
    print("deleted", client.delete_subject("avro-value"), client.delete_subject("avro-value", permanent=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
