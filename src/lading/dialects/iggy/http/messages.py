"""Messages as JSON: a Batch as the response to a poll, and the document of a send as a Batch (iggy.md A5)."""

from __future__ import annotations

import base64
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ....model.batch import HEADERS_TYPE, SCHEMA
from ....model.errors import CorruptError, MalformedMessage, Reason
from ....model.kinds import KIND_BY_WORD, Kind
from ....model.lazy_dataclass import lazy_dataclass
from ....model.names import key_bytes, key_text
from ....model.state import State
from ..classic.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from ..classic.primitives import Partitioning, PartitioningKind, check_partitioning
from .documents import fields_of, form_of, load_body, member, number
from .errors import wrong_document
from .text import Members, dump

_U128: Final = number(0, (1 << 128) - 1, "u128")
_KIND_WORD: Final = {int(kind): kind.word for kind in Kind}
_STATE_WORD: Final = {int(state): state.word for state in State}
_PARTITIONING: Final = {kind.name.lower(): kind for kind in PartitioningKind}


@lazy_dataclass(frozen=True, slots=True)
class SendDocument:
    """A send as it came over HTTP: the partition choice and the messages, with null for ids that the server creates."""

    partitioning: Partitioning
    batch: pa.RecordBatch


def encode_polled(batch: pa.RecordBatch, place: tuple[int, int] | None = None) -> bytes:
    """Encode the response to a poll: an array of messages, or, with ``place``, an object around it.

    ``place`` is the partition and its last offset, for releases whose clients get them. ``batch`` has only facts that
    Iggy classic can hold (see ``carrier``); a missing checksum is computed, a missing id is 0. Raises CorruptError if a
    header or state has a code without a word.
    """
    columns = [batch.column(name).to_pylist() for name in ("offset", "state", "id", "checksum", "headers", "payload")]
    times_us = batch.column("timestamp").cast(pa.int64()).to_pylist()
    messages = [
        {
            "offset": offset,
            "state": _word_of(_STATE_WORD, state, "message state"),
            "timestamp": time_us,
            "id": int.from_bytes(id_ or b"", "little"),
            "checksum": zlib.crc32(payload) if checksum is None else checksum,
            "headers": dict(map(_header_document, headers)) or None,
            "payload": base64.b64encode(payload).decode(),
        }
        for time_us, offset, state, id_, checksum, headers, payload in zip(times_us, *columns, strict=True)
    ]
    if place is None:
        return dump(messages)
    return dump({"partition_id": place[0], "current_offset": place[1], "messages": messages})


def _word_of(words: Mapping[int, str], code: int, what: str) -> str:
    if code not in words:
        raise CorruptError(f"{what} {code} has no word in JSON")
    return words[code]


