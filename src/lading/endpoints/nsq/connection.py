"""One client of nsqd: commands in, answers out in order, message frames between them (nsq.md 1)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ...broker.append import Append
from ...dialects.nsq import commands, identify, limits
from ...dialects.nsq.commands import COMMANDS, ERROR, RESPONSE, Command, Line, State, frame
from ...dialects.nsq.errors import EXT_FORBIDDEN, EXT_NEEDED, Fault, fault_of
from ...dialects.nsq.identify import Identity
from ...model.errors import LadingError
from ..receiving import Inbox
from .consume import Consumer
from .node import EXTENDED, PLAIN, VERSION
from .publish import Route, Taken
from .subscribe import start_of

if TYPE_CHECKING:
    from ...broker.topology import Topic
    from .server import Nsqd

NAME: Final = "nsqd_tcp"
MAGIC_TIMEOUT_S: Final = 60.0
LINGER_S: Final = 2.0
SILENT_HEARTBEATS: Final = 3
"""A client that says nothing for so many intervals is gone."""
UNANSWERED_MAX: Final = 256
"""Publications of one connection on their way to the disk; more are read when some are answered."""
WRITE_BUFFER_BYTES: Final = 1 << 20
"""A client that does not read gets no more messages once this much is on its way to it."""

_BY_ENDPOINT: Final = (NAME,)
_OK: Final = frame(RESPONSE, commands.OK)
_HEARTBEAT: Final = frame(RESPONSE, commands.HEARTBEAT)
_FIN: Final = b"FIN "
_NUMBER = int.from_bytes


class _Waiting:
    """An answer in its place among those of the connection: bytes that are ready, or a publication under way."""

    __slots__ = ("append", "command", "data", "taken")

    def __init__(self, data: bytes = b"", taken: Taken | None = None, command: str = "") -> None:
        self.data = data
        self.taken = taken
        self.append: Append | None = None if taken is None else taken.append
        self.command = command

    @property
    def ready(self) -> bool:
        return self.append is None or self.append.done

    def bytes(self) -> bytes:
        if self.append is None or self.taken is None:
            return self.data
        if self.append.error is None:
            return self.taken.answers
        return frame(ERROR, str(fault_of(self.append.error, f"E_{self.command}_FAILED")).encode()) * self.taken.count


class Connection(asyncio.BufferedProtocol):
    """One client connection."""

    def __init__(self, endpoint: Nsqd) -> None:
        self.endpoint = endpoint
        self.node = endpoint.node
        metrics = endpoint.services.metrics
        self._received_bytes, self._sent_bytes = metrics.received_bytes.values, metrics.sent_bytes.values
        self._requests = metrics.requests.values
        self.inbox = Inbox(endpoint.services.receive)
        self.identity = Identity()
        self.state = State.FRESH
        self.consumer: Consumer | None = None
        self.connected_s = int(time.time())
        self.address = ""
        self.published: dict[str, int] = {}
        """Messages by topic."""
        self._identified = False
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Waiting] = deque()
        self._spoken = False
        """The magic has come."""
        self._working = self._held = self._congested = False
        self._paused = False
        """The client does not read."""
        self._ended = False
        """Nothing more is read: close when all that was asked is answered."""
        self._parting = False
        self._heard_s = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's, not its classes
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if peer else ""
        self._timer = asyncio.get_running_loop().call_later(MAGIC_TIMEOUT_S, self.abort)
        if not self.endpoint.admit(self):
            # without a code, as servers say it
            transport.write(frame(ERROR, b"too much client connections"))
            transport.close()
            self._ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = self._parting = True
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._waiting.clear()
        self.inbox.drop()
        if self.consumer is not None:
            self.consumer.close()
        self.endpoint.leave(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.inbox.view[self.inbox.have :]

    def buffer_updated(self, size_bytes: int) -> None:
        self._received_bytes[_BY_ENDPOINT] += size_bytes
        # what comes after a fatal error is thrown away; what comes while the broker stops is not begun
        if not self._ended and not self.endpoint.services.stopping:
            self.inbox.have += size_bytes
            self.work()

    def eof_received(self) -> bool:
        self._ended = True
        if self.consumer is not None:
            self.consumer.close()
        return bool(self._waiting)

    def pause_writing(self) -> None:
        self._paused = True
        if self.consumer is not None:
            self.consumer.subscriber.blocked = True

    def resume_writing(self) -> None:
        self._paused = False
        if self.consumer is not None:
            self.consumer.subscriber.blocked = False
        self.work()

    def abort(self) -> None:
        """Cut the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # -- commands

    def work(self) -> None:
        """Take the commands that are whole, as far as bounds allow; then see to the buffer, and to the end."""
        if self._working:
            return
        self._working = True
        inbox = self.inbox
        whole = False
        try:
            while inbox.at < inbox.have and not self._ended:
                whole = self._must_wait
                if whole:
                    break
                before = inbox.at
                try:
                    if not self._step():
                        break
                except Fault as fault:
                    self._refuse(fault)
                if inbox.at != before:
                    self._heard_s = time.monotonic()
        finally:
            self._working = False
        if not self._ended and not inbox.tend(whole):
            self._refuse(Fault("E_BAD_BODY", "the broker is receiving too much; ask again later"))
        self._hold(inbox.full and not self._ended)
        self._close_at_end()

    @property
    def _must_wait(self) -> bool:
        return self._congested or len(self._waiting) >= UNANSWERED_MAX or (self._paused and self.consumer is None)

    def _step(self) -> bool:
        """Take one command, or a run of equal ones; False where the next is not whole."""
        inbox = self.inbox
        if not self._spoken:
            return self._greet()
        if self.consumer is not None and inbox.have - inbox.at >= 21 and inbox.data.startswith(_FIN, inbox.at):
            inbox.at, faults = self.consumer.finish(inbox.array, inbox.at, inbox.have)
            for fault in faults:
                self._refuse(fault)
            if faults or inbox.have - inbox.at >= 21 or inbox.at == inbox.have:
                return True
        stop = inbox.data.find(b"\n", inbox.at, inbox.have)
        if stop >= 0:
            route = self.endpoint.publisher.route(bytes(inbox.view[inbox.at : stop + 1]))
            if route is not None:
                return self._publish(route, stop + 1, ())
        line = commands.read_line(inbox.view, inbox.at, inbox.have)
        if line is None:
            return False
        self._require_state(line.command)
        if line.command.form is not None:
            return self._published_first(line)
        return self._answer(line)

    def _greet(self) -> bool:
        inbox = self.inbox
        if inbox.have - inbox.at < len(commands.MAGIC):
            return False
        if bytes(inbox.view[inbox.at : inbox.at + 4]) != commands.MAGIC:
            raise Fault("E_BAD_PROTOCOL")
        inbox.at += len(commands.MAGIC)
        self._spoken = True
        self._beat_later()
        return True

    def _require_state(self, command: Command) -> None:
        if self.state not in command.states:
            raise Fault("E_INVALID", f"cannot {_verb(command)} in current state")
        if command.name == "DPUB" and self.node.strict:
            data = bytes(self.inbox.view[self.inbox.at : self.inbox.have]).split(b"\n")[0]
            shown = " ".join("[" + " ".join(map(str, word)) + "]" for word in data.split(b" "))
            raise Fault("E_INVALID", f"invalid command [{shown}]")

    # -- publishing

    def _published_first(self, line: Line) -> bool:
        """A publication by a line that is not known yet: its size is looked at before its topic."""
        inbox = self.inbox
        if line.command.parameters[1] == 2 and len(line.parameters) == 2 and not line.command.lacking:
            commands.partition_of(line.parameters[1])
        size = commands.read_size(inbox.view, line.end, inbox.have)
        if size is None:
            return False
        self._check_size(line.command, size)
        route = self.endpoint.publisher.resolve(
            bytes(inbox.view[inbox.at : line.end]), line.command, list(line.parameters)
        )
        return self._publish(route, line.end, line.parameters)

    def _check_size(self, command: Command, size: int) -> None:
        most = limits.REQUEST_BYTES_MAX if command.batch else limits.MESSAGE_BYTES_MAX
        if size <= 0:
            raise Fault("E_BAD_BODY", f"invalid body size {size}")
        if size > most:
            code, what = ("E_BAD_BODY", "body") if command.batch else ("E_BAD_MESSAGE", "message")
            raise Fault(code, f"{what} too big {size} > {most}")

    def _publish(self, route: Route, line_end: int, parameters: Any) -> bool:
        inbox, command, publisher = self.inbox, route.command, self.endpoint.publisher
        if inbox.have - line_end < 4:
            return False
        size = _NUMBER(inbox.view[line_end : line_end + 4], "big", signed=True)
        self._check_size(command, size)
        end = line_end + 4 + size
        if end > inbox.have:
            if command.batch and inbox.have - line_end >= 8:
                self.endpoint.require_count(_NUMBER(inbox.view[line_end + 4 : line_end + 8], "big", signed=True))
            return False
        start, line_bytes = inbox.at, line_end - inbox.at
        inbox.at = end
        try:
            if command.lacking:
                delay_us = self._delay_us(inbox.view[start:line_end])
                taken = publisher.deferred(route, inbox.array, start, end, line_bytes, delay_us)
            elif command.batch:
                taken = publisher.batch(route, inbox.array, line_end + 4, size)
            else:
                taken = publisher.run(route, inbox.array, start, inbox.have, line_bytes)
        except LadingError as error:
            raise fault_of(error, f"E_{_failure(command)}_FAILED") from None
        inbox.at = taken.end
        name = route.topic.flat_name
        self.published[name] = self.published.get(name, 0) + taken.append.count
        self._requests[NAME, command.name, "OK"] += taken.count
        self._waiting.append(_Waiting(taken=taken, command=_failure(command)))
        taken.append.on_done(self._acknowledge)
        self._congested = self.endpoint.wait_for_disk(self._relieve)
        return True

    def _delay_us(self, line: memoryview) -> int:
        text = bytes(line).rstrip(b"\r\n").split(b" ")[2]
        delay_ms = commands.digits_of(text)
        if delay_ms is None:
            raise Fault("E_INVALID", f"DPUB could not parse timeout {text.decode(errors='replace')}")
        if not 0 <= delay_ms <= limits.DEFER_MS_MAX:
            raise Fault("E_INVALID", f"DPUB timeout {delay_ms} out of range 0-{limits.DEFER_MS_MAX}")
        return delay_ms * 1_000

    def _acknowledge(self, _append: Append) -> None:
        self._settle()
        self.work()

    def _relieve(self) -> None:
        self._congested = False
        self.work()

    # -- all other commands

    def _answer(self, line: Line) -> bool:
        inbox = self.inbox
        body = b""
        start = inbox.at
        if line.command.body is commands.Body.SIZED:
            size = commands.read_size(inbox.view, line.end, inbox.have)
            if size is None:
                return False
            if not 0 < size <= limits.IDENTIFY_BYTES_MAX:
                raise Fault("E_BAD_BODY", f"{line.command.name} invalid body size {size}")
            if line.end + 4 + size > inbox.have:
                return False
            body = bytes(inbox.view[line.end + 4 : line.end + 4 + size])
            inbox.at = line.end + 4 + size
        else:
            inbox.at = line.end
        assert inbox.at > start
        getattr(self, f"_on_{line.command.name.lower()}")(line, body)
        self._requests[NAME, line.command.name, "OK"] += 1
        if line.command.leads_to is not None:
            self.state = line.command.leads_to
        return True

    def _on_identify(self, line: Line, body: bytes) -> None:
        self.identity = identify.parse(body)
        self._identified = True
        self._respond(identify.answer(self.identity, version=VERSION))
        self._beat_later()

    def _on_auth(self, line: Line, body: bytes) -> None:
        raise Fault("E_AUTH_DISABLED", "AUTH Disabled")

    def _on_nop(self, line: Line, body: bytes) -> None:
        pass

    def _on_sub(self, line: Line, body: bytes) -> None:
        self._subscribe(line)

    _on_sub_advanced = _on_sub_ordered = _on_sub

    def _subscribe(self, line: Line) -> None:
        """The checks in the order of the server's (nsq.md 1.8, 4.3)."""
        name = line.command.name
        if self.identity.heartbeat_ms < 0:
            raise Fault("E_INVALID", "cannot SUB with heartbeats disabled")
        asked = start_of(self.node, line)
        form = asked.topic.settings.header_form
        extends = self.identity.extend_support
        if form == EXTENDED and not extends:
            raise Fault("E_SUB_EXTEND_NEED", EXT_NEEDED)
        if form == PLAIN and extends:
            raise Fault("E_SUB_EXTEND_FORBIDDON", EXT_FORBIDDEN)
        if name == "SUB_ORDERED" and self.identity.sample_rate:
            raise Fault("E_INVALID", "order consume is not allowed while sample rate is not 0")
        try:
            channel = self.node.open_channel(asked.topic, asked.channel)
        except LadingError as error:
            raise fault_of(error, "E_SUB_FAILED") from None
        self.consumer = Consumer(
            self.endpoint.services,
            channel,
            self.identity,
            self._deliver,
            self._channel_closed,
            with_ext=extends,
            detail=name != "SUB",
            name=f"{NAME}/{self.address}",
        )
        asked.move(channel)
        channel.subscribe(self.consumer.subscriber, asked.partition, ordered=name == "SUB_ORDERED")
        self._respond(commands.OK)

    def _on_rdy(self, line: Line, body: bytes) -> None:
        text = line.parameters[0] if line.parameters else b"1"
        ready = commands.digits_of(text)
        if ready is None:
            raise Fault("E_INVALID", f"RDY could not parse count {text.decode(errors='replace')}")
        if ready > limits.READY_MAX:
            raise Fault("E_INVALID", f"RDY count {ready} out of range 0-{limits.READY_MAX}")
        if self.state is State.SUBSCRIBED and self.consumer is not None:
            self.consumer.subscriber.set_ready(ready)

    def _on_fin(self, line: Line, body: bytes) -> None:
        """One that is not of 21 bytes, with a carriage return behind its id."""
        assert self.consumer is not None
        plain = np.frombuffer(b"FIN " + line.message_id + b"\n", np.uint8)
        for fault in self.consumer.finish(plain, 0, plain.size)[1]:
            raise fault

    def _on_req(self, line: Line, body: bytes) -> None:
        assert self.consumer is not None
        delay_ms = commands.digits_of(line.parameters[0])
        if delay_ms is None:
            raise Fault("E_INVALID", f"REQ could not parse timeout {line.parameters[0].decode(errors='replace')}")
        self.consumer.requeue(line.message_id, delay_ms)

    def _on_touch(self, line: Line, body: bytes) -> None:
        assert self.consumer is not None
        self.consumer.touch(line.message_id)

    def _on_cls(self, line: Line, body: bytes) -> None:
        assert self.consumer is not None
        self.consumer.subscriber.set_ready(0)
        self._respond(commands.CLOSE_WAIT)

    def _on_internal_create_topic(self, line: Line, body: bytes) -> None:
        name = line.parameters[0].decode(errors="replace")
        if not limits.is_name(name):
            raise Fault("E_BAD_TOPIC", f'topic name "{name}" is not valid')
        partition = commands.partition_of(line.parameters[1])
        if partition < 0:
            raise Fault("E_BAD_PARTITION", "partition should not less than 0")
        extended = len(line.parameters) > 2 and commands.bool_of(line.parameters[2])
        try:
            self.node.require(name, partition + 1, EXTENDED if extended else PLAIN)
        except LadingError:
            raise Fault("E_CREATE_TOPIC_FAILED", f"CREATE_TOPIC {name} failed") from None
        self._respond(commands.OK)

    def topic_upgraded(self, topic: Topic) -> None:
        """A reader of plain frames cannot go on with an extended topic: it is cut, as the server does it."""
        reads = self.consumer is not None and self.consumer.channel.topic is topic
        if reads and not self.identity.extend_support and self._transport is not None:
            self._transport.close()

    # -- answers

    def _deliver(self, frames: NDArray[np.uint8]) -> None:
        if self._transport is not None and not self._parting:
            self._sent_bytes[_BY_ENDPOINT] += frames.size
            self._transport.write(frames.data)

    def _respond(self, data: bytes) -> None:
        self._waiting.append(_Waiting(_OK if data == commands.OK else frame(RESPONSE, data)))
        self._settle()

    def _refuse(self, fault: Fault) -> None:
        self._requests[NAME, "refused", fault.code] += 1
        self._waiting.append(_Waiting(frame(ERROR, str(fault).encode(errors="replace"))))
        if fault.fatal:
            self._ended = True
            # what still comes is thrown away: there must be room to receive it
            self.inbox.at = self.inbox.have = 0
            if self.consumer is not None:
                self.consumer.close()
        self._settle()

    def _settle(self) -> None:
        """Send the answers at the front, all in one write."""
        waiting = self._waiting
        parts = []
        while waiting and waiting[0].ready:
            parts.append(waiting.popleft().bytes())
        if parts and self._transport is not None and not self._parting:
            data = b"".join(parts)
            self._sent_bytes[_BY_ENDPOINT] += len(data)
            self._transport.write(data)
        if not self._working:
            self._close_at_end()

    def _close_at_end(self) -> None:
        done = self._ended or self.endpoint.services.stopping
        if not done or self._waiting or self._parting or self._transport is None or self._working:
            return
        self._parting = True
        if self.endpoint.services.stopping:
            self._transport.close()
            return
        # closing on unread bytes would take the last answer back (RST): say that nothing follows, and read on a while
        if self._transport.can_write_eof():
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def _channel_closed(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.close()

    def _hold(self, hold: bool) -> None:
        if hold != self._held and self._transport is not None and not self._transport.is_closing():
            self._held = hold
            if hold:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # -- heartbeats

    def _beat_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.identity.heartbeat_ms > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.identity.heartbeat_ms / 1e3, self._beat)

    def _beat(self) -> None:
        silent_s = time.monotonic() - self._heard_s
        interval_s = self.identity.heartbeat_ms / 1e3
        # half an interval less, since a beat may come a little early
        if silent_s >= (SILENT_HEARTBEATS - 0.5) * interval_s:
            self.endpoint.dropped("silent")
            self.abort()
            return
        if self._transport is not None and not self._ended:
            self._transport.write(_HEARTBEAT)
            self._beat_later()


def _verb(command: Command) -> str:
    return "SUB" if command.leads_to is State.SUBSCRIBED else command.name


def _failure(command: Command) -> str:
    """What a failed publication is called."""
    return "DPUB" if command.lacking else "MPUB" if command.batch else "PUB"


assert all(hasattr(Connection, f"_on_{name.decode().lower()}") for name, one in COMMANDS.items() if one.form is None)
