"""Kernels of publishing: published bytes -> stored messages, and stored messages moved to another place in the log.

``send_fallback.py`` says what each does, name by name, and gives the same bytes.
"""

from __future__ import annotations

import numpy as np

from lading.kernels.arrays import Bytes
from lading.kernels.big_endian import big16, big32, big64, byte, put_big16, put_big32, put_big64
from lading.kernels.crc32c import crc32c
from lading.kernels.json_text import (
    COMMA,
    ESCAPED,
    OBJECT,
    OBJECT_END,
    PLAIN,
    WIDE,
    pass_member,
    read_member,
    skip_space,
    value_end,
)
from lading.kernels.memory import base, load8, memcpy, store8
from lading.kernels.signature import (
    BYTES,
    LONG,
    OUT_BYTES,
    Data,
    inline,
    int64,
    kernel,
    routine,
    several,
    uint64,
)

from .layout import (
    ATTEMPTS,
    CRC,
    EXT_VERSION,
    HEAD_BYTES,
    ID,
    JSON_EXT,
    LENGTH,
    NO_EXT,
    OFFSET_BITS,
    RECORD_BYTES_MIN,
    TIMESTAMP,
    TRACE,
)
from .layout import EXT as EXT_AT
from .limits import MESSAGE_BYTES_MAX, TRACE_NAME
from .send_layout import (
    ANSWER_BYTES,
    BAD_EXT_LENGTH,
    BAD_ITEM,
    BAD_JSON,
    BAD_TRACE,
    EXT,
    FINE,
    NO_BODY,
    OK,
    PLAIN_FORM,
    PLAIN_TOPIC,
    RESPONSE,
    SEED_HEAD_BYTES,
    TOO_LARGE,
    TRACED,
    TRACED_ANSWER_BYTES,
)

_TRACE_NAME = np.frombuffer(TRACE_NAME.encode(), np.uint8)
_TRACE_BYTES = len(TRACE_NAME)
_O, _K = OK
_0 = ord("0")
_TEN, _NINE = uint64(10), uint64(9)
_MOST = uint64(0xFFFFFFFFFFFFFFFF)


@routine
def _trace(data: Data, at: int, size: int) -> tuple[bool, int]:
    """Whether these are the decimal digits of a u64, and its bits."""
    value = uint64(0)
    if size < 1 or size > 20:
        return False, int64(0)
    for step in range(size):
        digit = uint64(byte(data, at + step) - _0)
        if digit > _NINE or value > (_MOST - digit) // _TEN:
            return False, int64(0)
        value = value * _TEN + digit
    return True, int64(value)


@inline
def _is_trace(data: Data, at: int, size: int) -> bool:
    if size != _TRACE_BYTES:
        return False
    # in bounds: ``read_member`` found a name of ``size`` bytes, as many as the other has
    step = 0
    while step < size and load8(data, at + step) == _TRACE_NAME[step]:
        step += 1
    return step == size


@routine
def _check_ext(data: Data, at: int, end: int) -> tuple[bool, int, int]:
    """Whether servers take this as JSON; the position of its first trace id (0: absent, -1: no text), and its size."""
    at = skip_space(data, at, end)
    trace_at = 0
    trace_bytes = 0
    if at >= end:
        return False, trace_at, trace_bytes
    if byte(data, at) != OBJECT:
        at, _ = value_end(data, at, end)
        return at >= 0 and skip_space(data, at, end) == end, trace_at, trace_bytes
    at = skip_space(data, at + 1, end)
    if at < end and byte(data, at) == OBJECT_END:
        return skip_space(data, at + 1, end) == end, trace_at, trace_bytes
    while True:
        name, name_end, _, at, stop, found = read_member(data, at, end)
        if stop < 0:
            return False, trace_at, trace_bytes
        if trace_at == 0 and _is_trace(data, name, name_end - name):
            trace_at = at + 1 if found in (PLAIN, WIDE, ESCAPED) else -1
            trace_bytes = stop - at - 2
        behind, at = pass_member(data, stop, end)
        if behind == OBJECT_END:
            return at == end, trace_at, trace_bytes
        if behind != COMMA:
            return False, trace_at, trace_bytes


