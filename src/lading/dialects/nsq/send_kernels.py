"""Kernels of the hot path: published bytes -> stored messages, stored messages -> frames, bursts of FIN.

``send_fallback.py`` says what each does, name by name, and gives the same bytes.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.kernels.big_endian import big16, big32, big64, byte, put_big16, put_big32, put_big64
from lading.kernels.crc32c import crc32c
from lading.kernels.json_text import (
    COLON,
    COMMA,
    ESCAPED,
    OBJECT,
    OBJECT_END,
    PLAIN,
    QUOTE,
    WIDE,
    passed_space,
    string_end,
    value_end,
)
from lading.kernels.memory import base, load8, load32, memcpy, store8

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
    PLAIN_BODY,
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
    PLAIN_FORM,
    PLAIN_TOPIC,
    SEED_HEAD_BYTES,
    TOO_LARGE,
    TRACED,
    TRACED_ANSWER_BYTES,
)

njit: Any = numba.njit
types: Any = numba.types
_int: Any = np.int64

_source = types.Array(types.uint8, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_bytes, _i64 = types.uint8[::1], types.int64[::1]
_long = types.int64

_TRACE_NAME = np.frombuffer(TRACE_NAME.encode(), np.uint8)
_TRACE_BYTES = len(TRACE_NAME)
_FIN = 0x204E4946
_FIN_BYTES = 21
_TEN, _NINE = np.uint64(10), np.uint64(9)
_MOST = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(nogil=True)
def _trace(data: Any, at: Any, size: Any) -> Any:
    """Whether these are the decimal digits of a u64, and its bits."""
    value = np.uint64(0)
    if size < 1 or size > 20:
        return False, _int(0)
    for step in range(size):
        digit = np.uint64(byte(data, at + step) - 48)
        if digit > _NINE or value > (_MOST - digit) // _TEN:
            return False, _int(0)
        value = value * _TEN + digit
    return True, _int(value)


@njit(inline="always")
def _is_trace(data: Any, at: Any, size: Any) -> Any:
    if size != _TRACE_BYTES:
        return False
    step = 0
    while step < size and load8(data, at + step) == _TRACE_NAME[step]:
        step += 1
    return step == size


@njit(nogil=True)
def _check_ext(data: Any, at: Any, end: Any) -> Any:
    """Whether servers take this as JSON; where its first trace id is (0: none, -1: no text), and its size."""
    at = passed_space(data, at, end)
    trace_at = 0
    trace_bytes = 0
    if at >= end:
        return False, trace_at, trace_bytes
    if byte(data, at) != OBJECT:
        at, _ = value_end(data, at, end)
        return at >= 0 and passed_space(data, at, end) == end, trace_at, trace_bytes
    at = passed_space(data, at + 1, end)
    if at < end and byte(data, at) == OBJECT_END:
        return passed_space(data, at + 1, end) == end, trace_at, trace_bytes
    while True:
        if at >= end or byte(data, at) != QUOTE:
            return False, trace_at, trace_bytes
        name = at + 1
        name_end, _ = string_end(data, name, end)
        if name_end < 0:
            return False, trace_at, trace_bytes
        at = passed_space(data, name_end + 1, end)
        if at >= end or byte(data, at) != COLON:
            return False, trace_at, trace_bytes
        at = passed_space(data, at + 1, end)
        stop, found = value_end(data, at, end)
        if stop < 0:
            return False, trace_at, trace_bytes
        if trace_at == 0 and _is_trace(data, name, name_end - name):
            trace_at = at + 1 if found in (PLAIN, WIDE, ESCAPED) else -1
            trace_bytes = stop - at - 2
        at = passed_space(data, stop, end)
        if at >= end:
            return False, trace_at, trace_bytes
        here = byte(data, at)
        at = passed_space(data, at + 1, end)
        if here == OBJECT_END:
            return at == end, trace_at, trace_bytes
        if here != COMMA:
            return False, trace_at, trace_bytes


@njit(nogil=True)
def _store(
    source: Any,
    at: Any,
    size: Any,
    form: Any,
    batch: Any,
    takes_ext: Any,
    target: Any,
    to: Any,
    now_ns: Any,
    ident: Any,
) -> Any:
    """One published message: where its record ends, a reason, whether it is traced, and its trace id."""
    data, out = base(source), base(target)
    body, ext, ext_bytes = at, at, 0
    trace = _int(0)
    traced = form == TRACED
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
    put_big64(out, to + TIMESTAMP, now_ns)
    put_big16(out, to + ATTEMPTS, 0)
    put_big64(out, to + ID, ident)
    put_big64(out, to + TRACE, trace)
    put_big32(out, to + LENGTH, stop - to - HEAD_BYTES)
    put_big32(out, to + CRC, _int(crc32c(target, to + TIMESTAMP, stop)))
    return stop, FINE, traced, trace


@njit(inline="always")
def _answer(out: Any, at: Any, traced: Any, ident: Any, trace: Any, offset: Any, raw_bytes: Any) -> Any:
    """The answer to one publication; where it ends."""
    put_big32(out, at, (TRACED_ANSWER_BYTES if traced else ANSWER_BYTES) - 4)
    put_big32(out, at + 4, 0)
    store8(out, at + 8, 79)
    store8(out, at + 9, 75)
    if not traced:
        return at + ANSWER_BYTES
    put_big64(out, at + 10, ident)
    put_big64(out, at + 18, trace)
    put_big64(out, at + 26, offset)
    put_big32(out, at + 34, raw_bytes)
    return at + TRACED_ANSWER_BYTES


@njit(inline="always")
def _raw_bytes(record_bytes: Any, takes_ext: Any) -> Any:
    """What a record takes in the queue of the fork's server: without our checksum, and on a plain topic without ext."""
    return record_bytes - (HEAD_BYTES - SEED_HEAD_BYTES) - (0 if takes_ext != 0 else 1)


