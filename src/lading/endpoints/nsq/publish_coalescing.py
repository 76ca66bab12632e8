"""PUB commands that come in one pass of the event loop, from however many connections, as one append for each line.

Most clients wait for every answer, so that one command lies alone in what a connection receives. Those commands are
kept until the end of the pass; laid one behind the other they are a run, which the log takes at once. The first
connection of a pass does not wait for others: most of the time there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ...broker.core.pending_append import Append
from ...dialects.nsq import commands
from ...dialects.nsq.commands import ERROR, RESPONSE, frame
from ...dialects.nsq.errors import NsqProtocolError, fault_of
from ...metrics import Labels
from ...model.errors import LadingError
from .publish import RUN_BYTES_MAX, Publisher

if TYPE_CHECKING:
    from .session import NsqdConnection

Bytes = NDArray[np.uint8]

COMMAND_BYTES_MAX: Final = 16 << 10
"""A longer command goes its own way: to copy it would cost more than is won."""
_FAILURE: Final = "E_PUB_FAILED"
_OK: Final = frame(RESPONSE, commands.OK)


class CoalescedPublication:
    """What some connections publish together: all of them get the same answer."""

    __slots__ = ("_answer", "_served", "commands", "connections", "done", "size_bytes")

    def __init__(self, served: Callable[[], None]) -> None:
        """``served`` is called when they are answered."""
        self._served = served
        self.commands: list[bytes] = []
        self.connections: list[NsqdConnection] = []
        self.size_bytes = 0
        self.done = False
        self._answer = _OK

    def answer(self) -> bytes:
        """The frame for each of them, now that it is done."""
        return self._answer

    def settle(self, append: Append) -> None:
        """The log has said what became of it."""
        self.finish(None if append.error is None else fault_of(append.error, _FAILURE))

    def finish(self, error: NsqProtocolError | None) -> None:
        """It lasts, or it has not happened: tell everybody."""
        if error is not None:
            self._answer = frame(ERROR, str(error).encode(errors="replace"))
        self.done = True
        for connection in self.connections:
            connection.acknowledge()
        self._served()


class PublishCoalescer:
    """The commands of this pass; one for all connections of a face."""

    def __init__(
        self,
        publisher: Publisher,
        endpoint_name: str,
        requests: dict[Labels, float],
        at_end_of_pass: Callable[[Callable[[], None]], None],
        served: Callable[[], None],
    ) -> None:
        self._publisher = publisher
        self._face = endpoint_name
        self._told = (endpoint_name, "PUB", "OK")
        self._requests = requests
        self._at_end_of_pass = at_end_of_pass
        self._served = served
        self._answered = CoalescedPublication(served)
        self._answered.done = True
        self._joints: dict[bytes, CoalescedPublication] = {}
        self._alone: NsqdConnection | None = None
        """The one that has published since the last flush."""

    def publish(self, line: bytes, source: Bytes, connection: NsqdConnection) -> CoalescedPublication:
        """Publish the whole PUB command that ``source`` is and that begins with ``line``, in this pass."""
        if self._alone is None or self._alone is connection:
            self._alone = connection
            return self._alone_now(line, source, connection)
        command = source.tobytes()
        joint = self._joints.get(line)
        if joint is None or joint.size_bytes > RUN_BYTES_MAX - COMMAND_BYTES_MAX:
            if joint is not None:
                self.flush()
            elif not self._joints:
                self._at_end_of_pass(self.flush)
            joint = self._joints[line] = CoalescedPublication(self._served)
        joint.commands.append(command)
        joint.connections.append(connection)
        joint.size_bytes += len(command)
        return joint

    @property
    def waiting(self) -> bool:
        """Whether anything was gathered that is not appended yet."""
        return bool(self._joints)

    def flush(self) -> None:
        """Append what was gathered."""
        joints, self._joints, self._alone = self._joints, {}, None
        for line, joint in joints.items():
            self._append(line, joint)

    def _alone_now(self, line: bytes, source: Bytes, connection: NsqdConnection) -> CoalescedPublication:
        try:
            # the same source as for its other commands: who is alone stays so whatever it sends
            append = self._publisher.publish_identical(
                self._publisher.get_route(line), source, 1, len(line), connection.intake
            )
        except LadingError as error:
            return self._refused(error, CoalescedPublication(self._served), 1)
        self._requests[self._told] += 1
        if append.done:
            self._served()
            return self._answered
        joint = CoalescedPublication(self._served)
        joint.connections.append(connection)
        append.add_done_callback(joint.settle)
        return joint

    def _refused(self, error: LadingError, joint: CoalescedPublication, count: int) -> CoalescedPublication:
        fault = fault_of(error, _FAILURE)
        self._requests[self._face, "refused", fault.code] += count
        joint.finish(fault)
        return joint

    def _append(self, line: bytes, joint: CoalescedPublication) -> None:
        count = len(joint.commands)
        source = np.frombuffer(b"".join(joint.commands) if count > 1 else joint.commands[0], np.uint8)
        try:
            append = self._publisher.publish_identical(self._publisher.get_route(line), source, count, len(line), self)
        except LadingError as error:
            self._refused(error, joint, count)
            return
        except BaseException:
            # no answer would be true: they are cut off, as the loop does where a connection's own work fails
            for connection in joint.connections:
                connection.abort()
            raise
        self._requests[self._told] += count
        append.add_done_callback(joint.settle)
