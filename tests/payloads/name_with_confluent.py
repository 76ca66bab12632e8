"""Sends values of subjects by each strategy to topics of each: KAFKA URL TOPIC; prints the errors as JSON.

Runs beside confluent-kafka's serialisers. The subjects are those that the serialisers choose.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

STRATEGIES = {
    "TOPIC": topic_subject_name_strategy,
    "RECORD": record_subject_name_strategy,
    "TOPIC_RECORD": topic_record_subject_name_strategy,
}
AVRO = '{"type":"record","name":"Order","namespace":"shop.avro","doc":"%s","fields":[{"name":"id","type":"long"}]}'
JSON = '{"title":"shop.json.Order","description":"%s","type":"object","properties":{"id":{"type":"integer"}}}'
PROTOBUF = "shop.proto.Outer.Order"


def make_message_class() -> Any:
    """Return the class of a message inside the second message of its file."""
    file = descriptor_pb2.FileDescriptorProto(name="named.proto", package="shop.proto", syntax="proto3")
    file.message_type.add(name="Other")
    outer = file.message_type.add(name="Outer")
    outer.nested_type.add(name="Order").field.add(name="id", number=1, label=1, type=3)
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(PROTOBUF))


def main() -> None:
    kafka, url, topic = sys.argv[1:]
    registry = SchemaRegistryClient({"url": url})
    producer = Producer({"bootstrap.servers": kafka})
    message = make_message_class()
    errors: dict[str, str | None] = {}

    def send(name: str, serialize: Any, value: Any, to: str) -> None:
        data = serialize(value, SerializationContext(to, MessageField.VALUE))

        def note(error: Any, _: object) -> None:
            errors[name] = None if error is None else error.name()

        producer.produce(to, data, on_delivery=note, partition=0)
        producer.flush(20)

    # each schema is registered once, so that its subject is the one of the serialiser's strategy
    for strategy in STRATEGIES:
        for other, choose in STRATEGIES.items():
            conf, name, to = {"subject.name.strategy": choose}, f"{strategy} {other}", f"{topic}-{strategy}"
            send(f"{name} avro", AvroSerializer(registry, AVRO % name, conf=conf), {"id": 7}, to)
            send(f"{name} json", JSONSerializer(JSON % name, registry, conf=conf), {"id": 7}, to)
        by_message = ProtobufSerializer(
            message, registry, {"use.deprecated.format": False, "subject.name.strategy": STRATEGIES[strategy]}
        )
        send(f"{strategy} {strategy} protobuf", by_message, message(id=7), f"{topic}-{strategy}")
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
