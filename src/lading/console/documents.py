"""Messages as the page shows them: shortened in a list, or one message with every byte."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection
from typing import Any, Final
from zlib import crc32

import pyarrow as pa

from ..client.message_json import to_json
from ..model.errors import CorruptError, LadingError
from ..model.kinds import Kind, decode_value
from ..model.message import Message
from ..payloads.decoded import OF_FORM, DecodedPayload, decode_by_form
from ..payloads.form import JSON_FORM, PayloadForm
from ..payloads.paths import Path, parse_path, write_path
from ..payloads.walk import walk_json
from ..registry.payload_form import RegistrySchemas
from .masks import NO_MASK, TopicMask

LIST_HEADERS_MAX: Final = 60
"""The number of headers of a message that a list shows, besides the columns."""
LIST_JSON_BYTES_MAX: Final = 65_536
LIST_PATHS_MAX: Final = 30
LIST_DEPTH_MAX: Final = 4
"""JSON payloads up to this size are parsed; of each this many paths are listed, with up to this many names."""
LIST_TEXT_MAX: Final = 400
"""The number of characters of a value, key or payload that a list shows."""


def summarize(
    message: Message,
    columns: Collection[str] = (),
    mask: TopicMask = NO_MASK,
    decode: Callable[[Message], DecodedPayload | None] = lambda message: None,
) -> dict[str, Any]:
    """Return a message for a list. Headers are [key, kind, text, size in bytes, what the text is].

    ``decode`` returns the payload by its schema, or None; a decoded payload is shown in place of the bytes.
    """
    decoded = decode(message)
    text = None if decoded is None else mask.mask_text(decoded.text)
    whole, message = message, mask.mask_message(message, LIST_JSON_BYTES_MAX)
    is_hidden = whole.payload is not None and message.payload is None
    headers = message.headers
    shown = [one for at, one in enumerate(headers) if at < LIST_HEADERS_MAX or one.key in columns]
    return _place_of(message) | {
        "key": _MASKED_TEXT if mask.has_key and whole.key is not None else _show_text(message.key),
        "payload": _show_text(text.encode(errors="backslashreplace"))
        if text is not None
        else _MASKED_TEXT
        if is_hidden
        else _show_text(message.payload),
        "decoded": None if decoded is None or text is None else f"{decoded.kind} {decoded.schema}".strip(),
        "payload_bytes": None if message.payload is None else len(message.payload),
        "headers": [
            [_cut(key), _kind_word(kind), *(_MASKED_VALUE if key in mask.headers else _show_value(kind, data))]
            for key, kind, data in shown
        ],
        "headers_count": len(headers),
        "paths": list_paths(message.payload),
        "members": _read_members(message.payload, columns),
    }


_MASKED_TEXT: Final = {"text": "", "form": "masked", "bytes": None, "cut": False}
_MASKED_VALUE: Final = (None, None, "masked")


def list_paths(payload: bytes | None) -> list[str]:
    """Return the paths of a JSON payload that columns can be picked from, the first ones; none of another payload."""
    if payload is None or len(payload) > LIST_JSON_BYTES_MAX or payload.lstrip()[:1] != b"{":
        return []
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return []
    paths: list[str] = []
    todo: list[tuple[Path, Any]] = [((), document)]
    while todo and len(paths) < LIST_PATHS_MAX:
        path, value = todo.pop()
        if isinstance(value, dict) and value and len(path) < LIST_DEPTH_MAX:
            todo += [((*path, name), value[name]) for name in reversed(list(value))]
        elif path:
            paths.append(write_path(path))
    return paths


def _read_members(payload: bytes | None, columns: Collection[str]) -> dict[str, Any]:
    """Return the values of the ``columns`` that are paths, by path; null if the payload has no such value."""
    paths = {text: path for text in columns if (path := parse_path(text)) is not None}
    if not paths:
        return {}
    walked = walk_json(pa.array([payload], pa.binary()), paths.values())
    values: dict[str, Any] = {}
    for text, path in paths.items():
        located, _ = walked.values[path].locate(whole_numbers=False)
        start, length = int(located.start[0]), int(located.length[0])
        values[text] = None if length < 0 else _show_text(bytes(located.data[start : start + length]))
    return values


def show_whole(message: Message, form: PayloadForm = JSON_FORM, mask: TopicMask = NO_MASK) -> dict[str, Any]:
    """Return one message with all bytes: of key, payload and header values in base64, and as the command line does.

    With a registry in ``form``, a payload that names its schema is also decoded. ``masked`` names the masked parts,
    which no other field contains.
    """
    whole, message = message, mask.mask_message(message)
    document = _place_of(message) | {
        "decoded": _decode(whole, form, mask),
        "id": message.id.hex() if message.id is not None else None,
        "checksum": message.checksum,
        "checksum_holds": _checksum_holds(whole),
        "key": _encode_base64(message.key),
        "payload": _encode_base64(message.payload),
        "headers": [
            {"key": key, "kind": _kind_word(kind), "kind_number": int(kind), "text": _whole_text(kind, data),
             "value": _encode_base64(data)} | ({"masked": True} if key in mask.headers else {})
            for key, kind, data in message.headers
        ],
        "json": to_json(message),
    }  # fmt: skip
    if mask:
        payload = "fields" if mask.paths and message.payload is not None else None
        document["masked"] = {
            "key": mask.has_key and whole.key is not None,
            "payload": "all" if whole.payload is not None and message.payload is None else payload,
            "checksum": message.checksum != whole.checksum,
        }
    return document


def _decode(message: Message, form: PayloadForm, mask: TopicMask) -> dict[str, Any] | None:
    if not form.has_schema:
        return None
    try:
        found = decode_by_form(form, message)
    except LadingError as error:
        # if the registry is unreachable, the page shows the bytes
        return {"schema": None, "url": None, "text": None, "problem": str(error)}
    if found is None:
        return None
    path = "ids" if isinstance(found.name, int) else "guids"
    text, problem = mask.mask_text(found.text), found.problem
    if mask.paths and text is None:
        # a problem may quote the payload
        problem = "the payload does not fit its schema, or is not an object; it has masked fields"
    return {
        "schema": f"{found.kind} {found.schema}".strip(), "text": text, "problem": problem,
        "url": f"{form.source.address.url.rstrip('/')}/schemas/{path}/{found.name}"
        if isinstance(form.source, RegistrySchemas) and found.name != OF_FORM
        else None,
    }  # fmt: skip


def _place_of(message: Message) -> dict[str, Any]:
    # JavaScript has no whole numbers beyond 2**53: offsets and times are texts there
    return {
        "partition": message.partition,
        "offset": str(message.offset),
        "timestamp_us": str(message.timestamp_us),
        "state": message.state.word,
    }


def _checksum_holds(message: Message) -> bool | None:
    if message.checksum is None or message.payload is None:
        return None
    return crc32(message.payload) == message.checksum


def _kind_word(kind: int) -> str:
    return Kind(kind).word if kind in Kind._value2member_map_ else f"kind {kind}"


def _encode_base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _whole_text(kind: int, data: bytes | None) -> str | None:
    """Return a number or a truth value as text; None for what the page decodes itself, and for wrong lengths."""
    if data is None or kind in (Kind.RAW, Kind.STRING) or kind not in Kind._value2member_map_:
        return None
    try:
        value = decode_value(kind, data)
    except CorruptError:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _show_value(kind: int, data: bytes | None) -> tuple[str | None, int | None, str]:
    """Return text, size, and what the text is: text, hex, or null."""
    if data is None:
        return None, None, "null"
    whole = _whole_text(kind, data)
    if whole is not None:
        return whole, len(data), "text"
    text = _show_text(data)
    assert text is not None
    return text["text"], len(data), text["form"]


def _show_text(data: bytes | None) -> dict[str, Any] | None:
    """Return the beginning of some bytes as text, or as hex digits if they are not UTF-8."""
    if data is None:
        return None
    part = data[: 4 * LIST_TEXT_MAX]
    try:
        # the cut may divide a character: then the bytes are UTF-8 all the same
        text, form = part.decode(errors="strict" if len(part) == len(data) else "ignore"), "text"
        if len(part) < len(data):
            data.decode()
    except UnicodeDecodeError:
        text, form = part.hex(), "hex"
    return {"text": _cut(text), "form": form, "bytes": len(data), "cut": len(text) > LIST_TEXT_MAX or part != data}


def _cut(text: str) -> str:
    return text if len(text) <= LIST_TEXT_MAX else text[:LIST_TEXT_MAX]
