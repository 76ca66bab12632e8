"""Headers that say why a message was copied to a quarantine topic or a dead letter topic.

They follow the message's own headers. A copy of a copy replaces them, so that headers never grow.
"""

from __future__ import annotations

REASON = "lading-reason"
"""One word: a check of a pipeline, or the state that was set."""
REASON_HEADER = "lading-reason-header"
"""The header that the check concerned."""
DETAIL = "lading-reason-detail"
"""A message for people."""
ORIGIN = "lading-origin"
"""``topic/partition/offset`` of the message."""
PIPELINE = "lading-pipeline"
"""The pipeline that quarantined it."""
MARKED_AT = "lading-marked-at"
"""When its state was set, as ISO 8601 in UTC."""

REASON_HEADERS = (REASON, REASON_HEADER, DETAIL, ORIGIN, PIPELINE, MARKED_AT)
