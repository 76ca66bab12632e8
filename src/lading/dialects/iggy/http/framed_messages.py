"""Messages with a header of their own as JSON: polls and sends over HTTP since 0.7 (docs/reference/protocols/iggy.md).

A poll returns the same as over a connection, checksums included: its documents are made from the same bytes.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ....model.errors import MalformedMessage
from ....model.kinds import Kind
from ..current import layout as current
from ..messages.header_block_fallback import list_headers
from ..messages.layout import TYPED
from ..zero_copy.layout import WireForm
from .text import dump

_HEAD = struct.Struct("<Q16sQQQII")
_BATCH = struct.Struct("<QQQQQQI")
_FRAME = struct.Struct("<Q16sIIIIQ")
_KIND_WORD: Final = {int(kind): kind.word for kind in Kind}


class FramedMessage(NamedTuple):
    """Header of a message, and its two blocks."""

    checksum: int
    id: int
    offset: int
    time_us: int
    origin_us: int
    headers: memoryview
    payload: memoryview


def list_zero_copy(polled: memoryview, form: WireForm) -> Iterator[FramedMessage]:
    """Yield messages as the releases 0.7 to 0.10 poll them. Raises MalformedMessage if one is cut short."""
    at = 0
    while at < len(polled):
        if len(polled) - at < form.head_bytes:
            raise MalformedMessage("a message ends inside its header", at=at)
        checksum, ident, offset, time_us, origin_us, headers_size, payload_size = _HEAD.unpack_from(polled, at)
        payload_at = at + form.head_bytes
        headers_at = payload_at + payload_size
        at = headers_at + headers_size
        yield FramedMessage(
            checksum, int.from_bytes(ident, "little"), offset, time_us, origin_us,
            polled[headers_at:at], polled[payload_at:headers_at],
        )  # fmt: skip


def list_batches(polled: memoryview) -> Iterator[FramedMessage]:
    """Yield messages as the current generation polls them. Raises MalformedMessage if one is cut short."""
    at = 0
    while at < len(polled):
        if len(polled) - at < current.BATCH_HEAD_BYTES:
            raise MalformedMessage("a batch ends inside its header", at=at)
        _, base_offset, time_us, base_origin_us, _, _, count = _BATCH.unpack_from(polled, at)
        at += current.BATCH_HEAD_BYTES
        for _ in range(count):
            if len(polled) - at < current.FRAME_HEAD_BYTES:
                raise MalformedMessage("a message ends inside its header", at=at)
            checksum, ident, offset, delta_us, headers_size, payload_size, _ = _FRAME.unpack_from(polled, at)
            payload_at = at + current.FRAME_HEAD_BYTES
            headers_at = payload_at + payload_size
            at = headers_at + headers_size
            yield FramedMessage(
                checksum, int.from_bytes(ident, "little"), base_offset + offset, time_us, base_origin_us + delta_us,
                polled[headers_at:at], polled[payload_at:headers_at],
            )  # fmt: skip


def encode_framed(
    partition: int,
    current_offset: int,
    messages: Sequence[FramedMessage],
    *,
    typed: bool,
    reserved: bool,
    context: Mapping[str, int] | None = None,
) -> bytes:
    """Return the document of a poll; ``typed`` and ``reserved`` describe the form of headers and the length of a
    message header.

    ``context`` is the history of the partition, for clients that read one.
    """
    rows = [_write_document(message, typed, reserved) for message in messages]
    document = {"partition_id": partition, "current_offset": current_offset, "count": len(rows), "messages": rows}
    return dump(document if context is None else {**document, "context": context})


def _write_document(message: FramedMessage, typed: bool, reserved: bool) -> dict[str, Any]:
    header = {
        "checksum": message.checksum,
        "id": message.id,
        "offset": message.offset,
        "timestamp": message.time_us,
        "origin_timestamp": message.origin_us,
        "user_headers_length": len(message.headers),
        "payload_length": len(message.payload),
        **({"reserved": 0} if reserved else {}),
    }
    document: dict[str, Any] = {"header": header, "payload": base64.b64encode(message.payload).decode()}
    if typed:
        document["user_headers"] = _list_typed(message.headers)
    elif message.headers:
        document["user_headers"] = _map_by_key(message.headers)
    return document


def _list_typed(block: memoryview) -> list[dict[str, Any]] | str:
    """Return keys and values with their kinds; bytes that are not headers, such as encrypted ones, stay unchanged."""
    entries = []
    for place in list_headers(block, 0, len(block), TYPED):
        if place is None or place.key_kind not in _KIND_WORD or place.kind not in _KIND_WORD:
            return base64.b64encode(block).decode()
        key = block[place.key_at : place.key_at + place.key_size]
        value = block[place.value_at : place.value_at + place.value_size]
        entries.append({"key": _write_field(place.key_kind, key), "value": _write_field(place.kind, value)})
    return entries


def _write_field(kind: int, value: memoryview) -> dict[str, str]:
    return {"kind": _KIND_WORD[kind], "value": base64.b64encode(value).decode()}


def _map_by_key(block: memoryview) -> dict[str, Any]:
    found = {}
    for place in list_headers(block, 0, len(block), 0):
        if place is None or place.kind not in _KIND_WORD:
            raise MalformedMessage("a header block has lengths or kinds that JSON has no word for")
        key = str(block[place.key_at : place.key_at + place.key_size], errors="backslashreplace")
        found[key] = _write_field(place.kind, block[place.value_at : place.value_at + place.value_size])
    return found
