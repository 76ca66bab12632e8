"""Services that endpoints share, and their start, listening and stop."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ...model.errors import LocalError, Reason
from ...runtime.clock import now_us as now_us
from ...runtime.health import Health
from ...runtime.metrics import Metrics
from ...runtime.open_files import open_files_limit, share_open_files
from ...runtime.turns import CallbackQueue
from ...settings.endpoints import endpoint_key
from ...settings.settings import Address, Settings
from .admission import ConnectionBudget
from .authenticator import Authenticator
from .busy_poll import BusyPoll
from .change_runner import ChangeRunner
from .fair_runner import FairLimits, FairRunner
from .process import Process
from .receive_budget import ReceiveBudget
from .request_budget import RequestBudget
from .turn_queue import TurnQueue

if TYPE_CHECKING:
    from ...broker.broker import Broker
    from ...broker.core.injected_faults import InjectedFaults
    from ...broker.core.settings import TopicSettings
    from ...broker.core.topology import Topic

    CreationKey = tuple[str, int, TopicSettings | None]
    """Name, number of partitions, and settings of a topic."""

A = TypeVar("A")
R = TypeVar("R")

FILTERS: Final = FairLimits(
    threads=1,
    waiting_max=256,
    client_waiting_max=64,
    reason=Reason.STOPPING,
    sentence="too many filters wait; retry later",
)
"""The limit of requests with a filter, by user, or by address for clients without a user."""
LISTEN_BACKLOG: Final = 65_535
"""Clients that wait to be accepted: more than any system takes, so that each cuts it to its own maximum
(Linux: ``net.core.somaxconn``, 4,096 by default). With 100, the default of asyncio, 1,000 connects at once took 6.4 s:
the system dropped the first packets of most, and clients repeat them after 1, 3 and 7 s."""


@dataclass(slots=True)
class Services:
    """Services of endpoints; one set for the whole process."""

    broker: Broker
    settings: Settings
    metrics: Metrics
    workers: ThreadPoolExecutor
    """For work too long for the event loop; bounded by ``settings.workers``."""
    process: Process = field(default_factory=Process)
    health: Health = field(default_factory=Health)
    busy_poll: BusyPoll = field(init=False)
    receive: ReceiveBudget = field(init=False)
    connection_budget: ConnectionBudget = field(init=False)
    changes: ChangeRunner = field(init=False)
    """Makes ``broker.changes``."""
    turns: TurnQueue = field(init=False)
    """The queue of connections that have more work than fits into one turn of the loop."""
    filters: FairRunner = field(init=False)
    """Runs the filters of clients, which may take long, so that none of them takes the workers from others."""
    authenticator: Authenticator = field(init=False)
    """Checks logins, and changes users and rules."""
    requests: RequestBudget = field(default_factory=lambda: RequestBudget(_call_soon))
    """Memory for what long requests become."""
    partings: CallbackQueue = field(default_factory=lambda: CallbackQueue(_call_soon))
    """Cancels the work that disconnected clients waited for."""
    stopping: bool = False
    faults: InjectedFaults | None = None
    """Faults that tests inject into this broker."""
    creations: dict[CreationKey, asyncio.Future[Topic]] = field(default_factory=dict)
    """Topics that are being created because clients use them, for all that wait; see ``topic_creation``."""
    shared: dict[type, Any] = field(default_factory=dict)
    """Parts that the endpoints of one protocol share, by type."""
    limits_callbacks: list[Callable[[Settings], None]] = field(default_factory=list)
    """Called with the settings when SIGHUP has changed some of them."""
    _stop_callbacks: dict[object, Callable[[], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.changes = ChangeRunner(self.workers)
        self.turns = TurnQueue()
        self.filters = FairRunner("lading-filter", FILTERS)
        self.add_stop_callback(self.filters.close)
        self.authenticator = Authenticator(self.broker, self.changes, self.settings.oauth)
        self.add_stop_callback(self.authenticator.close)
        self.busy_poll = BusyPoll(self.settings.busy_poll_us)
        connections = self.settings.connections
        shares = share_open_files(open_files_limit(), self.settings.log.open_files_max)
        self.connection_budget = ConnectionBudget(shares.connections)
        self.receive = ReceiveBudget(connections.receive_bytes_max, connections.peer_share)
        self.limits_callbacks.append(self._set_limits)

    def _set_limits(self, settings: Settings) -> None:
        self.receive.set_limits(settings.connections.receive_bytes_max, settings.connections.peer_share)

    def add_stop_callback(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when the broker begins to stop, which may be at once; the returned function cancels that."""
        if self.stopping:
            callback()
        key = object()
        self._stop_callbacks[key] = callback

        def cancel() -> None:
            self._stop_callbacks.pop(key, None)

        return cancel

    def begin_stop(self) -> None:
        """Make all waiting requests respond now."""
        self.stopping = True
        for callback in list(self._stop_callbacks.values()):
            callback()

    async def run_in_worker(self, size_bytes: int, inline_bytes_max: int, work: Callable[[A], R], value: A) -> R:
        """Return ``work(value)``, done in a worker if ``size_bytes`` shows that it would block the event loop."""
        if size_bytes <= inline_bytes_max:
            return work(value)
        return await asyncio.get_running_loop().run_in_executor(self.workers, work, value)


def _call_soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


class Endpoint(Protocol):
    """A server endpoint. ``start`` takes a bound socket; ``stop`` responds to the requests received, then closes."""

    async def start(self, listener: socket.socket) -> None: ...

    async def stop(self) -> None: ...


class AddressInUse(LocalError):
    """An address that another program listens on, with the setting that names it."""

    def __init__(self, address: Address, section: str) -> None:
        super().__init__(
            f"{address} is in use by another program; set {section}.address to another port (port 0 chooses a free "
            f"one), or disable it with {section}.enabled=false"
        )
        self.place = f"{address} ({section}.address)"


def listen(name: str, address: Address, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """Return a socket bound to the address of endpoint ``name``. Raises LocalError, which names the setting."""
    key = f"{endpoint_key(name)}.address"
    try:
        family, _, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=kind, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise LocalError(f"{key} {address} names no address of this machine: {error.strerror}; set another") from None
    listener = socket.socket(family, kind, protocol)
    try:
        if kind is socket.SOCK_STREAM:
            # for datagrams it would let a second process take them away from this one
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        if kind is socket.SOCK_STREAM:
            listener.listen(LISTEN_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(address, endpoint_key(name)) from None
        raise LocalError(f"cannot listen on {key} {address}: {error.strerror}; set another address") from None
    return listener


def format_bound_address(listener: socket.socket) -> str:
    """``host:port`` a socket really listens on."""
    host, port = listener.getsockname()[:2]
    return str(Address(host, port))
