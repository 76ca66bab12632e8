"""How stream, topic and header key names map between systems (DESIGN 4 and 7)."""

from __future__ import annotations

from .errors import MalformedMessage

DEFAULT_STREAM = "default"


def flat_name(stream: str, topic: str) -> str:
    """The one-level name that Kafka and NSQ clients and the Python API see: ``t`` in ``default``, else ``s.t``."""
    return topic if stream == DEFAULT_STREAM else f"{stream}.{topic}"


def spellings(name: str) -> list[tuple[str, str]]:
    """Every (stream, topic) that a flat name may mean, the exact name in ``default`` first."""
    parts = name.split(".")
    return [(DEFAULT_STREAM, name)] + [
        (".".join(parts[:cut]), ".".join(parts[cut:]))
        for cut in range(1, len(parts))
        if all((parts[cut - 1], parts[cut]))
    ]


def key_text(key: bytes, kind: int = 2) -> str:
    """The text of a header key: UTF-8 as it is, else an escape: ``\\x`` + hex, or ``\\k`` + kind + ``:`` + hex.

    A key that really begins with a backslash gets a second one (DESIGN 4).
    """
    if kind != 2:
        return f"\\k{kind}:{key.hex()}"
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"\\x{key.hex()}"
    return "\\" + text if text.startswith("\\") else text


def key_bytes(text: str) -> tuple[bytes, int]:
    """The bytes and kind of a header key text: the inverse of ``key_text``; MalformedMessage for a wrong escape."""
    if not text.startswith("\\"):
        return text.encode(), 2
    if text.startswith("\\\\"):
        return text[1:].encode(), 2
    try:
        if text.startswith("\\x"):
            return bytes.fromhex(text[2:]), 2
        if text.startswith("\\k"):
            kind, _, digits = text[2:].partition(":")
            return bytes.fromhex(digits), int(kind)
    except ValueError:
        pass
    raise MalformedMessage(f"header key {text!r} is no valid escape; a key that begins with a backslash doubles it")
