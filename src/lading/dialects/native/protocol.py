"""Our own protocol as a row: the admin endpoint, ``lading://``, directories, and what readers of raw chunks see."""

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
    accept_any_topic,
)

from ..codes import NATIVE
from . import limits

ALL_STATES: Final = VisibilityRule("native", False, AbortedRecords.SKIPPED, UnavailableMessages.SHOWN)
"""Raw chunks, directories, ``states=all``: the reader gets the states and decides."""
AVAILABLE: Final = VisibilityRule("native_available", False, AbortedRecords.SKIPPED, UnavailableMessages.HIDDEN)

STORED: Final = Capabilities()
SENT: Final = Capabilities(values_sum_max=limits.MESSAGE_BYTES_MAX, payload_bytes_max=limits.MESSAGE_BYTES_MAX)
"""Native blocks hold everything; only the size of a request bounds a message."""

PROTOCOL: Final = Protocol(
    name="native",
    title="Lading",
    dialects=(DialectSpec(NATIVE, "native", "lading.dialects.native.dialect:DIALECT"),),
    endpoints=(
        EndpointSpec("schema_registry", "lading.endpoints.registry.endpoint:endpoint"),
        EndpointSpec("admin", "lading.endpoints.admin.admin:endpoint"),
    ),
    schemes={
        "lading": Scheme("lading.transports.lading.transport:LadingTransport", 7070, "lading://127.0.0.1:7070"),
        "file": Scheme("lading.transports.files:FilesTransport", None, "file:///srv/lading/data or ./data"),
    },
    visibility=(ALL_STATES, AVAILABLE),
    capabilities={"": STORED, "sent": SENT},
    topic_error=accept_any_topic,
)