@njit(types.UniTuple(_long, 5)(_source, *[_long] * 5, _bytes, *[_long] * 4, _bytes), nogil=True, cache=True)
def store_pubs(
    source: Any,
    at: Any,
    end: Any,
    line_bytes: Any,
    form: Any,
    takes_ext: Any,
    target: Any,
    to: Any,
    base_offset: Any,
    partition: Any,
    now_ns: Any,
    answers: Any,
) -> Any:
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
        answered = _answer(told, answered, traced, ident, trace, offset, _raw_bytes(stop - to, takes_ext))
        to = stop
        count += 1
        at = message + size
    return at, count, to, answered, reason


@njit(_long(_source, _long, _long, _bytes, *[_long] * 4), nogil=True, cache=True)
def store_alike(
    source: Any, count: Any, line_bytes: Any, target: Any, to: Any, base_offset: Any, partition: Any, now_ns: Any
) -> Any:
    data = base(source)
    at = 0
    for index in range(count):
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


@njit(types.UniTuple(_long, 4)(_source, *[_long] * 5, _bytes, *[_long] * 4, _bytes), nogil=True, cache=True)
def store_batch(
    source: Any,
    at: Any,
    end: Any,
    count: Any,
    form: Any,
    takes_ext: Any,
    target: Any,
    to: Any,
    base_offset: Any,
    partition: Any,
    now_ns: Any,
    answer: Any,
) -> Any:
    data = base(source)
    start = to
    for index in range(count):
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
    raw_bytes = to - start - count * (HEAD_BYTES - SEED_HEAD_BYTES + (0 if takes_ext != 0 else 1))
    answered = _answer(base(answer), 0, form == TRACED, ident, 0, base_offset, raw_bytes)
    return count, to, answered, FINE


@njit(_long(_source, _longs, _longs, _longs, _longs, _longs, *[_long] * 4, _bytes), nogil=True, cache=True)
def frames(
    region: Any,
    starts: Any,
    sizes: Any,
    offsets: Any,
    picked: Any,
    attempts: Any,
    partition: Any,
    with_ext: Any,
    detail: Any,
    textual: Any,
    target: Any,
) -> Any:
    data, out = base(region), base(target)
    to = 0
    for index in range(picked.size):
        message = picked[index]
        at, size, offset = starts[message], sizes[message], offsets[message]
        body = at + RECORD_BYTES_MIN
        if byte(data, at + EXT_VERSION) != NO_EXT:
            body = at + EXT_AT + big16(data, at + RECORD_BYTES_MIN)
        stop = to + PLAIN_BODY
        if with_ext != 0 and detail == 0:
            memcpy(out, to + TIMESTAMP, data, at + TIMESTAMP, size - HEAD_BYTES)
            stop = to + size
        else:
            memcpy(out, to + TIMESTAMP, data, at + TIMESTAMP, PLAIN_BODY - TIMESTAMP)
            if with_ext != 0:
                memcpy(out, stop, data, at + EXT_VERSION, body - at - EXT_VERSION)
                stop += body - at - EXT_VERSION
            if detail != 0:
                put_big64(out, stop, offset)
                put_big32(out, stop + 8, _raw_bytes(size, with_ext))
                stop += 12
            memcpy(out, stop, data, body, at + size - body)
            stop += at + size - body
        put_big32(out, to, stop - to - 4)
        put_big32(out, to + 4, 2)
        put_big16(out, to + ATTEMPTS, attempts[index])
        ident = (partition << OFFSET_BITS) | (offset + 1)
        if textual != 0:
            for place in range(16):
                digit = (ident >> (60 - 4 * place)) & 15
                store8(out, to + ID + place, digit + (48 if digit < 10 else 87))
        else:
            put_big64(out, to + ID, ident)
        to = stop
    return to


@njit(nogil=True)
def _textual_id(data: Any, at: Any) -> Any:
    ident = 0
    for place in range(16):
        letter = _int(byte(data, at + place))
        if 48 <= letter <= 57:
            digit = letter - 48
        elif 97 <= letter <= 102:
            digit = letter - 87
        else:
            return _int(-1)
        ident = (ident << 4) | digit
    return ident


@njit(types.UniTuple(_long, 2)(_source, _long, _long, _long, _i64), nogil=True, cache=True)
def take_fins(source: Any, at: Any, end: Any, textual: Any, ids: Any) -> Any:
    data = base(source)
    count = 0
    while at + _FIN_BYTES <= end and count < ids.size:
        if _int(load32(data, at)) != _FIN or byte(data, at + 20) != 10:
            break
        ids[count] = _textual_id(data, at + 4) if textual != 0 else big64(data, at + 4)
        count += 1
        at += _FIN_BYTES
    return at, count


@njit(_long(_bytes, _long, _long), nogil=True, cache=True)
def rebase(body: Any, partition: Any, base_offset: Any) -> Any:
    data = base(body)
    at = 0
    count = 0
    while body.size - at >= RECORD_BYTES_MIN:
        stop = at + HEAD_BYTES + big32(data, at)
        if stop - at < RECORD_BYTES_MIN or stop > body.size:
            return -1 - at
        put_big64(data, at + ID, (partition << OFFSET_BITS) | (base_offset + count + 1))
        put_big32(data, at + CRC, _int(crc32c(body, at + TIMESTAMP, stop)))
        count += 1
        at = stop
    return count if at == body.size else -1 - at
