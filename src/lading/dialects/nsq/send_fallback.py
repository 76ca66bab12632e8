"""The readable form of ``send_kernels.py``, function by function: the same arguments, the same bytes."""

from __future__ import annotations

import re
import struct
from typing import Any, Final

import google_crc32c
import numpy as np

from lading.kernels.arrays import Bytes, Longs

from . import layout, send_layout
from .encode import record
from .ext import trace_of
from .json_text import is_json
from .layout import EXT_VERSION, HEAD_BYTES, OFFSET_BITS, RECORD_BYTES_MIN
from .limits import MESSAGE_BYTES_MAX
from .send_layout import FIN, FIN_BYTES, SEED_HEAD_BYTES, TRACED_ANSWER_BYTES

_ID: Final = struct.Struct(">QQ")
_FRAME: Final = struct.Struct(">II")
_TRACED: Final = struct.Struct(">2sQQQI")
_ITEM_SIZE: Final = struct.Struct(">i")
_DETAIL: Final = struct.Struct(">QI")
_TEXTUAL: Final = re.compile(rb"[0-7][0-9a-f]{15}")
_U64: Final = (1 << 64) - 1


class _Refused(Exception):
    """A reason of send_layout."""

    def __init__(self, reason: int) -> None:
        self.reason = reason


def _encode_message(
    message: bytes, form: int, batch: bool, takes_ext: bool, now_ns: int, ident: int
) -> tuple[bytes, int | None]:
    """Return a published message as it is stored, and its trace id."""
    ext, body = b"", message
    trace = None
    if form == send_layout.TRACED:
        if len(message) <= 8:
            raise _Refused(send_layout.BAD_ITEM)
        trace, body = int.from_bytes(message[:8], "big"), message[8:]
    elif form == send_layout.EXT:
        ext_bytes = int.from_bytes(message[:2], "big")
        if len(message) <= 2 + ext_bytes:
            raise _Refused(send_layout.BAD_EXT_LENGTH)
        ext, body = message[2 : 2 + ext_bytes], message[2 + ext_bytes :]
        if ext or not batch:
            if not is_json(ext):
                raise _Refused(send_layout.BAD_JSON)
            present, trace = trace_of(ext)
            if present and trace is None:
                raise _Refused(send_layout.BAD_TRACE)
        if not takes_ext:
            raise _Refused(send_layout.PLAIN_TOPIC)
    version = layout.JSON_EXT if ext else layout.NO_EXT
    return record(now_ns, _ID.pack(ident, trace or 0), version, ext, body), trace


def _build_response(ident: int, trace: int | None, offset: int, raw_bytes: int) -> bytes:
    data = b"OK" if trace is None else _TRACED.pack(b"OK", ident, trace, offset, raw_bytes)
    return _FRAME.pack(4 + len(data), 0) + data


def _raw_bytes(record_bytes: int, takes_ext: bool) -> int:
    return record_bytes - (HEAD_BYTES - SEED_HEAD_BYTES) - (not takes_ext)


def _put(target: Bytes, at: int, data: bytes) -> int:
    target[at : at + len(data)] = np.frombuffer(data, np.uint8)
    return at + len(data)


