"""NSQ as a row: its name, its addresses, the messages that its readers see, the topics that it can name."""

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
)

from ..codes import NSQ
from . import limits

CHANNEL: Final = VisibilityRule("nsq", False, AbortedRecords.SKIPPED, UnavailableMessages.HIDDEN)
UNCOMMITTED_CHANNEL: Final = VisibilityRule("nsq_uncommitted", True, AbortedRecords.LISTED, UnavailableMessages.HIDDEN)
"""The rule of a channel that a share group reads with ``share.isolation.level=read_uncommitted``."""


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


DELIVERED: Final = Capabilities(
    duplicate_keys=False,
    key=False,
    null_payload=False,
    empty_payload=False,
    kind_max=None,
    id=False,
    time_us_min=0,
    binary_names=False,
    name_bytes_max=limits.EXT_BYTES_MAX,
    value_bytes_max=limits.EXT_BYTES_MAX,
    values_sum_max=limits.EXT_BYTES_MAX,
    payload_bytes_max=limits.MESSAGE_BYTES_MAX,
    whole_bytes_max=limits.MESSAGE_BYTES_MAX - 2,
    form="lading.dialects.nsq.json_form:FORM",
)
"""Messages that Lading lets NSQ clients read."""
SENT: Final = replace(
    DELIVERED,
    time_step_us=None,
    values_sum_max=limits.SENT_EXT_BYTES_MAX,
    measure="lading.transports.nsq.sizes:find_oversized",
)
"""Facts that survive sending to a server that sets its own time."""

PROTOCOL: Final = Protocol(
    name="nsq",
    title="NSQ",
    dialects=(DialectSpec(NSQ, "nsq", "lading.dialects.nsq.dialect:DIALECT"),),
    endpoints=(
        EndpointSpec("nsqd_tcp", "lading.endpoints.nsq.nsqd.server:endpoint"),
        EndpointSpec("nsqd_http", "lading.endpoints.nsq.nsqd.http_endpoint:endpoint"),
        EndpointSpec("nsqlookupd_tcp", "lading.endpoints.nsq.lookupd.tcp:endpoint"),
        EndpointSpec("nsqlookupd_http", "lading.endpoints.nsq.lookupd.endpoint:endpoint"),
    ),
    schemes={
        "nsq": Scheme("lading.transports.nsq.transport:NsqTransport", 4161, "nsq://127.0.0.1:4161", is_queue=True),
        "nsq-files": Scheme("lading.transports.nsq.files:NsqFilesTransport", None, "nsq-files:///var/lib/nsq"),
    },
    visibility=(CHANNEL,),
    capabilities={"": DELIVERED, "sent": SENT},
    topic_error=_topic_error,
)
