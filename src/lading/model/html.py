"""How notebooks show headers and messages: a table with a badge for the kind and null in grey."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Final

from .errors import CorruptError
from .kinds import Kind

if TYPE_CHECKING:
    from .headers import Header, Headers
    from .message import Message

_BYTES_SHOWN: Final = 64
_CHARACTERS_SHOWN: Final = 200
_BADGE: Final = "border-radius:4px;padding:0 5px;background:#e8eef7;color:#1f3a5f;font-size:85%"
_GREY: Final = "color:#888"


def headers_table(headers: Headers) -> str:
    """The headers in order: key, kind, value."""
    if not len(headers):
        return f'<span style="{_GREY}">no headers</span>'
    rows = "".join(map(_header_row, headers))
    return f"<table><thead><tr><th>header</th><th>kind</th><th>value</th></tr></thead><tbody>{rows}</tbody></table>"


def message_table(message: Message) -> str:
    """The facts of a message, its headers and the beginning of its payload."""
    facts: list[tuple[str, str]] = []
    if message.topic:
        facts.append(("topic", f"{escape(message.topic)} / {message.partition}"))
    if message.offset >= 0:
        facts.append(("offset", str(message.offset)))
    facts.append(("timestamp", message.timestamp.isoformat()))
    facts.append(("state", message.state.word))
    if message.id is not None:
        facts.append(("id", message.id.hex()))
    if message.checksum is not None:
        facts.append(("checksum", str(message.checksum)))
    facts.append(("key", _bytes(message.key)))
    facts.append(("headers", headers_table(message.headers)))
    facts.append(("payload", _bytes(message.payload)))
    return f"<table><tbody>{_rows(facts)}</tbody></table>"


def _rows(facts: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in facts)


def _header_row(header: Header) -> str:
    word = Kind(header.kind).word if header.kind in set(Kind) else f"kind {header.kind}"
    badge = f'<span style="{_BADGE}">{word}</span>'
    return f"<tr><td>{escape(header.key)}</td><td>{badge}</td><td>{_value(header)}</td></tr>"


def _value(header: Header) -> str:
    try:
        value = header.typed
    except CorruptError:
        value = header.value
    if value is None or isinstance(value, bytes):
        return _bytes(value)
    return _shortened(value) if isinstance(value, str) else escape(str(value))


def _bytes(data: bytes | None) -> str:
    """Text where the bytes are printable, else hex; null and empty as grey words."""
    if data is None:
        return f'<i style="{_GREY}">null</i>'
    if not data:
        return f'<i style="{_GREY}">empty</i>'
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if text and all(letter.isprintable() or letter in "\t\n\r" for letter in text):
        return _shortened(text)
    more = f" … {len(data):,} bytes" if len(data) > _BYTES_SHOWN else ""
    return f"<code>0x{data[:_BYTES_SHOWN].hex()}</code>{more}"


def _shortened(text: str) -> str:
    if not text:
        return f'<i style="{_GREY}">empty</i>'
    more = f" … {len(text):,} characters" if len(text) > _CHARACTERS_SHOWN else ""
    return escape(text[:_CHARACTERS_SHOWN]) + more