def store_pubs(
    source: Bytes,
    at: int,
    end: int,
    line_bytes: int,
    form: int,
    takes_ext: bool,
    target: Bytes,
    to: int,
    base_offset: int,
    partition: int,
    now_ns: int,
    answers: Bytes,
) -> tuple[int, int, int, int, int]:
    """Store a run of whole PUB commands with the same line at ``source[at:end]`` as messages at ``target[to:]``.

    Returns the position after the last one taken, their number, their end in ``target``, the bytes of ``answers``, and
    why the next is refused (0: the next is not whole or has another line, or room is lacking).
    """
    data = source.data
    line = bytes(data[at : at + line_bytes])
    count = answered = 0
    while at + line_bytes + 4 <= end and bytes(data[at : at + line_bytes]) == line:
        size = int.from_bytes(data[at + line_bytes : at + line_bytes + 4], "big", signed=True)
        message = at + line_bytes + 4
        if size <= 0:
            return at, count, to, answered, send_layout.NO_BODY
        if size > MESSAGE_BYTES_MAX:
            return at, count, to, answered, send_layout.TOO_LARGE
        if message + size > end or answered + TRACED_ANSWER_BYTES > answers.size:
            break
        if to + size + RECORD_BYTES_MIN > target.size:
            break
        offset = base_offset + count
        ident = partition << OFFSET_BITS | offset + 1
        try:
            made, trace = _encode_message(bytes(data[message : message + size]), form, False, takes_ext, now_ns, ident)
        except _Refused as refused:
            return at, count, to, answered, refused.reason
        to = _put(target, to, made)
        answered = _put(answers, answered, _build_response(ident, trace, offset, _raw_bytes(len(made), takes_ext)))
        count, at = count + 1, message + size
    return at, count, to, answered, send_layout.FINE


def store_alike(
    source: Bytes, count: int, line_bytes: int, target: Bytes, to: int, base_offset: int, partition: int, now_ns: int
) -> int:
    """Return the ``count`` PUB commands without headers that ``source`` is, as stored messages at ``target[to:]``.

    Returns the end of the last one; -1 if the input is not just these commands, or room is lacking.
    """
    data = source.data
    at = 0
    for index in range(count):
        message = at + line_bytes + 4
        size = int.from_bytes(data[at + line_bytes : message], "big", signed=True) if message <= source.size else 0
        at = message + size
        if size <= 0 or at > source.size or to + size + RECORD_BYTES_MIN > target.size:
            return -1
        ident = partition << OFFSET_BITS | (base_offset + index + 1)
        made, _ = _encode_message(bytes(data[message:at]), send_layout.PLAIN_FORM, False, False, now_ns, ident)
        to = _put(target, to, made)
    return to if at == source.size else -1


def store_batch(
    source: Bytes,
    at: int,
    end: int,
    count: int,
    form: int,
    takes_ext: bool,
    target: Bytes,
    to: int,
    base_offset: int,
    partition: int,
    now_ns: int,
    answer: Bytes,
) -> tuple[int, int, int, int]:
    """Return the ``count`` items of an MPUB, which are just ``source[at:end]``, as stored messages at ``target[to:]``.

    Returns their number, their end, the bytes of ``answer``, and the reason that the item after them is refused for:
    then nothing of the request is to be kept.
    """
    data = source.data
    start = to
    for index in range(count):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if at + 4 > end:
            return index, to, 0, send_layout.BAD_ITEM
        if size <= 0 or size > MESSAGE_BYTES_MAX:
            return index, to, 0, send_layout.NO_BODY if size <= 0 else send_layout.TOO_LARGE
        if at + 4 + size > end or to + size + RECORD_BYTES_MIN > target.size:
            return index, to, 0, send_layout.BAD_ITEM
        at += 4
        ident = partition << OFFSET_BITS | base_offset + index + 1
        try:
            made, _ = _encode_message(bytes(data[at : at + size]), form, True, takes_ext, now_ns, ident)
        except _Refused as refused:
            return index, to, 0, refused.reason
        to = _put(target, to, made)
        at += size
    if at != end:
        return count, to, 0, send_layout.BAD_ITEM
    ident = partition << OFFSET_BITS | base_offset + 1
    raw_bytes = to - start - count * (HEAD_BYTES - SEED_HEAD_BYTES + (not takes_ext))
    told = _build_response(ident, 0 if form == send_layout.TRACED else None, base_offset, raw_bytes)
    return count, to, _put(answer, 0, told), send_layout.FINE


