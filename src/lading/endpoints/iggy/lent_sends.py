"""Sends of sockets that are lent, of the classic framing: the heads that they begin with, and one append for a pass."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final, NamedTuple

import numpy as np

from ...broker.core.append.append import Balanced, choose_partition
from ...broker.core.pending_append import Append
from ...dialects.iggy.classic import single_send
from ...dialects.iggy.classic.command_table import ok_frame
from ...kernels import engine
from ...kernels.arrays import Longs
from ...kernels.lent_layout import LINE
from ...model.errors import LadingError, Reason, Refusal
from ...runtime.metrics import Labels
from ..base.responses import ResponsePlace
from ..io.lent_lines import LentLines
from ..io.lent_sockets import SOCKET_KERNELS, LentRequests, PassBuffers
from .answers import encode_refusal
from .send import SEND, Route, Sender

_OK: Final = ok_frame()
_PARTITION_BITS: Final = 32
"""A kind is the number of a line, and then as many bits for the partition that is its turn."""


class LentSendHead(NamedTuple):
    """The meaning of a line for one user and release, at a version of the topology."""

    sender: Sender
    route: Route
    version: int
    head_end: int
    """The place after the head in each request."""
    is_in_turn: bool
    """Whether requests go to the partitions of the topic in turn, and it has several."""


class PendingSends:
    """Requests with one line that were appended together, and their responses."""

    __slots__ = ("_count", "_name", "_requests", "_sender", "answers", "done", "slots")

    def __init__(self, sender: Sender, count: int, name: str, requests: MutableMapping[Labels, float]) -> None:
        self._sender, self._count = sender, count
        self._name, self._requests = name, requests
        self.answers = _OK
        self.done = False
        """Whether the messages are durable, or the append has failed."""
        self.slots: list[ResponsePlace] = []

    def settle(self, append: Append) -> None:
        """Respond to all: the append is done."""
        release, status = self._sender.release, 0
        if append.error is not None:
            status, self.answers = encode_refusal(release, SEND, append.error)
        self._requests[self._name, release.commands.name_of(SEND), str(status)] += self._count
        self.done = True
        for slot in self.slots:
            slot.fill((self.answers,))


class LentSends:
    """The heads of one endpoint's lent sockets; see ``lent_sockets.LentProtocol``."""

    fact_columns = 0
    has_own_responses = False

    def __init__(self, endpoint_name: str, requests: MutableMapping[Labels, float]) -> None:
        self._name = endpoint_name
        self._requests = requests
        self._lines: LentLines[LentSendHead] = LentLines()
        self._judge: Any = None
        self._receive: Any = None

    @property
    def is_ready(self) -> bool:
        """Whether the kernels are loaded. If they are not, it starts loading them."""
        kernels, sockets = engine.get_loaded(single_send.KERNEL_MODULE), engine.get_loaded(SOCKET_KERNELS)
        if kernels is None or sockets is None:
            return False
        self._judge, self._receive = kernels.judge_sends, sockets.receive_ready
        return True

    def add(self, head: bytes, sender: Sender) -> int | None:
        """Return the number of the line of sends with this head for one more socket, None if it cannot be lent."""
        route = sender.get_route(head)
        if route is None:
            return None
        topic, choice = route
        is_in_turn = isinstance(choice, Balanced) and len(topic.partitions) > 1
        line = single_send.encode_line(SEND, head)
        meaning = LentSendHead(sender, route, sender.topology.version, single_send.HEAD_AT + len(head), is_in_turn)
        return self._lines.add((head, sender), line, meaning)

    def release(self, line: int) -> None:
        """Note that a socket with this line has been taken back."""
        self._lines.release(line)

    def receive(self, epoll: int, buffers: PassBuffers, now_us: int) -> tuple[int, int, int, int, int]:
        """Read the sockets that are ready, and keep whole requests apart from all else; see ``LentProtocol``."""
        rows, scratch, files, spans = buffers.rows, buffers.scratch, buffers.files, buffers.spans
        others, lines = buffers.others, self._lines
        count, rest, ready = self._receive(epoll, buffers.events, rows, scratch, files, spans, others)
        if not count:
            return 0, rest, 0, -1, ready
        taken, rest, size_bytes, line = self._judge(
            scratch, count, files, spans, rest, rows, lines.text, lines.sizes, others, now_us
        )
        kind = -1
        if line >= 0:
            lent = self._lines.find(line)
            if lent is not None and not lent.is_in_turn:
                kind = line << _PARTITION_BITS
        return taken, rest, size_bytes, kind, ready

    def list_kinds(self, buffers: PassBuffers, count: int) -> Longs:
        """Return the lines of the first ``count`` requests, and the partitions whose turn it is."""
        lines = buffers.rows[buffers.files[:count], LINE]
        kinds: Longs = lines << _PARTITION_BITS
        for line in np.unique(lines).tolist():
            lent = self._lines.find(line)
            if lent is not None and lent.is_in_turn:
                topic, places = lent.route[0], np.flatnonzero(lines == line)
                turns = topic.next_balanced + np.arange(len(places) + 1)
                kinds[places] += turns[:-1] % len(topic.partitions)
                topic.next_balanced = int(turns[-1]) % len(topic.partitions)
        return kinds

    def begin(self, kind: int, requests: LentRequests, now_us: int) -> PendingSends | None:
        """Append the messages of requests with one line; return None if that is refused.

        Then nothing was appended: each client's own session receives its request, and finds the refusal.
        """
        lent = self._lines.find(kind >> _PARTITION_BITS)
        if lent is None:
            return None
        topic, choice = lent.route
        spans = requests.spans.tolist()
        try:
            if lent.version != lent.sender.topology.version:
                # the topic may have been deleted or created again, or the right to write to it revoked
                raise Refusal(Reason.TOPIC_NAME_NOT_FOUND, "the meaning of a line may have changed; find it again")
            if lent.is_in_turn:
                partition = topic.partition(kind & (1 << _PARTITION_BITS) - 1)
            else:
                partition = choose_partition(topic, choice)
            append = lent.sender.append_requests(partition, requests.scratch, spans, lent.head_end, now_us, self)
        except LadingError:
            if lent.is_in_turn and topic.partitions:
                # their sessions take the same turns again
                topic.next_balanced = (topic.next_balanced - len(spans)) % len(topic.partitions)
            return None
        pending = PendingSends(lent.sender, len(spans), self._name, self._requests)
        append.add_done_callback(pending.settle)
        return pending
