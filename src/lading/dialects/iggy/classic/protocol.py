"""Iggy as a row: its name, its addresses, the messages that its readers see."""

from __future__ import annotations

from dataclasses import replace
from socket import SocketKind
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

from ...codes import IGGY_CLASSIC, IGGY_CURRENT, IGGY_ZERO_COPY
from . import limits

SHOWING: Final = VisibilityRule("iggy", False, AbortedRecords.SKIPPED, UnavailableMessages.SHOWN)
HIDING: Final = VisibilityRule("iggy_hiding", False, AbortedRecords.SKIPPED, UnavailableMessages.HIDDEN)
"""A poll of a topic whose settings hide states, or in a form without a field for the state."""

POLLED: Final = Capabilities(
    duplicate_keys=False,
    nulls=False,
    empties=False,
    key=False,
    null_payload=False,
    empty_payload=False,
    kind_max=limits.KIND_MAX,
    zero_id=False,
    time_us_min=0,
    binary_names=False,
    name_bytes_min=1,
    name_bytes_max=limits.KEY_BYTES_MAX,
    value_bytes_max=limits.VALUE_BYTES_MAX,
    values_sum_max=limits.REQUEST_HEADER_VALUES_BYTES_MAX,
    payload_bytes_max=limits.REQUEST_PAYLOADS_BYTES_MAX,
)
"""Messages that Lading lets Iggy clients poll."""
ZERO_COPY_POLLED: Final = replace(POLLED, origin_time=True)
"""The capabilities of polled messages for clients of 0.7 to 0.10."""
SENT: Final = replace(POLLED, time_step_us=None)
"""Facts that a sender passes to a server that keeps the order of headers, as Lading does."""
UNORDERED: Final = replace(SENT, order=False)
"""The capabilities of a server that shuffles headers, as the real one of this generation does."""

PROTOCOL: Final = Protocol(
    name="iggy",
    title="Iggy",
    dialects=(
        DialectSpec(IGGY_CLASSIC, "iggy_classic", "lading.dialects.iggy.classic.dialect:DIALECT"),
        DialectSpec(IGGY_ZERO_COPY, "iggy_zero_copy", "lading.dialects.iggy.zero_copy.dialect:DIALECT"),
        DialectSpec(IGGY_CURRENT, "iggy_current", "lading.dialects.iggy.current.dialect:DIALECT"),
    ),
    endpoints=(
        EndpointSpec("iggy_tcp", "lading.endpoints.iggy.endpoint:create_tcp"),
        EndpointSpec("iggy_quic", "lading.endpoints.iggy.endpoint:create_quic", SocketKind.SOCK_DGRAM),
        EndpointSpec("iggy_websocket", "lading.endpoints.iggy.endpoint:create_websocket"),
        EndpointSpec("iggy_http", "lading.endpoints.iggy.http.http:endpoint"),
    ),
    schemes={
        "iggy": Scheme("lading.transports.iggy.transport:IggyTransport", 8090, "iggy://127.0.0.1:8090"),
        "iggy-files": Scheme(
            "lading.transports.iggy.files:IggyFilesTransport", None, "iggy-files:///srv/iggy/local_data"
        ),
    },
    visibility=(SHOWING, HIDING),
    capabilities={"": POLLED, "sent": SENT, "unordered": UNORDERED},
    topic_error=accept_any_topic,
)
