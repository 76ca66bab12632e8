"""Mapping of stream, topic and header key names between systems (design.md Message and Names)."""

from __future__ import annotations

from typing import Final

from .errors import MalformedMessage

DEFAULT_STREAM: Final = "default"
DEFAULT_STREAM_ID: Final = (1 << 32) - 1
"""The maximum of u32, which no client reaches by counting up."""

_TEXT = 2
"""Kind code of a text key."""


def flat_name(stream: str, topic: str) -> str:
    """Return the one-level name in Kafka, NSQ and the Python API: ``t`` in stream ``default``, else ``s.t``."""
    return topic if stream == DEFAULT_STREAM else f"{stream}.{topic}"


def spellings(name: str) -> list[tuple[str, str]]:
    """Return every (stream, topic) whose ``flat_name`` is ``name``, the topic in ``default`` first."""
    dots = [at for at, letter in enumerate(name) if letter == "."]
    pairs = [(name[:at], name[at + 1 :]) for at in dots]
    return [(DEFAULT_STREAM, name), *(pair for pair in pairs if all(pair) and pair[0] != DEFAULT_STREAM)]


def key_text(key: bytes, kind: int = _TEXT) -> str:
    """Return the text of a header key: its UTF-8, else an escape: ``\\x`` + hex, or ``\\k`` + kind + ``:`` + hex.

    A key that itself starts with a backslash gets a second one (design.md Message).
    """
    if kind != _TEXT:
        return f"\\k{kind}:{key.hex()}"
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"\\x{key.hex()}"
    return "\\" + text if text.startswith("\\") else text


def key_bytes(text: str) -> tuple[bytes, int]:
    """Return the bytes and kind of a text by ``key_text``. Raises MalformedMessage for a wrong escape."""
    try:
        if not text.startswith("\\"):
            return text.encode(), _TEXT
        if text.startswith("\\\\"):
            return text[1:].encode(), _TEXT
        if text.startswith("\\x"):
            return bytes.fromhex(text[2:]), _TEXT
        kind, colon, digits = text[2:].partition(":")
        if text.startswith("\\k") and colon and kind.isdecimal() and 0 < int(kind) < 256:
            return bytes.fromhex(digits), int(kind)
    except ValueError:  # also what UTF-8 cannot encode
        pass
    raise MalformedMessage(f"header key {text!r} is not a valid escape; a key that begins with a backslash doubles it")
