"""NSQ's error codes: which of them close the connection, their texts, and the code of each Reason (nsq.md 1.8,
captured).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...model.errors import LadingError, MalformedMessage, Reason, Refusal
from .send_layout import BAD_EXT_LENGTH, BAD_JSON, BAD_TRACE, NO_BODY, PLAIN_TOPIC, TOO_LARGE

FATAL: Final[Mapping[str, bool]] = {
    "E_BAD_PROTOCOL": True,
    "E_INVALID": True,
    "E_BAD_BODY": True,
    "E_BAD_MESSAGE": True,
    "E_BAD_TOPIC": True,
    "E_BAD_CHANNEL": True,
    "E_BAD_PARTITION": True,
    "E_BAD_EXT": True,
    "E_TOPIC_NOT_EXIST": True,
    "E_CREATE_TOPIC_FAILED": False,
    "E_SUB_EXTEND_NEED": True,
    "E_SUB_EXTEND_FORBIDDON": True,
    "E_SUB_ORDER_IS_MUST": True,
    "E_SUB_CHANNEL_NOT_REGISTERED": True,
    "E_SUB_FAILED": True,
    "E_EXT_NOT_SUPPORT": False,
    "E_INVALID_JSON_HEADER": False,
    "INVALID_TRACE_ID": False,
    "E_PUB_TOO_MUCH_WAITING": True,
    "E_PUB_FAILED": False,
    "E_MPUB_FAILED": False,
    "E_DPUB_FAILED": False,
    "E_FIN_FAILED": False,
    "E_REQ_FAILED": False,
    "E_TOUCH_FAILED": False,
    "E_IDENTIFY_FAILED": True,
    "E_AUTH_DISABLED": True,
    "E_AUTH_FAILED": True,
    "E_AUTH_FIRST": True,
    "E_UNAUTHORIZED": True,
}
"""Every code, and whether the connection is closed after it. E_DPUB_FAILED and E_SUB_FAILED are upstream's."""

NOT_IN_FLIGHT: Final = "Message ID not in flight"
INVALID_ID: Final = "Invalid Message ID"
UPSTREAM_NOT_IN_FLIGHT: Final = "ID not in flight"
UPSTREAM_NOT_OWNED: Final = "client does not own message"
UPSTREAM_INVALID_ID: Final = "invalid message ID"
EXT_NEEDED: Final = "this topic is extended and should identify as extend support."
EXT_FORBIDDEN: Final = "this topic is not extended and should not identify as extend support."
BAD_JSON_TEXT: Final = "fail to parse json header:"
"""Prefix of the JSON parser's message in the real server; here it is followed by a message of our own."""


class NsqProtocolError(MalformedMessage):
    """An error frame for a client; ``fatal`` if the connection is closed after it."""

    def __init__(self, code: str, text: str = "", *, fatal: bool | None = None) -> None:
        # the space is sent even without a text
        super().__init__(f"{code} {text}" if code != "E_BAD_PROTOCOL" else code)
        self.code = code
        self.fatal = FATAL[code] if fatal is None else fatal


CODE_OF: Final[Mapping[Reason, str]] = {
    Reason.TOPIC_ID_NOT_FOUND: "E_TOPIC_NOT_EXIST",
    Reason.TOPIC_NAME_NOT_FOUND: "E_TOPIC_NOT_EXIST",
    Reason.STREAM_ID_NOT_FOUND: "E_TOPIC_NOT_EXIST",
    Reason.STREAM_NAME_NOT_FOUND: "E_TOPIC_NOT_EXIST",
    Reason.PARTITION_NOT_FOUND: "E_TOPIC_NOT_EXIST",
    Reason.NO_PARTITIONS: "E_TOPIC_NOT_EXIST",
    Reason.INVALID_TOPIC_NAME: "E_BAD_TOPIC",
    Reason.INVALID_CHANNEL_NAME: "E_BAD_CHANNEL",
    Reason.INVALID_PARTITION_ID: "E_BAD_PARTITION",
    Reason.PAYLOAD_TOO_LARGE: "E_BAD_MESSAGE",
    Reason.REQUEST_TOO_LARGE: "E_BAD_BODY",
    Reason.EMPTY_PAYLOAD: "E_BAD_BODY",
    Reason.TOO_MANY_PARTITIONS: "E_CREATE_TOPIC_FAILED",
    Reason.AMBIGUOUS_NAME: "E_CREATE_TOPIC_FAILED",
    Reason.TOPIC_NAME_EXISTS: "E_CREATE_TOPIC_FAILED",
}
"""The code of a refusal for any command; other refusals get the command's own error code."""

NAMELESS: Final = frozenset({"E_TOPIC_NOT_EXIST"})
"""Codes that servers send without a text."""


def fault_of(error: LadingError, failed: str) -> NsqProtocolError:
    """Return the fault to report to a client whose request ended in ``error``.

    ``failed`` is the error code for a command of this kind that failed, such as E_PUB_FAILED.
    """
    if isinstance(error, NsqProtocolError):
        return error
    code = CODE_OF.get(error.reason, failed) if isinstance(error, Refusal | MalformedMessage) else failed
    return NsqProtocolError(code, "" if code in NAMELESS else str(error))


def id_text(message_id: bytes) -> str:
    """Return a message id as errors print it: sixteen decimal bytes."""
    return "[" + " ".join(map(str, message_id)) + "]"


def publication_error(reason: int, size: int, size_max: int, topic: str, *, traced: bool = False) -> NsqProtocolError:
    """Return the error of a publication from a reason of send_layout, the ``size`` of its command, and the topic."""
    texts = {
        NO_BODY: ("E_BAD_BODY", f"invalid body size {size}"),
        TOO_LARGE: ("E_BAD_MESSAGE", f"message too big {size} > {size_max}"),
        BAD_EXT_LENGTH: ("E_BAD_BODY", f"invalid body size {size} in ext json header content length"),
        BAD_JSON: ("E_INVALID_JSON_HEADER", f"{BAD_JSON_TEXT}the ext is no JSON"),
        BAD_TRACE: ("INVALID_TRACE_ID", "invalid trace id" if traced else "passin trace id should be string"),
        PLAIN_TOPIC: ("E_EXT_NOT_SUPPORT", f"ext content not supported in topic {topic}"),
    }
    code, text = texts[reason]
    return NsqProtocolError(code, text)
