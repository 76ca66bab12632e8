"""Commands and frames of nsqd: commands as a table, both ways, with the states that allow them (nsq.md 1)."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ...model.errors import MalformedMessage
from ...model.lazy_dataclass import lazy_dataclass
from . import limits, send_layout
from .errors import UPSTREAM_INVALID_ID, NsqProtocolError
from .send_layout import EXT, PLAIN_FORM, TRACED

MAGIC: Final = b"  V2"
HEARTBEAT: Final = b"_heartbeat_"
OK: Final = send_layout.OK
CLOSE_WAIT: Final = b"CLOSE_WAIT"
RESPONSE, ERROR, MESSAGE = send_layout.RESPONSE, send_layout.ERROR, send_layout.MESSAGE
"""Types of frames."""

ID_BYTES: Final = send_layout.ID_BYTES
_FRAME: Final = struct.Struct(">II")
_SIZE: Final = struct.Struct(">i")
_TRACE_ANSWER: Final = struct.Struct(">2sQQQI")
FRAME_BYTES_MAX: Final = limits.MESSAGE_BYTES_MAX + limits.EXT_BYTES_MAX + 64
"""Our client refuses longer frames without allocating memory for them."""


class ClientState(Enum):
    """The stage of a client's connection."""

    FRESH = "fresh"
    SUBSCRIBED = "subscribed"
    CLOSING = "closing"


class Body(Enum):
    """The form of the bytes after a command's name."""

    LINE = "parameters up to the line feed"
    SIZED = "parameters, then a size and that many bytes"
    MESSAGE_ID = "16 bytes of message id, then parameters"


ANY: Final = frozenset(ClientState)
_FRESH: Final = frozenset({ClientState.FRESH})
_READING: Final = frozenset({ClientState.SUBSCRIBED, ClientState.CLOSING})


@lazy_dataclass(frozen=True, slots=True)
class Command:
    """One command: the smallest number of its ``parameters``, the largest that is read, the states that allow it, the
    next state.

    ``form`` is the form of a published message in it (see send_layout), ``batch`` whether it has many messages.
    """

    name: str
    body: Body
    parameters: tuple[int, int]
    states: frozenset[ClientState] = ANY
    leads_to: ClientState | None = None
    form: int | None = None
    batch: bool = False
    lacking: str = ""
    """Start of the command's errors, before "insufficient number of parameters"."""

    @property
    def failure_code(self) -> str:
        """The error code if the broker cannot carry out the command."""
        if self.form is None:
            return _FAILURE_CODES[self.name]
        return "E_DPUB_FAILED" if self.lacking else "E_MPUB_FAILED" if self.batch else "E_PUB_FAILED"


_FAILURE_CODES: Final[Mapping[str, str]] = {
    "IDENTIFY": "E_IDENTIFY_FAILED",
    "AUTH": "E_AUTH_FAILED",
    "SUB": "E_SUB_FAILED",
    "SUB_ADVANCED": "E_SUB_FAILED",
    "SUB_ORDERED": "E_SUB_FAILED",
    "RDY": "E_INVALID",
    "FIN": "E_FIN_FAILED",
    "REQ": "E_REQ_FAILED",
    "TOUCH": "E_TOUCH_FAILED",
    "CLS": "E_INVALID",
    "NOP": "E_INVALID",
    "INTERNAL_CREATE_TOPIC": "E_CREATE_TOPIC_FAILED",
}
"""Error codes of commands that publish nothing."""


def _sub_command(name: str, most: int) -> Command:
    return Command(name, Body.LINE, (2, most), _FRESH, ClientState.SUBSCRIBED, lacking=f"{name} ")


def _pub_command(name: str, form: int, batch: bool = False) -> Command:
    return Command(name, Body.SIZED, (1, 2), form=form, batch=batch)


COMMANDS: Final[Mapping[bytes, Command]] = {
    command.name.encode(): command
    for command in (
        Command("IDENTIFY", Body.SIZED, (0, 0), _FRESH),
        Command("AUTH", Body.SIZED, (0, 0), _FRESH),
        _sub_command("SUB", 3),
        _sub_command("SUB_ADVANCED", 4),
        _sub_command("SUB_ORDERED", 3),
        Command("RDY", Body.LINE, (0, 1), _READING),
        Command("FIN", Body.MESSAGE_ID, (0, 0), _READING),
        Command("REQ", Body.MESSAGE_ID, (1, 1), _READING),
        Command("TOUCH", Body.MESSAGE_ID, (0, 0), _READING),
        Command("CLS", Body.LINE, (0, 0), frozenset({ClientState.SUBSCRIBED}), ClientState.CLOSING),
        Command("NOP", Body.LINE, (0, 0)),
        _pub_command("PUB", PLAIN_FORM),
        _pub_command("PUB_EXT", EXT),
        _pub_command("PUB_TRACE", TRACED),
        _pub_command("MPUB", PLAIN_FORM, batch=True),
        _pub_command("MPUB_EXT", EXT, batch=True),
        _pub_command("MPUB_TRACE", TRACED, batch=True),
        Command("DPUB", Body.SIZED, (2, 2), form=PLAIN_FORM, lacking="DPUB "),
        Command("INTERNAL_CREATE_TOPIC", Body.LINE, (2, 3), lacking="CREATE_TOPIC "),
    )
}
"""Every command by its first word."""

