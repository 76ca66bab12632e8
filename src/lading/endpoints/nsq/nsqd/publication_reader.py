"""The publications of one connection: from its inbox to the publisher, without parsing a line that is known already."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable
from typing import Final, Protocol

from ....dialects.nsq import commands, limits, publishing, send_layout
from ....dialects.nsq.commands import Command, Line
from ....dialects.nsq.errors import NsqProtocolError, fault_of
from ....model.errors import LadingError
from ....runtime.metrics import Labels
from ...base.inbox import Inbox
from ...base.responses import ResponseQueue
from ...base.route_cache import RouteCache
from ...base.session import ConnectionHandle
from ...io.lent_lines import LoanCountdown
from .lent_publications import LentPublications
from .message_store import COUNT_BYTES, Bytes, item_size_error, require_count, size_at
from .node import KernelsNeeded
from .publication import Publication
from .publish import Publisher, PublishRoute
from .publish_coalescing import COMMAND_BYTES_MAX, PublishCoalescer

_SIZE: Final = struct.Struct(">i")
_SIZE_BYTES: Final = 4
_NO_LINE: Final = b"\n"
"""A line with which no publication begins."""


class PublishingClient(Protocol):
    """A client, with what the reader of its publications needs of it."""

    inbox: Inbox
    responses: ResponseQueue
    connection: ConnectionHandle


class PublicationReader:
    """Takes publications out of an inbox, and counts them."""

    def __init__(
        self,
        client: PublishingClient,
        publisher: Publisher,
        gathering: PublishCoalescer,
        endpoint_name: str,
        requests: defaultdict[Labels, float],
    ) -> None:
        self._connection = client.connection
        self._waiting = client.responses.waiting
        self.publisher = publisher
        self._gathering = gathering
        self.published: defaultdict[str, int] = defaultdict(int)
        """The number of published messages by topic."""
        self.routes = publisher.routes
        """The routes of this client's lines."""
        self.require_write: Callable[[str], None] | None = None
        """Raises a Fault for a topic name that the client may not publish to; None if it may publish to all."""
        self._inbox = client.inbox
        self._endpoint_name = endpoint_name
        self._requests = requests
        self._line = _NO_LINE
        """The line of the last publication, if that was gathered and others with the line may follow."""
        self._route: PublishRoute | None = None
        """The route of that line, valid for ``_version`` of the topology."""
        self._version = -1
        self.loan = LoanCountdown()
        """Counts publications with the same line, each alone."""
        self._walk: BatchWalk | None = None
        """The walk over the MPUB at the front, if it is incomplete."""

    def use_routes(self, routes: RouteCache[bytes, PublishRoute]) -> None:
        """Use the routes of another user from now on."""
        self.routes = routes
        self._line, self._route = _NO_LINE, None

    def take_first(self, line: Line, now_us: int) -> Publication | None:
        """Take a publication whose line is not known yet: its size is checked before its topic."""
        inbox, command = self._inbox, line.command
        if command.parameters[1] == 2 and len(line.parameters) == 2 and not command.lacking:
            commands.partition_of(line.parameters[1])
        self.publisher.require_name(command, line.parameters[0])
        size = commands.read_size(inbox.view, line.end, inbox.have)
        if size is None:
            return None
        self._check_size(command, size)
        known = bytes(inbox.view[inbox.at : line.end])
        try:
            if self.require_write is not None:
                self.require_write(line.parameters[0].decode(errors="replace"))
            route = self.publisher.resolve(known, command, list(line.parameters))
            self.routes.add(known, route)
        except LadingError as error:
            fault = fault_of(error, command.failure_code)
            if not fault.fatal:
                # the connection continues after the body, so the response waits until all of it is here
                body = line.end + _SIZE_BYTES
                end = self._find_batch_end(body) if command.batch else body + size
                if end is None or inbox.have < end:
                    return None
                inbox.at = end
            raise fault from None
        return self.take(route, known, line.end, now_us)

    def take_repeated(self, now_us: int) -> Publication | None:
        """Take all received bytes if they are one publication with the same line as the one before, else return None.

        Only for a connection without pending responses, whose inbox is read from the front.
        """
        inbox, line = self._inbox, self._line
        end, body = inbox.have, len(line) + _SIZE_BYTES
        if (
            not body < end <= COMMAND_BYTES_MAX
            or not inbox.data.startswith(line)
            or _SIZE.unpack_from(inbox.data, body - _SIZE_BYTES)[0] != end - body
        ):
            return None
        route = self._route
        # since then the topic may have been deleted, or created again under that name
        if route is None or self.routes.topology.version != self._version:
            return None
        inbox.at = end
        self.loan.requests_left -= 1
        self.published[route.name] += 1
        try:
            return self._gathering.publish(route, line, body - _SIZE_BYTES, inbox, end, self, now_us)
        except LadingError as error:
            raise fault_of(error, route.failure) from None

    def find_lent_line(self, lines: LentPublications) -> int | None:
        """Return the number of the line of the next publications, if it is the line of the last one."""
        route, version = self._route, self._version
        if route is None or self.routes.topology.version != version:
            return None
        return lines.add(self._line, route, self.routes, version)

    def add_lent(self, count: int) -> None:
        """Count publications that were taken from the lent socket."""
        assert self._route is not None
        self.published[self._route.name] += count
        self.loan.note_used()

    def take(self, route: PublishRoute, line: bytes, line_end: int, now_us: int) -> Publication | None:
        """Take the publication at the front, or a run of them with the same ``line``; None if it is not whole."""
        inbox, command = self._inbox, route.command
        body = line_end + _SIZE_BYTES
        if inbox.have < body:
            return None
        size = _SIZE.unpack_from(inbox.data, line_end)[0]
        if not 0 < size <= route.size_max:
            self._check_size(command, size)
        end = body + size
        if end > inbox.have or self._walk is not None:
            walked_end = self._find_batch_end(body) if command.batch else None
            if walked_end is None:
                return None
            end = walked_end
        start = inbox.at
        if command.batch and self._needs_kernels(command, body, end):
            raise KernelsNeeded
        inbox.at = end
        is_alone = not start and end == inbox.have and not self._waiting
        try:
            if is_alone and route.joins and end <= COMMAND_BYTES_MAX:
                self.published[route.name] += 1
                if route.size_max >= COMMAND_BYTES_MAX:
                    self._line, self._route, self._version = line, route, self.routes.topology.version
                return self._gathering.publish(route, line, line_end, inbox, end, self, now_us)
            return self._publish_run(route, start, body, end, now_us)
        except LadingError as error:
            fault = fault_of(error, route.failure)
            if not command.batch:
                raise fault from None
        inbox.at = start
        return self._publish_walked(route, start, body, end, now_us, fault)

    def _needs_kernels(self, command: Command, body: int, end: int) -> bool:
        if end - body < COUNT_BYTES:
            return False
        return publishing.needs_kernels(size_at(self._inbox.array, body), end - body, command.form)

    def abort(self) -> None:
        """Close the client's connection at once: the outcome is unknown, so any response could be wrong."""
        self._connection.abort()

    def wait_for_disk(self) -> None:
        """Take no more from the client until the disk has caught up."""
        self._connection.wait_for_disk()

    def _publish_run(self, route: PublishRoute, start: int, body: int, end: int, now_us: int) -> Publication:
        """Publish the command at ``start``, and those after it with the same line."""
        inbox, command = self._inbox, route.command
        if self._gathering.waiting:
            # commands that this connection sent earlier are published earlier
            self._gathering.flush()
        stop, delay_us = inbox.have, 0
        if command.lacking:
            stop, delay_us = end, _delay_us(inbox.view[start : body - _SIZE_BYTES])
        who = self if end == inbox.have else None
        taken = self.publisher.publish(
            route, inbox.array, start, body, end, stop, now_us=now_us, who=who, delay_us=delay_us
        )
        inbox.at = taken.end
        self.published[route.name] += taken.messages_count
        self._requests[self._endpoint_name, command.name, "OK"] += taken.commands_count
        if taken.done:
            if not self._waiting:
                self._gathering.served()
        elif self.publisher.is_congested:
            self.wait_for_disk()
        return taken

    def _publish_walked(
        self, route: PublishRoute, start: int, body: int, end: int, now_us: int, fault: NsqProtocolError
    ) -> Publication | None:
        """Publish the MPUB at ``start`` by the sizes of its items; read up to ``end`` it was refused with ``fault``.

        Only refused commands come here: if the declared length fits, the store has published them already.
        """
        inbox = self._inbox
        walked_end = self._find_batch_end(body)
        if walked_end is None:
            return None
        # the connection continues after the items, also after a refusal
        inbox.at = walked_end
        if walked_end == end:
            raise fault
        if self._needs_kernels(route.command, body, walked_end):
            # after them the session begins again at the first byte of the command
            inbox.at = start
            raise KernelsNeeded
        try:
            return self._publish_run(route, start, body, walked_end, now_us)
        except LadingError as error:
            raise fault_of(error, route.failure) from None

    def _find_batch_end(self, body: int) -> int | None:
        """Return the end of the items of the MPUB at the front, None until all have arrived."""
        inbox = self._inbox
        if self._walk is None:
            self._walk = BatchWalk()
        end = self._walk.find_end(inbox.array, body, inbox.have)
        if end is not None:
            self._walk = None
        return end

    def _check_size(self, command: Command, size: int) -> None:
        if self.publisher.is_strict:
            _check_forked_size(command, size)
        else:
            _check_upstream_size(command, size)


