"""The publications of one connection: from its inbox to the publisher, a line that was met before without parsing."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Final

from ...dialects.nsq import commands, limits
from ...dialects.nsq.commands import Command, Line
from ...dialects.nsq.errors import Fault, fault_of
from ...metrics import Labels
from ...model.errors import LadingError
from ..receiving import Inbox
from .publish import Publication, Publisher, Route, require_count

_SIZE: Final = struct.Struct(">i")
_SIZE_BYTES: Final = 4


class Intake:
    """Takes publications out of an inbox, and counts them."""

    def __init__(self, inbox: Inbox, publisher: Publisher, face: str, requests: defaultdict[Labels, float]) -> None:
        self.publisher = publisher
        self.published: dict[str, int] = {}
        """Messages by topic."""
        self._inbox = inbox
        self._face = face
        self._requests = requests

    def take_first(self, line: Line) -> Publication | None:
        """A publication by a line that is not known yet: its size is looked at before its topic."""
        inbox, command = self._inbox, line.command
        if command.parameters[1] == 2 and len(line.parameters) == 2 and not command.lacking:
            commands.partition_of(line.parameters[1])
        size = commands.read_size(inbox.view, line.end, inbox.have)
        if size is None:
            return None
        _check_size(command, size)
        known = bytes(inbox.view[inbox.at : line.end])
        return self.take(self.publisher.resolve(known, command, list(line.parameters)), line.end)

    def take(self, route: Route, line_end: int) -> Publication | None:
        """The publication at the front, or a run of them with the same line; None where it is not whole."""
        inbox, command = self._inbox, route.command
        body = line_end + _SIZE_BYTES
        if inbox.have < body:
            return None
        size = _SIZE.unpack_from(inbox.data, line_end)[0]
        if not 0 < size <= route.size_max:
            _check_size(command, size)
        end = body + size
        if end > inbox.have:
            if command.batch and inbox.have - body >= _SIZE_BYTES:
                require_count(_SIZE.unpack_from(inbox.data, body)[0])
            return None
        start = inbox.at
        line_bytes = line_end - start
        inbox.at = end
        who = self if end == inbox.have else None
        try:
            if command.batch:
                taken = self.publisher.batch(route, inbox.array, body, size, who)
            elif command.lacking:
                delay_us = _delay_us(inbox.view[start:line_end])
                taken = self.publisher.deferred(route, inbox.array, start, end, line_bytes, delay_us)
            else:
                taken = self.publisher.run(route, inbox.array, start, inbox.have, line_bytes, end, who)
        except LadingError as error:
            raise fault_of(error, route.failure) from None
        inbox.at = taken.end
        self.published[route.name] = self.published.get(route.name, 0) + taken.append.count
        self._requests[self._face, command.name, "OK"] += taken.count
        return taken


def _check_size(command: Command, size: int) -> None:
    most = limits.REQUEST_BYTES_MAX if command.batch else limits.MESSAGE_BYTES_MAX
    if size <= 0:
        raise Fault("E_BAD_BODY", f"invalid body size {size}")
    if size > most:
        code, what = ("E_BAD_BODY", "body") if command.batch else ("E_BAD_MESSAGE", "message")
        raise Fault(code, f"{what} too big {size} > {most}")


def _delay_us(line: memoryview) -> int:
    text = bytes(line).rstrip(b"\r\n").split(b" ")[2]
    delay_ms = commands.digits_of(text)
    if delay_ms is None:
        raise Fault("E_INVALID", f"DPUB could not parse timeout {text.decode(errors='replace')}")
    if not 0 <= delay_ms <= limits.DEFER_MS_MAX:
        raise Fault("E_INVALID", f"DPUB timeout {delay_ms} out of range 0-{limits.DEFER_MS_MAX}")
    return delay_ms * 1_000
