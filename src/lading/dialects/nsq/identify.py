"""IDENTIFY: a client's description of itself, its limits as a table, and the response (nsq.md 1.5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from ...model.lazy_dataclass import lazy_dataclass
from . import limits
from .errors import NsqProtocolError

OUTPUT_BUFFER_BYTES_MIN: Final = 64
OUTPUT_BUFFER_BYTES_MAX: Final = 65_536
OUTPUT_BUFFER_BYTES: Final = 100
OUTPUT_BUFFER_MS: Final = 50
OUTPUT_BUFFER_MS_MIN: Final = 10
OUTPUT_BUFFER_MS_MAX: Final = 1_000
DEFLATE_LEVEL: Final = 6
"""The level for a client that gives none, and the highest level by default."""
_INT64: Final = 1 << 63


@lazy_dataclass(frozen=True, slots=True)
class Identity:
    """The options of a client, with defaults; times in milliseconds, -1 for never."""

    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    feature_negotiation: bool = False
    heartbeat_ms: int = limits.HEARTBEAT_MS
    message_timeout_ms: int = limits.MESSAGE_TIMEOUT_MS
    output_buffer_bytes: int = OUTPUT_BUFFER_BYTES
    output_buffer_ms: int = OUTPUT_BUFFER_MS
    sample_rate: int = 0
    extend_support: bool = False
    desired_tag: str = ""
    ext_filter: Mapping[str, Any] | None = field(default=None, hash=False)
    tls: bool = False
    """Whether the client wants to change to TLS, if the response says so."""
    deflate: bool = False
    """Whether the client wants both directions compressed by deflate, if the response confirms it;
    ``snappy`` likewise.
    """
    deflate_level: int = 0
    snappy: bool = False
    forked: bool = False
    """Whether the client sent a member that only the fork's clients send."""


@lazy_dataclass(frozen=True, slots=True)
class _Number:
    """A number of IDENTIFY: its name in errors, its meaning if it is 0, and its range."""

    attribute: str
    called: str
    default: int
    fits: Callable[[int], bool]
    settled: Callable[[int], int] = int


_NUMBERS: Final[Mapping[str, _Number]] = {
    "heartbeat_interval": _Number(
        "heartbeat_ms",
        "heartbeat interval",
        limits.HEARTBEAT_MS,
        lambda ms: ms == -1 or limits.HEARTBEAT_MS_MIN <= ms <= limits.HEARTBEAT_MS_MAX,
    ),
    "output_buffer_size": _Number(
        "output_buffer_bytes",
        "output buffer size",
        OUTPUT_BUFFER_BYTES,
        lambda size: size == -1 or size >= OUTPUT_BUFFER_BYTES_MIN,
        lambda size: 1 if size < 0 else min(size, OUTPUT_BUFFER_BYTES_MAX),
    ),
    "output_buffer_timeout": _Number(
        "output_buffer_ms",
        "output buffer timeout",
        OUTPUT_BUFFER_MS,
        lambda ms: ms == -1 or 1 <= ms <= OUTPUT_BUFFER_MS_MAX,
        lambda ms: 0 if ms < 0 else max(ms, OUTPUT_BUFFER_MS_MIN),
    ),
    "sample_rate": _Number("sample_rate", "sample rate", 0, lambda percent: 0 <= percent <= 99),
    "msg_timeout": _Number(
        "message_timeout_ms",
        "msg timeout",
        limits.MESSAGE_TIMEOUT_MS,
        lambda ms: limits.MESSAGE_TIMEOUT_MS_MIN <= ms <= limits.MESSAGE_TIMEOUT_MS_MAX,
    ),
}
"""Numbers in the order in which servers check them."""


def _is_text(value: Any) -> bool:
    return value is None or (type(value) is str and value.encode(errors="ignore").decode() == value)


def _is_flag(value: Any) -> bool:
    return value is None or type(value) is bool


def _is_number(value: Any) -> bool:
    return value is None or (type(value) is int and -_INT64 <= value < _INT64)


def _is_object(value: Any) -> bool:
    return value is None or type(value) is dict


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("client_id", "hostname", "short_id", "long_id", "user_agent", "desired_tag"), _is_text),
    **dict.fromkeys(("feature_negotiation", "extend_support", "tls_v1", "deflate", "snappy"), _is_flag),
    **dict.fromkeys((*_NUMBERS, "deflate_level"), _is_number),
    "ext_filter": _is_object,
}
"""Types of the known keys; null counts as absent."""


_FORKED: Final = frozenset({"extend_support", "desired_tag", "ext_filter"})


