"""``--format``: the text printed for a message, in kcat's notation as far as kcat has one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from ..model.errors import CorruptError, LocalError
from ..model.message import Message
from ..model.printable import escape_unseen

PLACES: Final[dict[str, Callable[[Message], Any]]] = {
    "t": lambda message: message.topic,
    "p": lambda message: message.partition,
    "o": lambda message: message.offset,
    "k": lambda message: message.key,
    "s": lambda message: message.payload,
    "S": lambda message: len(message.payload or b""),
    "T": lambda message: message.timestamp_us // 1_000,
    "a": lambda message: message.state.word,
    "i": lambda message: message.id,
    "h": lambda message: ",".join(f"{header.key}={_text(_read_typed(header))}" for header in message.headers),
    "%": lambda message: "%",
}
MEANINGS: Final = (
    "%t topic, %p partition, %o offset, %k key, %s payload, %S its bytes, %T time in ms, %a state, %i id, "
    "%h all headers, %h{KEY} one header"
)
ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\r": "\r", "\\\\": "\\"}
_PLACE: Final = re.compile(r"%h\{([^}]+)\}|%(.?)|(\\[ntr\\])", re.DOTALL)


def compile_format(text: str) -> Callable[[Message], str]:
    """Return what prints a message as ``text`` says. Raises LocalError for a place that does not exist."""
    parts: list[str | Callable[[Message], Any]] = []
    end = 0
    for found in _PLACE.finditer(text):
        parts.append(text[end : found.start()])
        end = found.end()
        key, letter, escape = found.groups()
        if key is not None:
            parts.append(_header(key))
        elif escape is not None:
            parts.append(ESCAPES[escape])
        elif letter in PLACES:
            parts.append(PLACES[letter])
        else:
            raise LocalError(f"--format {text!r}: {found[0]!r} at {found.start()} is unknown; there are {MEANINGS}")
    parts.append(text[end:])
    return lambda message: "".join(
        part if isinstance(part, str) else escape_unseen(_text(part(message))) for part in parts
    )


def _header(key: str) -> Callable[[Message], Any]:
    def first_value(message: Message) -> Any:
        return next((_read_typed(header) for header in message.headers if header.key == key), None)

    return first_value


def _read_typed(header: Any) -> Any:
    try:
        return header.typed
    except CorruptError:
        return header.value


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return "0x" + value.hex()
    return str(value)
