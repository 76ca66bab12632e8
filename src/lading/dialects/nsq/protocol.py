"""NSQ as a row: what it is called, where it listens, what its readers see, which topics it can name."""

from __future__ import annotations

from typing import Final

from lading.model.protocol import (
    AbortedRecords,
    EndpointSpec,
    Protocol,
    Scheme,
    UnavailableMessages,
    VisibilityRule,
)

from ..codes import NSQ
from . import limits

CHANNEL: Final = VisibilityRule("nsq", False, AbortedRecords.SKIPPED, UnavailableMessages.HIDDEN)


def _topic_error(name: str, partitions: int) -> str | None:
    if not limits.is_name(name):
        return (
            f"a name there has 1 to {limits.NAME_BYTES_MAX} letters, digits, '.', '_' and '-', "
            "and may end with '#ephemeral'"
        )
    if partitions > limits.PARTITIONS_MAX:
        return (
            f"message ids there have room for {limits.PARTITIONS_MAX:,} partitions: "
            "those behind cannot be written or read"
        )
    return None


PROTOCOL: Final = Protocol(
    name="nsq",
    title="NSQ",
    dialects=(NSQ,),
    endpoints=(
        EndpointSpec("nsqd_tcp", "lading.endpoints.nsq.nsqd_tcp:endpoint"),
        EndpointSpec("nsqd_http", "lading.endpoints.nsq.nsqd_http:endpoint"),
        EndpointSpec("nsqlookupd_tcp", "lading.endpoints.nsq.nsqlookupd_tcp:endpoint"),
        EndpointSpec("nsqlookupd_http", "lading.endpoints.nsq.nsqlookupd_http:endpoint"),
    ),
    schemes={
        "nsq": Scheme("lading.transports.nsq.transport:NsqTransport", 4161, "nsq://127.0.0.1:4161", is_queue=True)
    },
    visibility=(CHANNEL,),
    topic_error=_topic_error,
)
