"""The part of a connection that produce and fetch use."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ...broker.core.access.principal import Principal
from ...dialects.kafka.produce import ResponseLayout
from ..base.inbox import Inbox
from ..base.request_budget import MemoryReservation
from ..base.responses import ResponseQueue, Slot
from ..base.route_cache import RouteCache
from ..io.lent_lines import LoanCountdown

if TYPE_CHECKING:
    from ...broker.core.topology import Topic

R = TypeVar("R")


ProduceHead = tuple[int, bytes]
"""The version of a Produce, and its bytes from the client id up to the first partition."""


class ProduceRoute(NamedTuple):
    """The route of a request for one partition, by its head; the key is the bytes from the client id to the
    partition.
    """

    acks: int
    topic: Topic
    layout: ResponseLayout
    transaction: str | None
    """The transactional id, if its batches themselves begin the transaction."""


class RequestContext(Protocol):
    """The session of a request, with what its response needs of it."""

    inbox: Inbox
    responses: ResponseQueue
    is_lost: bool
    """Whether the connection has ended."""
    principal: Principal | None
    """The user whose rights the connection has."""
    produce_routes: RouteCache[ProduceHead, ProduceRoute]
    """Known routes of Produce, by version and head."""
    fetch_topics: RouteCache[tuple[bool, bytes], Topic]
    """Known topics, by whether the name is an id, and by the name."""
    produce_head_bytes: int
    """Size of the head of its last Produce, 0 before the first: the next head mostly has the same size."""
    produced: ProduceHead | None
    """The head of its last Produce, if that was plain and alone."""
    loan: LoanCountdown
    """Counts Produce requests with known heads, each plain and alone."""
    throttle_end_us: int
    """The end of the wait for the last quota that was used up; 0 if none was."""
    cancels: set[Any]
    """Long polls that wait, each with ``cancel()``."""

    @property
    def throttle_ms(self) -> int:
        """How long the client should send nothing, for the field ``throttle_time_ms``."""

    def throttle(self, delay_us: int) -> None:
        """Begin no requests for this long."""

    def count(self, name: str, error: int) -> None:
        """Count a response in the metrics."""

    def hold(self, is_held: bool) -> None:
        """Make later requests wait for the work of this one, or let them continue."""

    def run_in_worker(self, work: Callable[[], R], on_done: Callable[[Future[R]], None]) -> None:
        """Call back when a worker has done ``work``, unless the client disconnects before."""

    def run_to_end(self, work: Awaitable[R], on_done: Callable[[Future[R]], None]) -> None:
        """Call back when ``work`` is done, even if the client disconnects before."""

    def take_reservation(self) -> MemoryReservation:
        """Return the memory reserved for the long request that begins; it is released by ``release`` or at the
        connection's end.
        """

    def release(self, reservation: MemoryReservation) -> None:
        """Release the memory of a completed request."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next pass of the event loop, even if the client has disconnected."""

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after ``delay_us``, even if the client has disconnected; call the returned function to
        cancel it.
        """

    def wait_for_disk(self) -> None:
        """Begin no further requests while the broker is congested; called after an append."""

    def tell_old_format(self, sentence: str) -> None:
        """Log once that the client is older than message format 2."""

    def close_on_error(self, why: str) -> None:
        """Close the connection after the responses to earlier requests."""

    def refuse(self, slot: Slot, why: str) -> None:
        """Send no response for a request: the connection is closed once all earlier responses are sent."""

    def origin(self) -> dict[str, str]:
        """Return the ``extra`` of log lines about this connection."""
