"""Limits of NSQ; all of them are checked before memory is allocated (nsq.md 1.9, M)."""

from __future__ import annotations

import re
from typing import Final

EXT_BYTES_MAX: Final = 65_535
"""An ext is what its u16 length can say. The real server of the fork ends at 65,506 (it dies above that)."""
SENT_EXT_BYTES_MAX: Final = 65_506
"""Limit of what is sent to nsqd servers other than Lading."""
EXT_DEPTH_MAX: Final = 62
"""Nested arrays and objects of one ext; deeper JSON is refused as invalid."""
TAG_BYTES_MAX: Final = 100
MESSAGE_BYTES_MAX: Final = 1 << 20
"""The body of one message (``max-msg-size``); the ext does not count."""
REQUEST_BYTES_MAX: Final = 5 << 20
"""The body of one MPUB (``max-body-size``)."""
IDENTIFY_BYTES_MAX: Final = 64 << 10
LINE_BYTES_MAX: Final = 4096
"""A command line with its line feed."""
READY_MAX: Final = 2500
ATTEMPTS_MAX: Final = 4000
REQUEUE_MS_MAX: Final = 3 * 24 * 3_600_000
DEFER_MS_MAX: Final = 3_600_000
"""The longest delay of DPUB."""
MESSAGE_TIMEOUT_MS: Final = 60_000
MESSAGE_TIMEOUT_MS_MIN: Final = 1_000
MESSAGE_TIMEOUT_MS_MAX: Final = 900_000
HEARTBEAT_MS: Final = 30_000
HEARTBEAT_MS_MIN: Final = 1_000
HEARTBEAT_MS_MAX: Final = 60_000
NAME_BYTES_MAX: Final = 64
PARTITIONS_MAX: Final = 1 << 10

NAME: Final = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
EPHEMERAL: Final = "#ephemeral"
_UNSAYABLE: Final = re.compile(r"[^.a-zA-Z0-9_-]+")

TAG_NAME: Final = "##client_dispatch_tag"
TRACE_NAME: Final = "##trace_id"
CARRIER_NAME: Final = "##lading-carrier"
"""The reserved name under which a carrier travels, in base64 (docs/reference/carrier.md)."""


def is_name(name: str) -> bool:
    """Return whether a topic or channel may be called so."""
    return 1 <= len(name) <= NAME_BYTES_MAX and NAME.fullmatch(name) is not None


def nearest_name(name: str) -> str:
    """Return a topic or channel name that NSQ can say and that is most like ``name``."""
    plain, ephemeral = name.removesuffix(EPHEMERAL), EPHEMERAL if name.endswith(EPHEMERAL) else ""
    sayable = _UNSAYABLE.sub("-", plain).strip("-")[: NAME_BYTES_MAX - len(ephemeral)]
    return (sayable or "topic") + ephemeral
