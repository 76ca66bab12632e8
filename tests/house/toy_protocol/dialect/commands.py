"""The toy's two commands and their answers, as JSON of the facts with the messages behind it."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from typing import Any, Final

from lading.model.errors import MalformedMessage

from . import limits

HEAD: Final = struct.Struct("<II")
"""Bytes of the facts, and of the messages behind them."""


@dataclass(frozen=True, slots=True)
class PublishCommand:
    """Append messages to a partition; ``create`` makes the topic first, with so many partitions."""

    topic: str
    partition: int
    create: int = 0


@dataclass(frozen=True, slots=True)
class ReadCommand:
    """Give messages of a partition from an offset on, at most ``count``; 0 asks for its bounds alone."""

    topic: str
    partition: int
    offset: int
    count: int


Command = PublishCommand | ReadCommand
_COMMANDS: Final[dict[str, type[PublishCommand] | type[ReadCommand]]] = {"publish": PublishCommand, "read": ReadCommand}


def pack_frame(facts: dict[str, Any], messages: bytes = b"") -> bytes:
    """Return a frame: a command or an answer with its messages."""
    data = json.dumps(facts).encode()
    return HEAD.pack(len(data), len(messages)) + data + messages


def pack_command(command: Command, messages: bytes = b"") -> bytes:
    """Return the frame of a command."""
    word = "publish" if isinstance(command, PublishCommand) else "read"
    return pack_frame({"command": word, **asdict(command)}, messages)


def frame_bytes(head: bytes) -> int:
    """Return how many bytes follow the head of a frame; MalformedMessage for too many."""
    facts_bytes, messages_bytes = HEAD.unpack(head)
    size: int = facts_bytes + messages_bytes
    if size > limits.FRAME_BYTES_MAX:
        raise MalformedMessage(f"a frame of {size} bytes; the toy takes {limits.FRAME_BYTES_MAX}")
    return size


def parse_frame(head: bytes, data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return facts and messages of a frame; MalformedMessage for facts that are none."""
    size = HEAD.unpack(head)[0]
    try:
        facts = json.loads(data[:size])
    except ValueError:
        raise MalformedMessage("a frame without facts") from None
    if not isinstance(facts, dict):
        raise MalformedMessage("a frame without facts")
    return facts, data[size:]


def parse_command(facts: dict[str, Any]) -> Command:
    """Return the command of a frame's facts; MalformedMessage for what is none."""
    given = dict(facts)
    kind = _COMMANDS.get(given.pop("command", ""))
    try:
        if kind is None:
            raise TypeError("unknown command")
        return kind(**given)
    except TypeError as error:
        raise MalformedMessage(f"no command of the toy: {error}") from None
