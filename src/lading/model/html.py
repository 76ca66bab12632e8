"""HTML tables of headers and messages for notebooks: a badge for the kind, null in grey."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, TypeAlias

from .errors import CorruptError
from .kinds import Kind, decode_value

HeaderRow: TypeAlias = "tuple[str, int, bytes | None]"
"""Key, kind and value of a header."""

_BYTES_SHOWN: Final = 64
_CHARACTERS_SHOWN: Final = 200
_BADGE: Final = "border-radius:4px;padding:0 5px;background:#e8eef7;color:#1f3a5f;font-size:85%"
_GREY: Final = "color:#888"


def headers_table(headers: Sequence[HeaderRow]) -> str:
    """Return a table of headers, in order: key, kind, value."""
    if not headers:
        return f'<span style="{_GREY}">no headers</span>'
    rows = "".join(f"<tr><td>{escape(key)}</td>{_format_cells(kind, value)}</tr>" for key, kind, value in headers)
    return f"<table><thead><tr><th>header</th><th>kind</th><th>value</th></tr></thead><tbody>{rows}</tbody></table>"


def message_table(
    facts: Iterable[tuple[str, str]], key: bytes | None, headers: Sequence[HeaderRow], payload: bytes | None
) -> str:
    """Return a table of a message: ``facts``, its key, its headers and the first bytes of its payload."""
    cells = [(name, escape(text)) for name, text in facts]
    cells += [("key", _write_bytes(key)), ("headers", headers_table(headers)), ("payload", _write_bytes(payload))]
    rows = "".join(f"<tr><th>{name}</th><td>{cell}</td></tr>" for name, cell in cells)
    return f"<table><tbody>{rows}</tbody></table>"


def _format_cells(kind: int, value: bytes | None) -> str:
    """Return the cells of a header's kind and of its value, as bytes if they cannot be of that kind."""
    word = Kind(kind).word if kind in set(Kind) else f"kind {kind}"
    try:
        typed = decode_value(kind, value)
    except CorruptError:
        typed = value
    if typed is None or isinstance(typed, bytes):
        cell = _write_bytes(typed)
    else:
        cell = _shorten_text(typed) if isinstance(typed, str) else escape(str(typed))
    return f'<td><span style="{_BADGE}">{word}</span></td><td>{cell}</td>'


def _write_bytes(data: bytes | None) -> str:
    """Return text if the bytes are printable, else hex; null and empty as grey words."""
    if data is None:
        return f'<i style="{_GREY}">null</i>'
    if not data:
        return f'<i style="{_GREY}">empty</i>'
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if text and all(letter.isprintable() or letter in "\t\n\r" for letter in text):
        return _shorten_text(text)
    more = f" … {len(data):,} bytes" if len(data) > _BYTES_SHOWN else ""
    return f"<code>0x{data[:_BYTES_SHOWN].hex()}</code>{more}"


def _shorten_text(text: str) -> str:
    if not text:
        return f'<i style="{_GREY}">empty</i>'
    more = f" … {len(text):,} characters" if len(text) > _CHARACTERS_SHOWN else ""
    return escape(text[:_CHARACTERS_SHOWN]) + more
