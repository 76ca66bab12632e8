"""Messages as JSON objects, one a line: what ``message poll --output json`` writes, ``message send --json`` reads."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from ..model.errors import CorruptError, LadingError, LocalError
from ..model.headers import Header, Headers
from ..model.kinds import KIND_BY_WORD, Kind, decode_value
from ..model.message import Message
from ..model.value_parsing import PARSERS

SENT: Final = ("key", "headers", "payload")
"""Fields that make the message. The other fields of a polled message name its origin and are ignored."""
OF_PLACE: Final = ("stream", "topic", "partition", "offset", "state", "timestamp_us", "id", "checksum")
HEADER_FIELDS: Final = ("key", "kind", "value")
TEXTS: Final = (Kind.RAW, Kind.STRING)


class MessageToSend(NamedTuple):
    """A line of JSON in the form of ``Producer.send``."""

    key: bytes | None
    headers: Headers
    payload: bytes | None


def to_json(message: Message) -> dict[str, Any]:
    """Return a message as a JSON object, without loss: bytes that are not text become ``{"base64": …}``."""
    return {
        "stream": message.stream, "topic": message.topic, "partition": message.partition, "offset": message.offset,
        "state": message.state.word, "timestamp_us": message.timestamp_us,
        "id": message.id.hex() if message.id is not None else None, "checksum": message.checksum,
        "key": _bytes_to_json(message.key),
        "headers": [
            {"key": key, "kind": _kind_word(kind), "value": _value_to_json(kind, data)}
            for key, kind, data in message.headers
        ],
        "payload": _bytes_to_json(message.payload),
    }  # fmt: skip


def parse_lines(lines: Iterable[bytes]) -> Iterator[MessageToSend]:
    """Yield the messages of lines of JSON; empty ones are skipped. Raises LocalError, which names the line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield parse_document(json.loads(line))
        except json.JSONDecodeError as error:
            raise LocalError(
                f"line {number}: not JSON, at column {error.colno}: {error.msg}; write one object in each line"
            ) from None
        except UnicodeError:
            raise LocalError(f"line {number}: the text is not UTF-8; save it as UTF-8") from None
        except LadingError as error:
            raise LocalError(f"line {number}: {error}") from None


def parse_document(document: Any) -> MessageToSend:
    """Return the message that a JSON object describes. Raises LocalError, which names the problem."""
    if not isinstance(document, dict):
        raise LocalError("a message is an object, such as what message poll --output json writes")
    _require_known(document, (*SENT, *OF_PLACE))
    found = Headers()
    given = document.get("headers") or []
    if not isinstance(given, list):
        raise LocalError('headers is a list, such as [{"key": "delay", "kind": "uint16", "value": 12}]')
    for header in given:
        found.add(_parse_header(header))
    return MessageToSend(_bytes_of("key", document), found, _bytes_of("payload", document))


def _parse_header(header: Any) -> Header:
    if not isinstance(header, dict) or not isinstance(header.get("key"), str):
        raise LocalError(f"header {header!r}: write an object with a key, a kind and a value")
    _require_known(header, HEADER_FIELDS)
    key, value = header["key"], header.get("value")
    # half of a surrogate pair, which JSON can write, cannot be encoded as UTF-8
    key.encode()
    named = header.get("kind", "raw" if value is None else "string")
    kind = KIND_BY_WORD.get(named) if isinstance(named, str) else named
    # a number stands for a kind that this version does not know
    if not isinstance(kind, int) or isinstance(kind, bool) or not 0 < kind < 256:
        hint = _did_you_mean(str(named), KIND_BY_WORD)
        raise LocalError(f"header {key!r}: {named!r} is not a header kind{hint}; kinds are {', '.join(KIND_BY_WORD)}")
    if value is None or isinstance(value, dict):
        return Header(key, kind, _bytes_of("value", header))
    if kind in TEXTS:
        return Header(key, kind, _bytes_of("value", header))
    parser = PARSERS.get(Kind(kind)) if kind in Kind._value2member_map_ else None
    try:
        if parser is None or isinstance(value, list):
            raise ValueError
        return Header(key, kind, parser(str(value)).data)
    except LocalError as error:
        raise LocalError(f"header {key!r}: {error}") from None
    except (ValueError, KeyError):
        raise LocalError(
            f"header {key!r}: {value!r} is not a value of kind {named}; correct the value, or choose another kind"
        ) from None


def _require_known(document: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in document:
        if name not in known:
            raise LocalError(f"field {name!r} is none of {', '.join(known)}{_did_you_mean(name, known)}")


def _kind_word(kind: int) -> str | int:
    return Kind(kind).word if kind in Kind._value2member_map_ else kind


def _value_to_json(kind: int, data: bytes | None) -> Any:
    if data is None or kind in TEXTS:
        return _bytes_to_json(data)
    try:
        value = decode_value(kind, data)
    except CorruptError:
        return _in_base64(data)
    shown = str(value) if isinstance(value, float) and value - value != 0 else value
    # values that could not be read back exactly, such as a NaN with a payload, are written as bytes
    if kind not in Kind._value2member_map_ or PARSERS[Kind(kind)](str(value)).data != data:
        return _in_base64(data)
    return shown


def _bytes_to_json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _in_base64(data)


def _in_base64(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}


def _bytes_of(name: str, document: dict[str, Any]) -> bytes | None:
    value = document.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and list(value) == ["base64"]:
            return base64.b64decode(value["base64"], validate=True)
    except (ValueError, TypeError, binascii.Error):
        pass
    raise LocalError(f'{name}: write a text, null, or bytes as {{"base64": "AP8="}}')


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    # imports pyarrow
    from ..columns.contract import did_you_mean

    return did_you_mean(word, known)
