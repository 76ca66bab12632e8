"""Messages as JSON: a Batch as the answer to a poll, and the document of a send as a Batch (iggy.md A5)."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ...model.batch import HEADERS_TYPE, SCHEMA
from ...model.errors import CorruptError, MalformedMessage, Reason
from ...model.kinds import KIND_BY_WORD, Kind
from ...model.names import key_bytes, key_text
from ...model.state import State
from ..iggy_classic.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from ..iggy_classic.primitives import Partitioning, PartitioningKind, check_partitioning
from .documents import fields_of, form_of, load_body, member, number
from .errors import wrong_document
from .text import Members, dump

_U128: Final = number(0, (1 << 128) - 1, "u128")
_KIND_WORD: Final = {int(kind): kind.word for kind in Kind}
_STATE_WORD: Final = {int(state): state.word for state in State}
_PARTITIONING: Final = {kind.name.lower(): kind for kind in PartitioningKind}


@dataclass(frozen=True, slots=True)
class SendDocument:
    """A send as it came over HTTP: the partition choice and the messages, ids null where the server is to make them."""

    partitioning: Partitioning
    batch: pa.RecordBatch


def encode_polled(batch: pa.RecordBatch) -> bytes:
    """The array that answers a poll.

    ``batch`` holds what Iggy classic can hold (see ``carrier``); a missing checksum is computed, a missing id is 0.
    CorruptError where a header or state has a code without a word.
    """
    columns = [batch.column(name).to_pylist() for name in ("offset", "state", "id", "checksum", "headers", "payload")]
    times_us = batch.column("timestamp").cast(pa.int64()).to_pylist()
    return dump(
        [
            {
                "offset": offset,
                "state": _word(_STATE_WORD, state, "message state"),
                "timestamp": time_us,
                "id": int.from_bytes(id_ or b"", "little"),
                "checksum": zlib.crc32(payload) if checksum is None else checksum,
                "headers": dict(map(_header_document, headers)) or None,
                "payload": base64.b64encode(payload).decode(),
            }
            for time_us, offset, state, id_, checksum, headers, payload in zip(times_us, *columns, strict=True)
        ]
    )


def _word(words: Mapping[int, str], code: int, what: str) -> str:
    if code not in words:
        raise CorruptError(f"{what} {code} has no word in JSON")
    return words[code]


def _header_document(header: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    key = key_bytes(header["key"])[0].decode(errors="backslashreplace")
    kind = _word(_KIND_WORD, header["kind"], f"the kind of header {key!r}, code")
    return key, {"kind": kind, "value": base64.b64encode(header["value"]).decode()}


def parse_send(body: bytes) -> SendDocument:
    """The document of a send.

    BodyError where it is none; MalformedMessage with the reason, hence Iggy's code, where a message breaks a limit.
    Sums over the request are left to the codec that stores the messages.
    """
    document = fields_of(load_body(body), "the document")
    partitioning = _partitioning(fields_of(member(document, "partitioning"), "partitioning"))
    messages = form_of(member(document, "messages"), "messages", list)
    if not messages:
        raise MalformedMessage("a send holds no message", reason=Reason.INVALID_COUNT)
    rows = [_message(message, f"messages[{at}]") for at, message in enumerate(messages)]
    return SendDocument(check_partitioning(partitioning), _batch(rows))


def _partitioning(document: dict[str, Any]) -> Partitioning:
    word = form_of(member(document, "kind"), "partitioning.kind", str)
    if word not in _PARTITIONING:
        raise wrong_document(f"partitioning.kind: unknown variant `{word}`, expected one of {', '.join(_PARTITIONING)}")
    value = _base64(document.get("value", ""), "partitioning.value")
    kind = _PARTITIONING[word]
    return Partitioning(kind, b"" if kind == PartitioningKind.BALANCED else value)


Row = tuple[bytes | None, list[dict[str, Any]], bytes]


def _message(message: Any, where: str) -> Row:
    fields = fields_of(message, where)
    payload = _base64(member(fields, "payload", where), f"{where}.payload")
    if not payload:
        raise MalformedMessage(f"{where} has an empty payload", reason=Reason.EMPTY_PAYLOAD)
    id_ = _U128.of(fields.get("id", 0), f"{where}.id")
    headers = fields.get("headers")
    return (
        id_.to_bytes(16, "little") if id_ else None,
        [] if headers is None else _headers(form_of(headers, f"{where}.headers", Members), f"{where}.headers"),
        payload,
    )


def _headers(members: Members, where: str) -> list[dict[str, Any]]:
    if members.repeated is not None:
        # the real server keeps the last of the two; refusing loses nothing
        sentence = f"{where} names {members.repeated!r} twice; Iggy keeps one header a key"
        raise MalformedMessage(sentence, reason=Reason.INVALID_HEADER_KEY)
    return [_header(key, value, f"{where}.{key}") for key, value in members.items()]


def _header(key: str, value: Any, where: str) -> dict[str, Any]:
    fields = fields_of(value, where)
    word = form_of(member(fields, "kind", where), f"{where}.kind", str)
    if word not in KIND_BY_WORD:
        raise wrong_document(f"{where}.kind: unknown variant `{word}`, expected one of {', '.join(KIND_BY_WORD)}")
    data = _base64(member(fields, "value", where), f"{where}.value")
    try:
        name = key.encode()
    except UnicodeEncodeError:
        raise wrong_document(f"{where}: the key holds a lone surrogate") from None
    # the real HTTP face takes empty and longer ones and loses the topic at its next start (iggy.md M5)
    for size_bytes, size_max, what, reason in (
        (len(name), KEY_BYTES_MAX, "key", Reason.INVALID_HEADER_KEY),
        (len(data), VALUE_BYTES_MAX, "value", Reason.INVALID_HEADER_VALUE),
    ):
        if not 1 <= size_bytes <= size_max:
            raise MalformedMessage(f"{where}: the {what} has {size_bytes} bytes, not 1 to {size_max}", reason=reason)
    return {"key": key_text(name), "kind": int(KIND_BY_WORD[word]), "value": data}


def _base64(value: Any, where: str) -> bytes:
    text: str = form_of(value, where, str)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise wrong_document(f"{where}: invalid base64: {error}") from None


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    count = len(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(count), pa.int64()),
            pa.array([int(State.AVAILABLE)] * count, pa.int8()),
            pa.array([0] * count, SCHEMA.field("timestamp").type),
            pa.array([row[0] for row in rows], pa.binary(16)),
            pa.nulls(count, pa.uint32()),
            pa.nulls(count, pa.binary()),
            pa.array([row[1] for row in rows], HEADERS_TYPE),
            pa.array([row[2] for row in rows], pa.binary()),
        ],
        schema=SCHEMA,
    )
