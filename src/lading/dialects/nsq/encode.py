"""Batch -> NSQ: exts as JSON, stored messages, and the bodies of MPUB_EXT.

Facts that NSQ cannot hold have to be in a carrier already (``dialects.carrier.carry``): here only string, bool, int64,
finite float64, null, the carrier itself, and text with the mark of JSON can be encoded.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import google_crc32c
import pyarrow as pa

from lading.model.errors import LimitExceeded, MalformedMessage
from lading.model.headers import Header as BatchHeader
from lading.model.kinds import FIXED_SIZE_BYTES, Kind
from lading.model.names import key_bytes

from ..carrier.encoding import NAME as CARRIER
from . import json_mark
from .ext import Header, trace_of
from .layout import JSON_EXT, NO_EXT, OFFSET_BITS, OFFSET_MAX, TIME_NS_MAX
from .limits import CARRIER_NAME, EXT_BYTES_MAX

_HEAD: Final = struct.Struct(">II")
_FACTS: Final = struct.Struct(">qH16s")
_ID: Final = struct.Struct(">QQ")
_EXT_HEAD: Final = struct.Struct(">BH")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_INTERNAL: Final = (1 << OFFSET_BITS) - 1


text_json: Final[Callable[[str], str]] = json.JSONEncoder(ensure_ascii=False).encode
"""Returns a text as a JSON string; json.dumps would create an encoder for each call."""


def _float_json(data: bytes) -> str:
    number: float = struct.unpack("<d", data)[0]
    if not math.isfinite(number):
        raise ValueError("JSON has no form for it")
    return repr(number)


_JSON: Final[dict[int, Callable[[bytes], str]]] = {
    Kind.STRING: lambda data: text_json(data.decode()),
    Kind.BOOL: lambda data: {b"\0": "false", b"\1": "true"}[data],
    Kind.INT64: lambda data: str(int.from_bytes(data, "little", signed=True)),
    Kind.FLOAT64: _float_json,
}


def ext_of(headers: Iterable[Header]) -> bytes:
    """Return the headers of a message as a JSON ext, in their order; no bytes without headers.

    Raises LimitExceeded, naming the header, for a value that JSON cannot express, and if the ext exceeds 65,535 bytes.
    """
    members = []
    headers = list(headers)
    unquoted = _find_json_headers(headers)
    for at, (key, kind, value) in enumerate(headers):
        if unquoted and key == json_mark.NAME:
            continue
        try:
            as_it_is = at in unquoted
            members.append(f"{_name(key)}:{(value or b'').decode()}" if as_it_is else _write_member(key, kind, value))
        except (KeyError, ValueError, MalformedMessage):
            shown = f"header {key!r} of kind {kind}"
            raise LimitExceeded(f"{shown} has no form in NSQ's JSON; a carrier has to hold it") from None
    if not members:
        return b""
    ext = ("{" + ",".join(members) + "}").encode()
    if len(ext) > EXT_BYTES_MAX:
        raise LimitExceeded(f"the headers are {len(ext)} bytes of JSON; NSQ takes {EXT_BYTES_MAX}")
    return ext


def _find_json_headers(headers: Sequence[Header]) -> frozenset[int]:
    """Return the indexes of the headers whose text is written as JSON itself."""
    if all(key != json_mark.NAME for key, _, _ in headers):
        return frozenset()
    return json_mark.find_marked([BatchHeader(*each) for each in headers])


def _name(key: str) -> str:
    return text_json(key_bytes(key)[0].decode() if key.startswith("\\") else key)


def _write_member(key: str, kind: int, value: bytes | None) -> str:
    if key == CARRIER and kind == Kind.RAW and value is not None:
        return f'"{CARRIER_NAME}":"{base64.b64encode(value).decode()}"'
    name = _name(key)
    if value is None and kind == Kind.RAW:
        return f"{name}:null"
    if value is None or len(value) != FIXED_SIZE_BYTES.get(kind, len(value)):
        raise ValueError("no value of this kind")
    return f"{name}:{_JSON[kind](value)}"


def exts_and_bodies(batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    """Return ext and body of every row. Raises LimitExceeded, naming the row, for a message that NSQ cannot hold."""
    found = []
    for row, (headers, body) in enumerate(zip(_list_headers(batch), batch.column("payload").to_pylist(), strict=True)):
        if not body:
            raise LimitExceeded(
                f"message {row} has {'an empty' if body == b'' else 'a null'} payload; NSQ takes 1 byte"
            )
        try:
            found.append((ext_of(headers), body))
        except LimitExceeded as error:
            raise LimitExceeded(f"message {row}: {error}") from None
    return found


def _list_headers(batch: pa.RecordBatch) -> Iterable[list[Header]]:
    column: Any = batch.column("headers")
    ends = column.offsets.to_pylist()
    entries = column.values
    texts, kinds, values = (entries.field(part).to_pylist() for part in range(3))
    for low, high in pairwise(ends):
        yield list(zip(texts[low:high], kinds[low:high], values[low:high], strict=True))


def item(ext: bytes, body: bytes) -> bytes:
    """Return a message of MPUB_EXT, with its size in front."""
    return _U32.pack(2 + len(ext) + len(body)) + _U16.pack(len(ext)) + ext + body


def batch_body(items: Sequence[bytes]) -> bytes:
    """Return the body of an MPUB of any form from its items, without the length in front."""
    return _U32.pack(len(items)) + b"".join(items)


def record(time_ns: int, message_id: bytes, version: int, ext: bytes, body: bytes, *, attempts: int = 0) -> bytes:
    """Encode a message as it is stored; see layout.py."""
    block = bytes((version,)) if version == NO_EXT else _EXT_HEAD.pack(version, len(ext)) + ext
    data = _FACTS.pack(time_ns, attempts, message_id) + block + body
    return _HEAD.pack(len(data), google_crc32c.value(data)) + data


def encode_stored(batch: pa.RecordBatch) -> bytes:
    """Encode the messages of a Batch one after another, as ``records`` does; their offsets must be consecutive.

    Only the chunk has the first offset. Raises LimitExceeded as ``records`` does.
    """
    offsets: list[Any] = batch.column("offset").to_pylist()
    if offsets and offsets != list(range(offsets[0], offsets[0] + len(offsets))):
        raise LimitExceeded(
            f"offsets {offsets[0]} to {offsets[-1]} of {len(offsets)} messages do not follow on one another"
        )
    return b"".join(records(batch))


def records(batch: pa.RecordBatch) -> list[bytes]:
    """Encode the messages of a Batch as they are stored, with its offsets, timestamps and those ids that NSQ can hold.

    Raises LimitExceeded as ``exts_and_bodies`` does, and for an offset too large for a message id.
    """
    offsets: list[Any] = batch.column("offset").to_pylist()
    times_us: Any = batch.column("timestamp").cast(pa.int64())
    facts = zip(offsets, times_us.to_pylist(), batch.column("id").to_pylist(), exts_and_bodies(batch), strict=True)
    found = []
    for row, (offset, time_us, id_, (ext, body)) in enumerate(facts):
        if not 0 <= offset <= OFFSET_MAX:
            raise LimitExceeded(f"offset {offset} of message {row} is above 2^50 - 2; no NSQ message id holds it")
        if id_ is None or int.from_bytes(id_[:8], "big") & _INTERNAL != offset + 1:
            trace = trace_of(ext)[1] if ext else None
            id_ = _ID.pack(offset + 1, trace or 0)
        # other values are in the carrier
        time_ns = min(max(time_us, 0) * 1000, TIME_NS_MAX)
        found.append(record(time_ns, id_, JSON_EXT if ext else NO_EXT, ext, body))
    return found
