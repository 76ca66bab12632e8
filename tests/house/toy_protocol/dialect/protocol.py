"""The toy as a row: what it is called, where it listens, what its readers see, what its messages keep."""

from __future__ import annotations

from dataclasses import replace
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
    accept_any_topic,
)

from . import limits

CODE: Final = 200
READER: Final = VisibilityRule("toy", False, AbortedRecords.SKIPPED, UnavailableMessages.HIDDEN)
READ: Final = Capabilities(
    nulls=False,
    key=False,
    null_payload=False,
    kind_max=limits.KIND_MAX,
    id=False,
    binary_names=False,
    name_bytes_min=1,
    name_bytes_max=limits.NAME_BYTES_MAX,
    value_bytes_max=limits.VALUE_BYTES_MAX,
    values_sum_max=limits.VALUES_BYTES_MAX,
    payload_bytes_max=limits.PAYLOAD_BYTES_MAX,
)
SENT: Final = replace(READ, time_step_us=None)

PROTOCOL: Final = Protocol(
    name="toy",
    title="Toy",
    dialects=(DialectSpec(CODE, "toy", "tests.house.toy_protocol.dialect.dialect:DIALECT"),),
    endpoints=(EndpointSpec("toy", "tests.house.toy_protocol.endpoint.endpoint:endpoint"),),
    schemes={"toy": Scheme("tests.house.toy_protocol.transport:ToyTransport", 7777, "toy://127.0.0.1:7777")},
    visibility=(READER,),
    capabilities={"": READ, "sent": SENT},
    topic_error=accept_any_topic,
)