_IDENTIFIED: Final = {name + b" ": command for name, command in COMMANDS.items() if command.body is Body.MESSAGE_ID}


class Line(NamedTuple):
    """A received command line: ``end`` is after its line feed; ``message_id`` is set if the command has one."""

    command: Command
    parameters: Sequence[bytes]
    end: int
    message_id: bytes = b""


def read_line(data: bytes | bytearray | memoryview, start: int, end: int) -> Line | None:
    """Return the command line that begins at ``data[start:end]``, or None if it is incomplete.

    Raises NsqProtocolError E_INVALID for a command that is unknown, has too few parameters, or is longer than 4096
    bytes.
    """
    head = bytes(data[start : min(end, start + limits.LINE_BYTES_MAX)])
    for prefix, command in _IDENTIFIED.items():
        if head.startswith(prefix):
            return _read_line_with_id(command, head, len(prefix), start)
    stop = head.find(b"\n")
    if stop < 0:
        if len(head) >= limits.LINE_BYTES_MAX:
            raise NsqProtocolError("E_INVALID", f"a command line is longer than {limits.LINE_BYTES_MAX} bytes")
        return None
    words = head[:stop].removesuffix(b"\r").split(b" ")
    found = COMMANDS.get(words[0])
    if found is None or found.body is Body.MESSAGE_ID:
        shown = " ".join("[" + " ".join(map(str, word)) + "]" for word in words)
        raise NsqProtocolError("E_INVALID", f"invalid command [{shown}]")
    parameters = words[1:]
    if len(parameters) < found.parameters[0]:
        raise NsqProtocolError("E_INVALID", f"{found.lacking}insufficient number of parameters")
    return Line(found, parameters, start + stop + 1)


def read_upstream_line(data: bytes | bytearray | memoryview, start: int, end: int) -> Line | None:
    """Return the command line at ``data[start:end]`` as upstream's nsqd reads it, None if it is incomplete.

    Message ids are text, and parameters are not checked: ``require_parameters`` does that after the client's state was
    checked. Raises NsqProtocolError E_INVALID for an unknown command, and for a line of more than 4096 bytes.
    """
    head = bytes(data[start : min(end, start + limits.LINE_BYTES_MAX)])
    stop = head.find(b"\n")
    if stop < 0:
        if len(head) >= limits.LINE_BYTES_MAX:
            raise NsqProtocolError("E_INVALID", f"a command line is longer than {limits.LINE_BYTES_MAX} bytes")
        return None
    name, *parameters = head[:stop].removesuffix(b"\r").split(b" ")
    command = COMMANDS.get(name)
    if command is None:
        raise NsqProtocolError("E_INVALID", f"invalid command {name.decode(errors='replace')}")
    if command.body is Body.MESSAGE_ID:
        return Line(command, parameters[1:], start + stop + 1, parameters[0] if parameters else b"")
    return Line(command, parameters, start + stop + 1)


def require_parameters(line: Line) -> None:
    """Raise NsqProtocolError E_INVALID, in upstream's words, for missing parameters and a malformed message id."""
    command = line.command
    if command.body is Body.MESSAGE_ID:
        if not line.message_id or len(line.parameters) < command.parameters[0]:
            raise NsqProtocolError("E_INVALID", f"{command.name} insufficient number of params")
        if len(line.message_id) != ID_BYTES:
            raise NsqProtocolError("E_INVALID", UPSTREAM_INVALID_ID)
    elif len(line.parameters) < command.parameters[0]:
        name = command.lacking or f"{command.name} "
        raise NsqProtocolError("E_INVALID", f"{name}insufficient number of parameters")
    elif command.name == "AUTH" and line.parameters:
        raise NsqProtocolError("E_INVALID", "AUTH invalid number of parameters")


