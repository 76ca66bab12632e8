"""Refusals of the native HTTP API: the reason as a word, and the HTTP status of each reason."""

from __future__ import annotations

from typing import Final

from lading.model.errors import Reason

BAD_REQUEST, NOT_FOUND, CONFLICT, TOO_LARGE, UNAVAILABLE = 400, 404, 409, 413, 503

STATUS: Final[dict[Reason, int]] = {
    Reason.CLIENT_NOT_FOUND: NOT_FOUND,
    Reason.STREAM_ID_NOT_FOUND: NOT_FOUND,
    Reason.STREAM_NAME_NOT_FOUND: NOT_FOUND,
    Reason.TOPIC_ID_NOT_FOUND: NOT_FOUND,
    Reason.TOPIC_NAME_NOT_FOUND: NOT_FOUND,
    Reason.PARTITION_NOT_FOUND: NOT_FOUND,
    Reason.NO_PARTITIONS: NOT_FOUND,
    Reason.GROUP_NOT_FOUND: NOT_FOUND,
    Reason.GROUP_MEMBER_NOT_FOUND: NOT_FOUND,
    Reason.STREAM_ID_EXISTS: CONFLICT,
    Reason.STREAM_NAME_EXISTS: CONFLICT,
    Reason.TOPIC_ID_EXISTS: CONFLICT,
    Reason.TOPIC_NAME_EXISTS: CONFLICT,
    Reason.AMBIGUOUS_NAME: CONFLICT,
    Reason.GROUP_EXISTS: CONFLICT,
    Reason.STALE_GENERATION: CONFLICT,
    Reason.OUT_OF_SEQUENCE: CONFLICT,
    Reason.WRITER_ID_REUSED: CONFLICT,
    Reason.TRANSACTION_NOT_OPEN: CONFLICT,
    Reason.HEADERS_TOO_LARGE: TOO_LARGE,
    Reason.PAYLOAD_TOO_LARGE: TOO_LARGE,
    Reason.REQUEST_TOO_LARGE: TOO_LARGE,
    Reason.READ_ONLY: UNAVAILABLE,
    Reason.DISK_FULL: UNAVAILABLE,
    Reason.STOPPING: UNAVAILABLE,
}
"""HTTP status of a refusal; a reason without a row is a bad request."""


def status(reason: Reason) -> int:
    """Return the HTTP status that goes with a reason."""
    return STATUS.get(reason, BAD_REQUEST)
