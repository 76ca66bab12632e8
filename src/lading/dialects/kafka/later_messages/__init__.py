"""Messages of Kafka 4 that ``kafka.protocol`` lacks, built as it builds its own: a class for each schema file here.

The schemas are Apache Kafka's, without their descriptions. Delete a name from the list once the library has the
message.
"""

from __future__ import annotations

from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

NAMES: Final = (
    "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch",
    "ShareAcknowledge", "DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
    "GetTelemetrySubscriptions", "PushTelemetry",
)  # fmt: skip

_MESSAGES: Final[dict[str, Any]] = {
    name: type(ApiMessage)(name, (ApiMessage,), {}, load_json=__name__)
    for api in NAMES
    for name in (f"{api}Request", f"{api}Response")
}


def __getattr__(name: str) -> Any:
    try:
        return _MESSAGES[name]
    except KeyError:
        raise AttributeError(f"{__name__} has no message {name!r}; there are {', '.join(_MESSAGES)}") from None