def pass_items(source: Bytes, at: int, end: int, end_max: int, count: int) -> tuple[int, int, int, int]:
    """Return how many of the ``count`` items of an MPUB, which begin at ``source[at:end]``, are whole.

    Then the start of the first that is not, the position up to which bytes are needed to judge it, and the reason that
    it is refused for: its size, or (BAD_ITEM) that it ends after ``end_max``.
    """
    data, read_size = source.data, _ITEM_SIZE.unpack_from
    for index in range(count):
        if at + 4 > end:
            return index, at, at + 4, send_layout.FINE
        (size,) = read_size(data, at)
        stop = at + 4 + size
        if size <= 0:
            return index, at, at + 4, send_layout.NO_BODY
        if size > MESSAGE_BYTES_MAX or stop > end_max:
            return index, at, stop, send_layout.TOO_LARGE if size > MESSAGE_BYTES_MAX else send_layout.BAD_ITEM
        if stop > end:
            return index, at, stop, send_layout.FINE
        at = stop
    return count, at, at, send_layout.FINE


def frames(
    region: Bytes,
    starts: Longs,
    sizes: Longs,
    offsets: Longs,
    picked: Longs,
    attempts: Longs,
    partition: int,
    with_ext: bool,
    detail: bool,
    textual: bool,
    target: Bytes,
) -> int:
    """Write frames of the ``picked`` messages among those at ``starts`` into ``target``; returns their bytes."""
    data = region.data
    to = 0
    for message, tried in zip(picked.tolist(), attempts.tolist(), strict=True):
        at, size, offset = int(starts[message]), int(sizes[message]), int(offsets[message])
        stored = bytes(data[at : at + size])
        version = stored[EXT_VERSION]
        body = RECORD_BYTES_MIN
        if version != layout.NO_EXT:
            body = layout.EXT + int.from_bytes(stored[RECORD_BYTES_MIN : layout.EXT], "big")
        ident = partition << OFFSET_BITS | offset + 1
        parts = [
            stored[layout.TIMESTAMP : layout.ATTEMPTS],
            (tried & 0xFFFF).to_bytes(2, "big"),
            b"%016x" % ident if textual else ident.to_bytes(8, "big") + stored[layout.TRACE : layout.EXT_VERSION],
            stored[EXT_VERSION:body] if with_ext else b"",
            _DETAIL.pack(offset, _raw_bytes(size, with_ext)) if detail else b"",
            stored[body:],
        ]
        frame = b"".join(parts)
        to = _put(target, to, _FRAME.pack(4 + len(frame), 2) + frame)
    return to


def take_fins(source: Bytes, at: int, end: int, textual: bool, ids: Any) -> tuple[int, int]:
    """Return a run of ``FIN`` commands: position after it and how many; the internal half of each id goes to ``ids``.

    ``textual`` ids are 16 digits to base 16; an invalid one is noted as -1.
    """
    data = source.data
    count = 0
    while at + FIN_BYTES <= end and count < len(ids):
        if bytes(data[at : at + 4]) != FIN or data[at + 20] != 10:
            break
        told = bytes(data[at + 4 : at + 20])
        if textual:
            ids[count] = int(told, 16) if _TEXTUAL.fullmatch(told) else -1
        else:
            ids[count] = int.from_bytes(told[:8], "big", signed=True)
        count, at = count + 1, at + FIN_BYTES
    return at, count


def rebase(body: Bytes, partition: int, base_offset: int) -> int:
    """Give the messages in ``body`` the ids of another place in the log.

    Returns how many there are, or -1 - the position of bytes that are not a message.
    """
    at = count = 0
    while body.size - at >= RECORD_BYTES_MIN:
        stop = at + HEAD_BYTES + int.from_bytes(body[at : at + 4].tobytes(), "big")
        if stop - at < RECORD_BYTES_MIN or stop > body.size:
            return -1 - at
        _put(body, at + layout.ID, (partition << OFFSET_BITS | base_offset + count + 1).to_bytes(8, "big"))
        crc = google_crc32c.value(body[at + layout.TIMESTAMP : stop].tobytes())
        _put(body, at + layout.CRC, crc.to_bytes(4, "big"))
        count, at = count + 1, stop
    return count if at == body.size else -1 - at
