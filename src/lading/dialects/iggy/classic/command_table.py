"""The commands of one release as a table: bytes of requests and of responses, both ways (iggy.md A1)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from ....model.errors import MalformedMessage, Reason, Refusal
from ....model.lazy_dataclass import lazy_dataclass
from .primitives import TEXT, Bytes, Codec
from .records import layout, record, validate
from .responses import parse_whole

REQUEST_HEAD: Final = struct.Struct("<II")
"""``length`` (4 + payload) and command code."""

RESPONSE_HEAD: Final = struct.Struct("<II")
"""Status (0 is ok) and body length; a body follows only a status of 0."""


@lazy_dataclass(frozen=True, slots=True)
class CommandSpec:
    """One line of a command table: code, the name metrics and logs use, the request, the body of its response.

    ``payload`` is the layout of the request if that is not what its class says. ``operation`` is the number that a
    command which changes something has in heads of 256 bytes; others have their code there.
    """

    code: int
    name: str
    request: type[Any]
    answer: Codec[Any]
    payload: Codec[Any] | None = None
    operation: int = 0


class CommandTable:
    """Commands of the clients of one release, with their codecs."""

    def __init__(self, rows: Iterable[CommandSpec]) -> None:
        self.rows: Final = tuple(rows)
        self.row_by_code: Final[Mapping[int, CommandSpec]] = {row.code: row for row in self.rows}
        self.row_by_request: Final[Mapping[type[Any], CommandSpec]] = {row.request: row for row in self.rows}
        self._codecs = {row.request: row.payload or record(row.request) for row in self.rows}

    @cached_property
    def _without_fields(self) -> set[type[Any]]:
        # when the first client of the release comes: a start would pay for those of all releases
        return {row.request for row in self.rows if not layout(row.request)}

    def replace_rows(self, *rows: CommandSpec) -> CommandTable:
        """Return this table with ``rows`` instead of those of the same codes, or besides them."""
        by_code = {row.code: row for row in (*self.rows, *rows)}
        return type(self)(by_code[code] for code in sorted(by_code))

    def name_of(self, code: int) -> str:
        """Return the name that metrics and logs use; ``unknown`` for a code that no command has."""
        row = self.row_by_code.get(code)
        return "unknown" if row is None else row.name

    def parse_request(self, code: int, payload: Bytes) -> Any:
        """Return the command of an intact frame, checked by the rules of iggy.md A6.

        Raises MalformedMessage with the reason, and so the code, of the response. Bytes after the last field are
        ignored, as by the real server; a command without fields takes none.
        """
        row = self._find_row(code)
        if row.request in self._without_fields and len(payload):
            raise MalformedMessage(f"{row.name} takes no payload, not {len(payload)} bytes")
        command = self._codecs[row.request].read(memoryview(payload), 0)[0]
        try:
            validate(command)
        except Refusal as refusal:
            raise MalformedMessage(str(refusal), reason=refusal.reason) from None
        return command

    def _find_row(self, code: int) -> CommandSpec:
        row = self.row_by_code.get(code)
        if row is None:
            raise MalformedMessage(f"no command has the code {code}", reason=Reason.UNKNOWN_COMMAND)
        return row

    def fits(self, code: int, payload: Bytes) -> bool:
        """Whether the clients of this release write such a request: its fields take up all of its bytes."""
        row = self.row_by_code.get(code)
        if row is None:
            return False
        try:
            return self._codecs[row.request].read(memoryview(payload), 0)[1] == len(payload)
        except MalformedMessage:
            return False

    def encode_request(self, command: Any) -> bytes:
        """Return the whole frame; LocalError if a value does not fit its field."""
        row = self.row_by_request[type(command)]
        payload = self._codecs[row.request].write(command)
        return REQUEST_HEAD.pack(4 + len(payload), row.code) + payload

    def encode_response(self, command: Any, result: Any = None) -> bytes:
        """Return the body of the response to ``command`` (or to its class); ``result`` is of the type that its class
        names."""
        row = self.row_by_request[command if isinstance(command, type) else type(command)]
        return row.answer.write(result)

    def parse_response(self, command: Any, body: Bytes) -> Any:
        """Parse the body of a response with status 0. Raises MalformedMessage if it does not fit ``command``."""
        row = self.row_by_request[command if isinstance(command, type) else type(command)]
        return parse_whole(row.answer, body, f"the answer to {row.name}")


class ExactCommandTable(CommandTable):
    """Commands of releases whose servers take no more and no fewer bytes, and check values only when they use them."""

    def parse_request(self, code: int, payload: Bytes) -> Any:
        """Return the command of an intact frame. Raises MalformedMessage if bytes are left over or missing."""
        row = self._find_row(code)
        return parse_whole(self._codecs[row.request], payload, f"the request {row.name}")


def ok_frame(body: bytes = b"") -> bytes:
    """Return the frame of a success."""
    return RESPONSE_HEAD.pack(0, len(body)) + body


def error_frame(code: int, text: str | None = None) -> bytes:
    """Return the frame of a failure; its code says all, ``text`` is for releases that read one."""
    body = b"" if text is None else TEXT.write(text)
    return RESPONSE_HEAD.pack(code, len(body)) + body