@routine
def _store(
    source: Data,
    at: int,
    size: int,
    form: int,
    batch: int,
    takes_ext: int,
    target: Data,
    to: int,
    now_ns: int,
    ident: int,
) -> tuple[int, int, bool, int]:
    """One published message: the end of its record, a reason, whether it is traced, and its trace id."""
    # in bounds: ``source[at : at + size]`` is the message, and ``target`` has room for it and RECORD_BYTES_MIN
    # from ``to`` on; a form is read only if ``size`` covers it
    data, out = base(source), base(target)
    body, ext, ext_bytes = at, at, 0
    trace = int64(0)
    traced = form == TRACED
    # what stands before the body: a trace id, or an ext
    if form == TRACED:
        if size <= 8:
            return to, BAD_ITEM, False, trace
        trace = big64(data, at)
        body = at + 8
    elif form == EXT:
        if size <= 2:
            return to, BAD_EXT_LENGTH, False, trace
        ext_bytes = big16(data, at)
        if size <= 2 + ext_bytes:
            return to, BAD_EXT_LENGTH, False, trace
        ext = at + 2
        body = ext + ext_bytes
        if ext_bytes > 0 or batch == 0:
            good, trace_at, trace_bytes = _check_ext(data, ext, body)
            if not good:
                return to, BAD_JSON, False, trace
            if trace_at != 0:
                traced, trace = _trace(data, trace_at, trace_bytes if trace_at > 0 else 0)
                if not traced:
                    return to, BAD_TRACE, False, trace
        if takes_ext == 0:
            return to, PLAIN_TOPIC, False, trace
    # ext and body
    body_bytes = at + size - body
    stop = to + RECORD_BYTES_MIN
    if ext_bytes > 0:
        store8(out, to + EXT_VERSION, JSON_EXT)
        put_big16(out, to + RECORD_BYTES_MIN, ext_bytes)
        memcpy(out, to + EXT_AT, data, ext, ext_bytes)
        stop = to + EXT_AT + ext_bytes
    else:
        store8(out, to + EXT_VERSION, NO_EXT)
    memcpy(out, stop, data, body, body_bytes)
    stop += body_bytes
    # the head that the server gives it
    put_big64(out, to + TIMESTAMP, now_ns)
    put_big16(out, to + ATTEMPTS, 0)
    put_big64(out, to + ID, ident)
    put_big64(out, to + TRACE, trace)
    put_big32(out, to + LENGTH, stop - to - HEAD_BYTES)
    put_big32(out, to + CRC, int64(crc32c(target, to + TIMESTAMP, stop)))
    return stop, FINE, traced, trace


@inline
def _answer(out: Data, at: int, traced: int, ident: int, trace: int, offset: int, raw_bytes: int) -> int:
    """The response to one publication; return its end."""
    put_big32(out, at, (TRACED_ANSWER_BYTES if traced else ANSWER_BYTES) - 4)
    # in bounds: callers have seen to TRACED_ANSWER_BYTES
    put_big32(out, at + 4, RESPONSE)
    store8(out, at + 8, _O)
    store8(out, at + 9, _K)
    if not traced:
        return at + ANSWER_BYTES
    put_big64(out, at + 10, ident)
    put_big64(out, at + 18, trace)
    put_big64(out, at + 26, offset)
    put_big32(out, at + 34, raw_bytes)
    return at + TRACED_ANSWER_BYTES


@inline
def raw_bytes(record_bytes: int, takes_ext: int) -> int:
    """Return the bytes that a record takes in the queue of the reference server.

    Without our checksum, and on a plain topic without ext.
    """
    return record_bytes - (HEAD_BYTES - SEED_HEAD_BYTES) - (0 if takes_ext != 0 else 1)


@kernel(several(5)(BYTES, *[LONG] * 5, OUT_BYTES, *[LONG] * 4, OUT_BYTES))
def store_pubs(
    source: Bytes,
    at: int,
    end: int,
    line_bytes: int,
    form: int,
    takes_ext: int,
    target: Bytes,
    to: int,
    base_offset: int,
    partition: int,
    now_ns: int,
    answers: Bytes,
) -> tuple[int, int, int, int, int]:
    # in bounds: a command is looked at only if it lies before ``end``, and stored only if both targets have room
    data, told = base(source), base(answers)
    first = at
    count = 0
    answered = 0
    reason = FINE
    while at + line_bytes + 4 <= end:
        if count > 0:
            same = True
            for step in range(line_bytes):
                if load8(data, at + step) != load8(data, first + step):
                    same = False
                    break
            if not same:
                break
        size = big32(data, at + line_bytes)
        message = at + line_bytes + 4
        if size <= 0 or size >= 1 << 31:
            reason = NO_BODY
            break
        if size > MESSAGE_BYTES_MAX:
            reason = TOO_LARGE
            break
        if message + size > end or answered + TRACED_ANSWER_BYTES > answers.size:
            break
        if to + size + RECORD_BYTES_MIN > target.size:
            break
        offset = base_offset + count
        ident = (partition << OFFSET_BITS) | (offset + 1)
        stop, reason, traced, trace = _store(source, message, size, form, 0, takes_ext, target, to, now_ns, ident)
        if reason != FINE:
            break
        answered = _answer(told, answered, traced, ident, trace, offset, raw_bytes(stop - to, takes_ext))
        to = stop
        count += 1
        at = message + size
    return at, count, to, answered, reason


