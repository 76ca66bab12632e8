"""Facts that a message keeps when a client of the current Iggy polls or sends it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lading.model.protocol import AbortedRecords, Capabilities, UnavailableMessages, VisibilityRule

from . import limits

POLLED: Final = Capabilities(
    duplicate_keys=False,
    nulls=False,
    empties=False,
    key=False,
    null_payload=False,
    empty_payload=False,
    kind_max=limits.DECLARED_KIND_MAX,
    zero_id=False,
    time_us_min=0,
    origin_time=True,
    binary_names=False,
    typed_names=True,
    name_bytes_min=1,
    name_bytes_max=limits.KEY_BYTES_MAX,
    value_bytes_max=limits.VALUE_BYTES_MAX,
    values_sum_max=limits.HEADERS_BYTES_MAX,
    payload_bytes_max=limits.PAYLOAD_BYTES_MAX,
)
"""Messages that Lading lets clients poll."""
SENT: Final = replace(POLLED, time_step_us=None)
"""Facts that a sender passes to a server, which stamps its own time."""

READER: Final = VisibilityRule("iggy_current", False, AbortedRecords.SKIPPED, UnavailableMessages.HIDDEN)
"""A poll: messages have no field that could hold their state."""
