"""Kafka as a row: its name, its addresses, the messages that its readers see, the topics that it can name."""

from __future__ import annotations

from typing import Final

from lading.model.protocol import (
    AbortedRecords,
    Capabilities,
    DialectSpec,
    EndpointSpec,
    Protocol,
    Scheme,
    UnavailableMessages,
    VisibilityRule,
)

from ..codes import KAFKA
from . import names

COMMITTED: Final = VisibilityRule("kafka_committed", False, AbortedRecords.LISTED, UnavailableMessages.HIDDEN)
UNCOMMITTED: Final = VisibilityRule("kafka_uncommitted", True, AbortedRecords.LISTED, UnavailableMessages.HIDDEN)
COMMITTED_SHOWING: Final = VisibilityRule(
    "kafka_committed_showing", False, AbortedRecords.LISTED, UnavailableMessages.SHOWN
)
UNCOMMITTED_SHOWING: Final = VisibilityRule(
    "kafka_uncommitted_showing", True, AbortedRecords.LISTED, UnavailableMessages.SHOWN
)


def _topic_error(name: str, partitions: int) -> str | None:
    if names.is_legal(name):
        return None
    return f"a name there has 1 to {names.TOPIC_NAME_MAX} letters, digits, '.', '_' and '-', and is not '.' or '..'"


RECORDS: Final = Capabilities(
    kind_max=None,
    id=False,
    time_step_us=1000,
    text_carrier=True,
    measure="lading.transports.kafka.sizes:find_oversized",
)
"""Records have no size limits of their own: a broker's limits are for whole batches."""

PROTOCOL: Final = Protocol(
    name="kafka",
    title="Kafka",
    dialects=(DialectSpec(KAFKA, "kafka", "lading.dialects.kafka.dialect:DIALECT"),),
    endpoints=(EndpointSpec("kafka", "lading.endpoints.kafka:endpoint"),),
    schemes={"kafka": Scheme("lading.transports.kafka.transport:KafkaTransport", 9092, "kafka://127.0.0.1:9092")},
    visibility=(COMMITTED, UNCOMMITTED, COMMITTED_SHOWING, UNCOMMITTED_SHOWING),
    capabilities={"": RECORDS, "sent": RECORDS},
    topic_error=_topic_error,
)