@kernel(LONG(BYTES, LONG, LONG, OUT_BYTES, *[LONG] * 4))
def store_alike(
    source: Bytes, count: int, line_bytes: int, target: Bytes, to: int, base_offset: int, partition: int, now_ns: int
) -> int:
    data = base(source)
    at = 0
    for index in range(count):
        # in bounds: line, size and body are tested against source.size one by one
        message = at + line_bytes + 4
        if message > source.size:
            return -1
        size = big32(data, at + line_bytes)
        at = message + size
        if size <= 0 or at > source.size or to + size + RECORD_BYTES_MIN > target.size:
            return -1
        ident = (partition << OFFSET_BITS) | (base_offset + index + 1)
        to, _, _, _ = _store(source, message, size, PLAIN_FORM, 0, 0, target, to, now_ns, ident)
    return to if at == source.size else -1


@kernel(several(4)(BYTES, *[LONG] * 5, OUT_BYTES, *[LONG] * 4, OUT_BYTES))
def store_batch(
    source: Bytes,
    at: int,
    end: int,
    count: int,
    form: int,
    takes_ext: int,
    target: Bytes,
    to: int,
    base_offset: int,
    partition: int,
    now_ns: int,
    answer: Bytes,
) -> tuple[int, int, int, int]:
    data = base(source)
    start = to
    for index in range(count):
        # in bounds: size and body are tested against ``end`` one by one, the record against target.size
        if at + 4 > end:
            return index, to, 0, BAD_ITEM
        size = big32(data, at)
        at += 4
        if size <= 0 or size >= 1 << 31:
            return index, to, 0, NO_BODY
        if size > MESSAGE_BYTES_MAX:
            return index, to, 0, TOO_LARGE
        if at + size > end:
            return index, to, 0, BAD_ITEM
        if to + size + RECORD_BYTES_MIN > target.size:
            return index, to, 0, BAD_ITEM
        ident = (partition << OFFSET_BITS) | (base_offset + index + 1)
        to, reason, _, _ = _store(source, at, size, form, 1, takes_ext, target, to, now_ns, ident)
        if reason != FINE:
            return index, to, 0, reason
        at += size
    if at != end:
        return count, to, 0, BAD_ITEM
    ident = (partition << OFFSET_BITS) | (base_offset + 1)
    record_bytes = to - start - count * (HEAD_BYTES - SEED_HEAD_BYTES + (0 if takes_ext != 0 else 1))
    answered = _answer(base(answer), 0, form == TRACED, ident, 0, base_offset, record_bytes)
    return count, to, answered, FINE


@kernel(several(4)(BYTES, *[LONG] * 4))
def pass_items(source: Bytes, at: int, end: int, end_max: int, count: int) -> tuple[int, int, int, int]:
    data = base(source)
    for index in range(count):
        # in bounds: a size is read only if it lies before ``end``
        if at + 4 > end:
            return index, at, at + 4, FINE
        size = big32(data, at)
        stop = at + 4 + size
        if size <= 0 or size >= 1 << 31:
            return index, at, at + 4, NO_BODY
        if size > MESSAGE_BYTES_MAX:
            return index, at, stop, TOO_LARGE
        if stop > end_max:
            return index, at, stop, BAD_ITEM
        if stop > end:
            return index, at, stop, FINE
        at = stop
    return count, at, at, FINE


@kernel(LONG(OUT_BYTES, LONG, LONG))
def rebase(body: Bytes, partition: int, base_offset: int) -> int:
    data = base(body)
    at = 0
    count = 0
    while body.size - at >= RECORD_BYTES_MIN:
        # in bounds: the head is there, and nothing is written before the whole record is
        stop = at + HEAD_BYTES + big32(data, at)
        if stop - at < RECORD_BYTES_MIN or stop > body.size:
            return -1 - at
        put_big64(data, at + ID, (partition << OFFSET_BITS) | (base_offset + count + 1))
        put_big32(data, at + CRC, int64(crc32c(body, at + TIMESTAMP, stop)))
        count += 1
        at = stop
    return count if at == body.size else -1 - at