def _header_document(header: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    key = key_bytes(header["key"])[0].decode(errors="backslashreplace")
    kind = _word_of(_KIND_WORD, header["kind"], f"the kind of header {key!r}, code")
    return key, {"kind": kind, "value": base64.b64encode(header["value"]).decode()}


def parse_send(body: bytes) -> SendDocument:
    """Parse the document of a send of any release: headers by key, or as a list of keys and values with kinds.

    Raises BodyError if it is not such a document; MalformedMessage with the reason, hence Iggy's code, if a message
    breaks a limit. Sums over the request are left to the codec that stores the messages.
    """
    document = fields_of(load_body(body), "the document")
    partitioning = _parse_partitioning(fields_of(member(document, "partitioning"), "partitioning"))
    messages = form_of(member(document, "messages"), "messages", list)
    if not messages:
        raise MalformedMessage("a send holds no message", reason=Reason.INVALID_COUNT)
    rows = [_parse_message(message, f"messages[{at}]") for at, message in enumerate(messages)]
    return SendDocument(check_partitioning(partitioning), _build_batch(rows))


def _parse_partitioning(document: dict[str, Any]) -> Partitioning:
    word = form_of(member(document, "kind"), "partitioning.kind", str)
    if word not in _PARTITIONING:
        raise wrong_document(f"partitioning.kind: unknown variant `{word}`, expected one of {', '.join(_PARTITIONING)}")
    value = _parse_base64(document.get("value", ""), "partitioning.value")
    kind = _PARTITIONING[word]
    return Partitioning(kind, b"" if kind == PartitioningKind.BALANCED else value)


Row = tuple[bytes | None, list[dict[str, Any]], bytes]


def _parse_message(message: Any, where: str) -> Row:
    fields = fields_of(message, where)
    payload = _parse_base64(member(fields, "payload", where), f"{where}.payload")
    if not payload:
        raise MalformedMessage(f"{where} has an empty payload", reason=Reason.EMPTY_PAYLOAD)
    # clients that send a polled message again have the id in its header
    header = fields_of(fields.get("header") or Members(), f"{where}.header")
    id_ = _parse_id(fields.get("id", header.get("id", 0)), f"{where}.id")
    headers, listed = fields.get("headers"), fields.get("user_headers")
    if isinstance(listed, Members):
        found = _parse_headers(listed, f"{where}.user_headers")
    elif listed is not None:
        found = _parse_header_list(form_of(listed, f"{where}.user_headers", list), f"{where}.user_headers")
    elif headers is not None:
        found = _parse_headers(form_of(headers, f"{where}.headers", Members), f"{where}.headers")
    else:
        found = []
    return id_.to_bytes(16, "little") if id_ else None, found, payload


def _parse_id(value: Any, where: str) -> int:
    """Return the id of a message: a number, and since 0.11 also a number as text, or a UUID."""
    if not isinstance(value, str):
        return int(_U128.of(value, where))
    if value.isascii() and value.isdigit():
        return int(_U128.from_text(value))
    try:
        return uuid.UUID(value).int
    except ValueError:
        raise wrong_document(f"{where}: invalid value, expected u128 or a UUID") from None


def _parse_header_list(entries: list[Any], where: str) -> list[dict[str, Any]]:
    found = []
    for at, entry in enumerate(entries):
        fields = fields_of(entry, f"{where}[{at}]")
        key_kind, key = _parse_field(member(fields, "key", f"{where}[{at}]"), f"{where}[{at}].key")
        kind, data = _parse_field(member(fields, "value", f"{where}[{at}]"), f"{where}[{at}].value")
        _check_sizes(key, data, f"{where}[{at}]")
        found.append({"key": key_text(key, key_kind), "kind": kind, "value": data})
    names = [str(header["key"]) for header in found]
    if len(set(names)) < len(names):
        repeated = next(name for at, name in enumerate(names) if name in names[:at])
        raise _duplicate_key_error(repeated, where)
    return found


def _duplicate_key_error(key: str, where: str) -> MalformedMessage:
    # the real server keeps the last of the two; a refusal loses nothing
    sentence = f"{where} names {key!r} twice; Iggy keeps one header a key"
    return MalformedMessage(sentence, reason=Reason.INVALID_HEADER_KEY)


def _parse_field(value: Any, where: str) -> tuple[int, bytes]:
    """Return the kind and the bytes of a header value, or of a key."""
    fields = fields_of(value, where)
    word = form_of(member(fields, "kind", where), f"{where}.kind", str)
    if word not in KIND_BY_WORD:
        raise wrong_document(f"{where}.kind: unknown variant `{word}`, expected one of {', '.join(KIND_BY_WORD)}")
    return int(KIND_BY_WORD[word]), _parse_base64(member(fields, "value", where), f"{where}.value")


def _parse_headers(members: Members, where: str) -> list[dict[str, Any]]:
    if members.repeated is not None:
        raise _duplicate_key_error(members.repeated, where)
    return [_parse_header(key, value, f"{where}.{key}") for key, value in members.items()]


def _parse_header(key: str, value: Any, where: str) -> dict[str, Any]:
    kind, data = _parse_field(value, where)
    try:
        name = key.encode()
    except UnicodeEncodeError:
        raise wrong_document(f"{where}: the key holds a lone surrogate") from None
    _check_sizes(name, data, where)
    return {"key": key_text(name), "kind": kind, "value": data}


def _check_sizes(key: bytes, value: bytes, where: str) -> None:
    # the real HTTP endpoint accepts empty and longer ones, and loses the topic at its next start (iggy.md M5)
    for size_bytes, size_max, what, reason in (
        (len(key), KEY_BYTES_MAX, "key", Reason.INVALID_HEADER_KEY),
        (len(value), VALUE_BYTES_MAX, "value", Reason.INVALID_HEADER_VALUE),
    ):
        if not 1 <= size_bytes <= size_max:
            raise MalformedMessage(f"{where}: the {what} has {size_bytes} bytes, not 1 to {size_max}", reason=reason)


def _parse_base64(value: Any, where: str) -> bytes:
    text: str = form_of(value, where, str)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise wrong_document(f"{where}: invalid base64: {error}") from None


def _build_batch(rows: Sequence[Row]) -> pa.RecordBatch:
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
