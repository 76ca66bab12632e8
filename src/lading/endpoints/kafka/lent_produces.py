"""Produce requests of sockets that are lent: the heads that they begin with, and one append for all of a pass."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ...dialects.kafka import single_produce
from ...dialects.kafka.errors import code_of
from ...dialects.kafka.produce import Outcome
from ...dialects.kafka.single_produce_layout import FACT_COLUMNS, PARTITION
from ...kernels import engine
from ...kernels.arrays import Bytes, Longs, Table
from ...kernels.lent_layout import LINE
from ...model.errors import LadingError
from ...runtime.metrics import Labels
from ..base.responses import ResponsePlace
from ..base.route_cache import RouteCache
from ..io.lent_lines import LentLines
from ..io.lent_sockets import SOCKET_KERNELS, LentRequests, PassBuffers
from .produce import ProduceHandler
from .request_context import ProduceHead, ProduceRoute

if TYPE_CHECKING:
    from ...broker.core.pending_append import Append
    from ...broker.core.topology import Partition

_PARTITION_BITS: Final = 32
"""A kind is the number of a line, and then as many bits for the number of a partition."""

Routes = RouteCache[ProduceHead, ProduceRoute]


class LentHead(NamedTuple):
    """The meaning of a line for one user, at a version of the topology."""

    route: ProduceRoute
    version: int
    templates: dict[tuple[int, int], Bytes]
    """Responses without their correlation id and offset, by number and first offset of the partition."""


class PendingProduces:
    """Requests for one partition that were appended together, and their responses."""

    __slots__ = ("_facts", "_head", "_labels", "_owner", "_partition", "answers", "done", "slots")

    def __init__(self, owner: LentProduces, head: LentHead, partition: Partition, facts: Table) -> None:
        self._owner, self._head, self._partition, self._facts = owner, head, partition, facts
        self.answers = b""
        self.done = False
        """Whether the batches are durable, or failed."""
        self.slots: list[ResponsePlace] = []

    def settle(self, append: Append) -> None:
        """Respond to all: the append is done."""
        layout, number = self._head.route.layout, self._partition.number
        error, offset_at = append.error, -1
        if error is None:
            code, offset_at = 0, single_produce.find_offset(layout)
            template = self._find_template(number, self._partition.log.first_offset)
        else:
            code = code_of(error)
            template = single_produce.encode_template(layout, Outcome(number, code, message=str(error)))
        self.answers = self._owner.finish(template, self._facts, offset_at, append.base_offset, code)
        self.done = True
        for slot in self.slots:
            slot.fill((self.answers,))

    def _find_template(self, number: int, first_offset: int) -> Bytes:
        templates = self._head.templates
        template = templates.get((number, first_offset))
        if template is None:
            if len(templates) >= TEMPLATES_MAX:
                templates.clear()
            outcome = Outcome(number, 0, 0, -1, first_offset)
            template = templates[number, first_offset] = single_produce.encode_template(
                self._head.route.layout, outcome
            )
        return template


TEMPLATES_MAX: Final = 64
"""Responses that are remembered of a line: those of its partitions, each until retention deletes its first message."""


class LentProduces:
    """The heads of one endpoint's lent sockets; see ``lent_sockets.LentProtocol``."""

    fact_columns = FACT_COLUMNS
    has_own_responses = True

    def __init__(self, producer: ProduceHandler, endpoint_name: str, requests: MutableMapping[Labels, float]) -> None:
        self._producer = producer
        self._name = endpoint_name
        self._requests = requests
        self._topology = producer.topology
        self._lines: LentLines[LentHead] = LentLines()
        self._kernels: Any = None
        self._receive: Any = None

    @property
    def is_ready(self) -> bool:
        """Whether the kernels are loaded, which asks for them."""
        kernels, sockets = engine.get_loaded(single_produce.KERNEL_MODULE), engine.get_loaded(SOCKET_KERNELS)
        if kernels is None or sockets is None:
            return False
        self._kernels, self._receive = kernels, sockets.receive_ready
        return True

    def add(self, head: ProduceHead, routes: Routes) -> int | None:
        """Return the number of the line of requests with this head for one more socket, None if it cannot be lent.

        The routes are those of a user.
        """
        route = routes.get(head)
        if route is None or not route.acks or route.transaction is not None:
            return None
        line = single_produce.encode_line(*head)
        return self._lines.add((head, routes), line, LentHead(route, self._topology.version, {}))

    def release(self, line: int) -> None:
        """Note that a socket with this line has been taken back."""
        self._lines.release(line)

    def receive(self, epoll: int, buffers: PassBuffers, now_us: int) -> tuple[int, int, int, int, int]:
        """Read the sockets that are ready, and keep whole requests apart from all else; see ``LentProtocol``."""
        files, spans, others, rows, scratch = (
            buffers.files,
            buffers.spans,
            buffers.others,
            buffers.rows,
            buffers.scratch,
        )
        count, rest, ready = self._receive(epoll, buffers.events, rows, scratch, files, spans, others)
        if not count:
            return 0, rest, 0, -1, ready
        lines, facts = self._lines, buffers.facts
        taken, rest, size_bytes, is_one_kind = self._kernels.judge_requests(
            scratch, count, files, spans, rest, rows, lines.text, lines.sizes, facts, others, now_us
        )
        kind = -1
        if taken and is_one_kind:
            kind = int(rows[files[0], LINE]) << _PARTITION_BITS | int(facts[0, PARTITION])
        return taken, rest, size_bytes, kind, ready

    def list_kinds(self, buffers: PassBuffers, count: int) -> Longs:
        """Return line and partition of the first ``count`` requests."""
        lines = buffers.rows[buffers.files[:count], LINE]
        kinds: Longs = lines << _PARTITION_BITS | buffers.facts[:count, PARTITION]
        return kinds

    def begin(self, kind: int, requests: LentRequests, now_us: int) -> PendingProduces | None:
        """Append the batches of requests for one partition; return None if that is refused.

        Then nothing was appended: each client's own session receives its request, and finds the refusal. So does it
        with a batch that is not the next one of its producer.
        """
        head = self._lines.find(kind >> _PARTITION_BITS)
        # since then the topic may have been deleted or created again, or the right to write to it revoked
        if head is None or head.version != self._topology.version:
            return None
        try:
            partition = head.route.topic.partition(kind & (1 << _PARTITION_BITS) - 1)
            append = self._producer.append_judged(self._kernels, partition, requests, self)
        except LadingError:
            return None
        if append is None:
            return None
        facts = requests.facts
        # the next pass writes over them
        pending = PendingProduces(self, head, partition, facts if append.done else facts.copy())
        append.add_done_callback(pending.settle)
        return pending

    def finish(self, template: Bytes, facts: Table, offset_at: int, base_offset: int, code: int) -> bytes:
        """Return the responses to requests, one after the other, and count them."""
        count = len(facts)
        responses = np.empty(count * template.size, np.uint8)
        self._kernels.fill_responses(template, facts, offset_at, base_offset, responses)
        self._requests[self._name, "Produce", str(code)] += count
        return responses.tobytes()
