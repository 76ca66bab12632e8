"""Prints CloudEvents as the Python SDK encodes them for Kafka: runs in an environment with the package cloudevents."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from cloudevents.core.bindings.kafka import to_binary, to_structured  # type: ignore[import-not-found]
from cloudevents.core.formats.json import JSONFormat  # type: ignore[import-not-found]
from cloudevents.core.v1.event import CloudEvent  # type: ignore[import-not-found]

ATTRIBUTES: dict[str, Any] = {
    "id": "A-1",
    "source": "/orders/é",
    "type": "order.created",
    "subject": "acme",
    "time": datetime(2026, 1, 31, 12, 30, 0, 250_000, UTC),
    "specversion": "1.0",
    "datacontenttype": "application/json",
    "dataschema": "https://schemas.example/order",
    "partitionkey": "k",
}
ONLY_REQUIRED = {"id": "A-2", "source": "/orders", "type": "order.paid", "specversion": "1.0"}

for attributes, data in ((ATTRIBUTES, {"amount": 12.5}), (ONLY_REQUIRED, None)):
    for encode in (to_binary, to_structured):
        message = encode(CloudEvent(attributes=attributes, data=data), JSONFormat())
        value = message.value
        print(
            json.dumps(
                {
                    "headers": {key: base64.b64encode(value).decode() for key, value in message.headers.items()},
                    "value": None if value is None else base64.b64encode(value).decode(),
                }
            )
        )
