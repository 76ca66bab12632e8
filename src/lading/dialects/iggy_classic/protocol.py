"""Iggy as a row: what it is called, where it listens, what its readers see."""

from __future__ import annotations

from typing import Final

from lading.model.protocol import (
    AbortedRecords,
    EndpointSpec,
    Protocol,
    Scheme,
    UnavailableMessages,
    VisibilityRule,
    accept_any_topic,
)

from ..codes import IGGY_CLASSIC

SHOWING: Final = VisibilityRule("iggy", False, AbortedRecords.SKIPPED, UnavailableMessages.SHOWN)
HIDING: Final = VisibilityRule("iggy_hiding", False, AbortedRecords.SKIPPED, UnavailableMessages.HIDDEN)
"""A poll of a topic whose settings hide states."""

PROTOCOL: Final = Protocol(
    name="iggy",
    title="Iggy",
    dialects=(IGGY_CLASSIC,),
    endpoints=(
        EndpointSpec("iggy_tcp", "lading.endpoints.iggy.session:endpoint"),
        EndpointSpec("iggy_http", "lading.endpoints.iggy.http:endpoint"),
    ),
    schemes={"iggy": Scheme("lading.transports.iggy.transport:IggyTransport", 8090, "iggy://127.0.0.1:8090")},
    visibility=(SHOWING, HIDING),
    topic_error=accept_any_topic,
)