def _check_upstream_size(command: Command, size: int) -> None:
    if command.batch:
        code, what, most = "E_BAD_BODY", "body", limits.REQUEST_BYTES_MAX
    else:
        code, what, most = "E_BAD_MESSAGE", "message", limits.MESSAGE_BYTES_MAX
    if size <= 0:
        what = "body" if command.batch else "message body"
        raise NsqProtocolError(code, f"{command.name} invalid {what} size {size}")
    if size > most:
        raise NsqProtocolError(code, f"{command.name} {what} too big {size} > {most}")


def _check_forked_size(command: Command, size: int) -> None:
    most = limits.REQUEST_BYTES_MAX if command.batch else limits.MESSAGE_BYTES_MAX
    if size <= 0:
        raise NsqProtocolError("E_BAD_BODY", f"invalid body size {size}")
    if size > most:
        code, what = ("E_BAD_BODY", "body") if command.batch else ("E_BAD_MESSAGE", "message")
        raise NsqProtocolError(code, f"{what} too big {size} > {most}")


def _delay_us(line: memoryview) -> int:
    text = bytes(line).rstrip(b"\r\n").split(b" ")[2]
    delay_ms = commands.digits_of(text)
    if delay_ms is None:
        raise NsqProtocolError("E_INVALID", f"DPUB could not parse timeout {text.decode(errors='replace')}")
    if not 0 <= delay_ms <= limits.DEFER_MS_MAX:
        raise NsqProtocolError("E_INVALID", f"DPUB timeout {delay_ms} out of range 0-{limits.DEFER_MS_MAX}")
    return delay_ms * 1_000