def parse(body: bytes) -> Identity:
    """Return the identity in the body of an IDENTIFY. Raises NsqProtocolError E_BAD_BODY.

    Unknown keys are ignored.
    """
    document = _parse_document(body)
    values: dict[str, Any] = {}
    for key, number in _NUMBERS.items():
        given = document.get(key) or 0
        if given and not number.fits(given):
            raise NsqProtocolError("E_BAD_BODY", f"IDENTIFY {number.called} ({given}) is invalid")
        values[number.attribute] = number.settled(given) if given else number.default
    tag = document.get("desired_tag") or ""
    if len(tag.encode()) > limits.TAG_BYTES_MAX:
        size = len(tag.encode())
        raise NsqProtocolError("E_BAD_BODY", f"IDENTIFY invalid tag len {size}, exceed limit {limits.TAG_BYTES_MAX}")
    negotiates = bool(document.get("feature_negotiation"))
    return Identity(
        client_id=document.get("client_id") or document.get("short_id") or "",
        hostname=document.get("hostname") or document.get("long_id") or "",
        user_agent=document.get("user_agent") or "",
        feature_negotiation=negotiates,
        extend_support=bool(document.get("extend_support")),
        desired_tag=tag,
        ext_filter=document.get("ext_filter"),
        tls=negotiates and bool(document.get("tls_v1")),
        deflate=negotiates and bool(document.get("deflate")),
        deflate_level=document.get("deflate_level") or 0,
        snappy=negotiates and bool(document.get("snappy")),
        forked=not _FORKED.isdisjoint(document),
        **values,
    )


def _parse_document(body: bytes) -> dict[str, Any]:
    try:
        document: Any = json.loads(body)
        if document is None:
            # as for Go, null leaves everything at its default
            return {}
        if not isinstance(document, dict):
            raise ValueError("not an object")
        for key, wanted in _TYPES.items():
            if not wanted(document.get(key)):
                raise ValueError(f"{key} has another type")
    except (ValueError, RecursionError):
        raise NsqProtocolError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None
    return document


@lazy_dataclass(frozen=True, slots=True)
class Offers:
    """Changes of a connection that a listener offers its clients."""

    tls: bool = False
    deflate: bool = False
    snappy: bool = False
    deflate_level_max: int = DEFLATE_LEVEL
    forked: bool = False
    """Whether the level of deflate is chosen by the fork's rules."""


@lazy_dataclass(frozen=True, slots=True)
class Features:
    """Changes of a connection that both sides have agreed on."""

    tls: bool = False
    deflate: bool = False
    deflate_level: int = 0
    """The level in the response, also without deflate."""
    snappy: bool = False


def negotiate(identity: Identity, offers: Offers) -> Features:
    """Return the features that a client requested and the listener offers. Raises NsqProtocolError for both
    compressions.
    """
    deflate, snappy = identity.deflate and offers.deflate, identity.snappy and offers.snappy
    if deflate and snappy:
        raise NsqProtocolError("E_IDENTIFY_FAILED", "cannot enable both deflate and snappy compression")
    level = identity.deflate_level
    if offers.forked:
        # a client that gives no level gets 0, without compression
        level = max(level, 0) if deflate else 0
    elif not deflate or level <= 0:
        level = DEFLATE_LEVEL
    return Features(
        tls=identity.tls and offers.tls,
        deflate=deflate,
        deflate_level=min(level, offers.deflate_level_max),
        snappy=snappy,
    )


def answer(
    identity: Identity,
    *,
    version: str,
    features: Features = Features(),
    deflate_level_max: int = DEFLATE_LEVEL,
    auth: bool = False,
    message_timeout_ms_max: int = limits.MESSAGE_TIMEOUT_MS_MAX,
) -> bytes:
    """Return the response: OK, or the negotiated features; both sides change to ``features`` after it."""
    if not identity.feature_negotiation:
        return b"OK"
    document: dict[str, Any] = {
        "max_rdy_count": limits.READY_MAX,
        "version": version,
        "max_msg_timeout": message_timeout_ms_max,
        "msg_timeout": identity.message_timeout_ms,
        "tls_v1": features.tls,
        "deflate": features.deflate,
        "deflate_level": features.deflate_level,
        "max_deflate_level": deflate_level_max,
        "snappy": features.snappy,
        "sample_rate": identity.sample_rate,
        "auth_required": auth,
        "output_buffer_size": identity.output_buffer_bytes,
        "output_buffer_timeout": identity.output_buffer_ms,
    }
    if identity.desired_tag:
        document["desired_tag"] = identity.desired_tag
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
