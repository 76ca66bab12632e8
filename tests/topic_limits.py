"""A topic's own limit, set as an administrator of Kafka does."""

from __future__ import annotations

from tests.endpoints.kafka_frames import KafkaFrames


def limit_messages(address: str, topic: str, size_bytes: int) -> None:
    """Set ``max.message.bytes`` of a topic at a Kafka endpoint."""
    configure_topic(address, topic, "max.message.bytes", str(size_bytes))


def configure_topic(address: str, topic: str, name: str, value: str) -> None:
    """Set one setting of a topic at a Kafka endpoint."""
    change = {"name": name, "value": value, "config_operation": 0}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
    answer = KafkaFrames(address).ask("IncrementalAlterConfigs", 0, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code == 0
