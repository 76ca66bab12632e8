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

if TYPE_CHECKING:
    from ...broker.core.topology import Topic

R = TypeVar("R")


class ProduceRoute(NamedTuple):
    """Route of a request for one partition, from its head; its bytes are those from the client id to the partition."""

    acks: int
    topic: Topic
    layout: ResponseLayout
    transaction: str | None
    """The transactional id whose transaction its batches begin by themselves."""


class RequestContext(Protocol):
    """The session of a request, as far as its response needs it."""

    inbox: Inbox
    responses: ResponseQueue
    is_lost: bool
    """The connection is gone."""
    principal: Principal | None
    """The user that the connection acts for."""
    produce_routes: RouteCache[tuple[int, bytes], ProduceRoute]
    """By version and head."""
    fetch_topics: RouteCache[tuple[bool, bytes], Topic]
    """By whether the name is an id, and the name."""
    produce_head_bytes: int
    """Bytes of the head of its last Produce, 0 before the first: the next one most often has the same."""
    throttle_end_us: int
    """The end of the wait for the last quota that was used up; 0 if none was."""
    cancels: set[Any]
    """Long polls that wait, each with ``cancel()``."""

    @property
    def throttle_ms(self) -> int:
        """How long the client is to send nothing, for the fields that say so."""

    def throttle(self, delay_us: int) -> None:
        """Begin no more requests for this long."""

    def count(self, name: str, error: int) -> None:
        """Count a response in the metrics."""

    def hold(self, is_held: bool) -> None:
        """Make later requests wait for this one's work, or continue."""

    def run_in_worker(self, work: Callable[[], R], on_done: Callable[[Future[R]], None]) -> None:
        """Call back when a worker has done ``work``, unless the client is gone before."""

    def run_to_end(self, work: Awaitable[R], on_done: Callable[[Future[R]], None]) -> None:
        """Call back when ``work`` is done, also if the client is gone before."""

    def take_reservation(self) -> MemoryReservation:
        """Return the memory of the long request that begins; ``release``, or the connection's end, gives it back."""

    def release(self, reservation: MemoryReservation) -> None:
        """Return the memory of a completed request."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next pass of the event loop, also if the client is gone."""

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after ``delay_us``, also if the client is gone; calling what is returned cancels it."""

    def wait_for_disk(self) -> None:
        """After an append: begin no more while the broker is congested."""

    def tell_old_format(self, sentence: str) -> None:
        """Log once that the client is older than message format 2."""

    def close_on_error(self, why: str) -> None:
        """Close the connection after the responses to earlier requests."""

    def refuse(self, slot: Slot, why: str) -> None:
        """Give a place no response: the connection is closed when all before it are sent."""

    def origin(self) -> dict[str, str]:
        """Return what a logger takes as ``extra`` for a line about this connection."""