class BatchWalk:
    """The progress through the items of one MPUB; items passed once are not read again when more bytes arrive.

    Its end is found as nsqd finds it: by the sizes of its items, whatever length the command declares. nsqd compares
    the declared length with its limit, and does not use it afterwards. Clients rely on that: squeaky 2.6.0 declares the
    bodies of its messages alone, without their count and sizes.
    """

    __slots__ = ("_count", "_needed_bytes", "_passed", "_passed_bytes")

    def __init__(self) -> None:
        self._count = 0
        """The number of items that the body declares; 0 until the count has arrived."""
        self._passed = 0
        self._passed_bytes = self._needed_bytes = COUNT_BYTES
        """Bytes of the body that were passed, and bytes that must have arrived before the next are passed."""

    def find_end(self, source: Bytes, body: int, have: int) -> int | None:
        """Return the end of the items of the MPUB with its body at ``source[body:have]``, None until all have arrived.

        Raises NsqProtocolError for a count or size that nsqd refuses, and, before their bytes arrive, for items that
        are longer than the largest body.
        """
        if have - body < self._needed_bytes:
            return None
        if not self._count:
            self._count = require_count(size_at(source, body))
        end_max = body + limits.REQUEST_BYTES_MAX
        left = self._count - self._passed
        passed, end, needed, reason = publishing.pass_items(source, body + self._passed_bytes, have, end_max, left)
        self._passed += passed
        self._passed_bytes, self._needed_bytes = end - body, needed - body
        if reason == send_layout.BAD_ITEM:
            raise NsqProtocolError("E_BAD_BODY", f"body too big {self._needed_bytes} > {limits.REQUEST_BYTES_MAX}")
        if reason:
            raise item_size_error(reason, self._passed, size_at(source, end))
        return end if passed == left else None
