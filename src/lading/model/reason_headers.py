"""Headers that say why a copy of a message lies where it does: in a quarantine topic, or in a dead letter topic.

They stand behind the message's own headers. Whoever makes a copy of a copy replaces them, so headers never grow.
"""

from __future__ import annotations

REASON = "lading-reason"
"""One word: a check of a pipeline, or the state that was set."""
REASON_HEADER = "lading-reason-header"
"""The header that the check was about."""
DETAIL = "lading-reason-detail"
"""A sentence for people."""
ORIGIN = "lading-origin"
"""``topic/partition/offset`` of the message."""
PIPELINE = "lading-pipeline"
"""The pipeline that quarantined it."""
MARKED_AT = "lading-marked-at"
"""When its state was set, as ISO 8601 in UTC."""

REASON_HEADERS = (REASON, REASON_HEADER, DETAIL, ORIGIN, PIPELINE, MARKED_AT)