def _read_line_with_id(command: Command, head: bytes, at: int, start: int) -> Line | None:
    """Read FIN, REQ or TOUCH by position: an id may contain a line feed, and a carriage return is not dropped."""
    stop = head.find(b"\n", at + ID_BYTES)
    if stop < 0:
        if len(head) >= limits.LINE_BYTES_MAX:
            raise NsqProtocolError("E_INVALID", f"a command line is longer than {limits.LINE_BYTES_MAX} bytes")
        return None
    rest = head[at + ID_BYTES : stop]
    parameters = rest[1:].split(b" ") if rest.startswith(b" ") else []
    if (rest and not parameters) or len(parameters) < command.parameters[0]:
        raise NsqProtocolError(
            "E_INVALID", "Invalid Message ID" if rest else f"{command.name} insufficient number of params"
        )
    return Line(command, parameters, start + stop + 1, head[at : at + ID_BYTES])


def auth_answer(identity: str, permissions_count: int) -> bytes:
    """Encode the response to a successful AUTH, in nsqd's form."""
    document = {"identity": identity, "identity_url": "", "permission_count": permissions_count}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def read_size(data: bytes | bytearray | memoryview, at: int, end: int) -> int | None:
    """Return the size after the line of a sized command, or None if it is incomplete."""
    return _SIZE.unpack_from(data, at)[0] if end - at >= _SIZE.size else None


_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,19}")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")


def partition_of(text: bytes) -> int:
    """Return the number of a partition parameter, -1 for any. Raises NsqProtocolError E_BAD_PARTITION."""
    if _NUMBER.fullmatch(text) is None:
        shown = text.decode(errors="replace")
        raise NsqProtocolError(
            "E_BAD_PARTITION", f'topic partition is not valid: strconv.Atoi: parsing "{shown}": invalid syntax'
        )
    return int(text)


def digits_of(text: bytes) -> int | None:
    """Return the number in a parameter of digits only, or None."""
    return int(text) if _DIGITS.fullmatch(text) else None


_TRUE: Final = frozenset((b"1", b"t", b"T", b"true", b"TRUE", b"True"))
_FALSE: Final = frozenset((b"0", b"f", b"F", b"false", b"FALSE", b"False"))


def bool_of(text: bytes) -> bool:
    """Parse the ext parameter of INTERNAL_CREATE_TOPIC. Raises NsqProtocolError E_BAD_EXT if it is invalid."""
    if text not in _TRUE | _FALSE:
        shown = text.decode(errors="replace")
        raise NsqProtocolError(
            "E_BAD_EXT", f'topic ext is not valid: strconv.ParseBool: parsing "{shown}": invalid syntax'
        )
    return text in _TRUE


def write(name: str, *parameters: str | int, body: bytes | None = None, message_id: bytes = b"") -> bytes:
    """Return the bytes of a command."""
    words = [name.encode(), *([message_id] if message_id else []), *(str(word).encode() for word in parameters)]
    return b" ".join(words) + b"\n" + (b"" if body is None else _SIZE.pack(len(body)) + body)


def frame(kind: int, data: bytes) -> bytes:
    """Encode one frame."""
    return _FRAME.pack(4 + len(data), kind) + data


class Frame(NamedTuple):
    """A frame as a client gets it; ``end`` is the position after it."""

    kind: int
    data: memoryview
    end: int


def read_frame(data: bytes | bytearray | memoryview, start: int, end: int) -> Frame | None:
    """Return the frame at the start of ``data[start:end]``, or None if it is incomplete. Raises MalformedMessage if
    the bytes are not a frame."""
    if end - start < _FRAME.size:
        return None
    size, kind = _FRAME.unpack_from(data, start)
    if not 4 <= size <= FRAME_BYTES_MAX or kind > MESSAGE:
        raise MalformedMessage(f"a frame of type {kind} claims {size} bytes", at=start)
    stop = start + 4 + size
    return None if stop > end else Frame(kind, memoryview(data)[start + 8 : stop], stop)


class TraceAnswer(NamedTuple):
    """Response to a traced publication: 30 bytes, "OK" among them."""

    internal_id: int
    trace_id: int
    queue_offset: int
    raw_bytes: int


def read_trace_answer(data: bytes | memoryview) -> TraceAnswer | None:
    """Parse the response to a traced publication; None for a plain OK. Raises MalformedMessage for anything else."""
    if data == OK:
        return None
    if len(data) != _TRACE_ANSWER.size or data[:2] != OK:
        raise MalformedMessage(f"a publication is answered with {len(data)} bytes that are not OK")
    return TraceAnswer(*_TRACE_ANSWER.unpack(data)[1:])
