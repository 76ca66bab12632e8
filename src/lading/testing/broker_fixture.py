"""The broker that tests share: topics for one test each, waiting for messages, restarts; `pytest_plugin` provides
it."""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import count
from pathlib import Path
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ..model.errors import LocalError
from ..model.values import HeaderValue
from . import HANG_S, READY_TIMEOUT_S, BrokerProcess, hold_endpoints, prepare, start
from .held_ports import PortHolder
from .network_faults import FaultyProxy

if TYPE_CHECKING:
    from ..model.headers import Headers
    from ..model.message import Message
    from ..transports.lading.transport import LadingTransport

ExpectedHeaders = Mapping[str, str | bytes | bool | int | float | HeaderValue | None]
WAIT_S: Final = 5.0
"""Default time that ``wait_for`` waits."""
STEP_S: Final = 0.05
"""A wait for messages checks its deadline once in this time."""
SHOWN_MAX: Final = 10
"""An error shows at most this many of the messages that came instead."""
PROXIED: Final = ("kafka", "iggy_tcp", "iggy_websocket", "iggy_http", "nsqd_tcp", "nsqd_http", "nsqlookupd_http")
"""Endpoints that clients reach through a proxy if there are to be faults. Lading's own, ``admin``, is always
reachable."""
ADVERTISED: Final = ("kafka", "nsqd_tcp", "nsqd_http")
"""Endpoints that advertise to clients an address to connect to."""
UNENCRYPTED: Final = ("iggy_quic",)
"""Endpoints without the setting ``tls.enabled``: QUIC is always encrypted."""
OPTIONS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "settings": ((Mapping, NoneType), "a dict of settings of the broker by dotted key"),
    "tls": ((bool,), "True or False"),
    "users": ((Mapping, NoneType), "a dict of passwords by name"),
    "faults": ((bool,), "True or False"),
    "timeout_s": ((int, float), "a number of seconds"),
}
"""Arguments of LadingBroker: what each may be, and how to say so."""


class BrokerAddresses(ABC):
    """The addresses of a broker by the names that tests use: each endpoint's ``host:port`` as a property."""

    @abstractmethod
    def address(self, endpoint: str) -> str:
        """Return the address of an endpoint, by its name in the settings."""

    @property
    def kafka(self) -> str:
        """The ``bootstrap.servers`` of Kafka clients."""
        return self.address("kafka")

    @property
    def iggy_tcp(self) -> str:
        """Address for Iggy clients over TCP."""
        return self.address("iggy_tcp")

    @property
    def iggy_quic(self) -> str:
        """Address for Iggy clients over QUIC."""
        return self.address("iggy_quic")

    @property
    def iggy_websocket(self) -> str:
        """Address for Iggy clients over WebSocket."""
        return self.address("iggy_websocket")

    @property
    def iggy_http(self) -> str:
        """Address for Iggy clients over HTTP."""
        return self.address("iggy_http")

    @property
    def nsqd_tcp(self) -> str:
        """Address at which NSQ clients publish and subscribe."""
        return self.address("nsqd_tcp")

    @property
    def nsqd_http(self) -> str:
        """Address at which NSQ clients publish over HTTP."""
        return self.address("nsqd_http")

    @property
    def nsqlookupd_tcp(self) -> str:
        """Address at which nsqd nodes register."""
        return self.address("nsqlookupd_tcp")

    @property
    def nsqlookupd_http(self) -> str:
        """Address at which NSQ consumers look up topics."""
        return self.address("nsqlookupd_http")

    @property
    def schema_registry(self) -> str:
        """Address for serialisers with a schema registry."""
        return self.address("schema_registry")

    @property
    def admin(self) -> str:
        """Address for the command line, ``Producer`` and ``Consumer``."""
        return self.address("admin")

    @property
    def url(self) -> str:
        """``lading://host:port`` for ``Producer``, ``Consumer`` and the command line."""
        return f"lading://{self.admin}"


class LadingBroker(BrokerAddresses):
    """A broker on free ports of the loopback, with a directory of its own, that many tests share.

    ``settings`` are those of ``lading serve`` by dotted key; nothing need survive a power cut here
    (``durability = "none"``). ``tls`` encrypts every endpoint, with a certificate of the broker's own in ``ca_file``.
    ``users`` are names and passwords; the first is the administrator, and requests over HTTP have to log in.
    ``faults`` puts a proxy before each endpoint over TCP but ``admin``, which ``faults("kafka")`` and so on have fail.

    ``kafka``, ``iggy_tcp``, … are addresses, ``host:port``. It ends with the ``with`` block, or with this process
    however that ends. One thread may use it at a time, and only the process that started it.
    """

    __test__ = False

    def __init__(
        self,
        *,
        settings: Mapping[str, Any] | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        faults: bool = False,
        timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        # it imports beside this process
        prepare()
        from ..settings.settings import EndpointSettings

        self._settings: dict[str, Any] = {"durability": "none", "broker.stall_timeout_ms": int(HANG_S * 1_000)}
        self._ports = PortHolder()
        self._settings |= hold_endpoints(self._ports)
        for name in EndpointSettings.model_fields:
            if tls and name not in UNENCRYPTED:
                self._settings[f"endpoints.{name}.tls.enabled"] = True
        self._settings |= settings or {}
        self._proxies: dict[str, FaultyProxy] = {name: FaultyProxy() for name in PROXIED} if faults else {}
        for name, proxy in self._proxies.items():
            if name in ADVERTISED:
                # the proxy's address is also advertised
                self._settings[f"endpoints.{name}.advertised"] = proxy.address
        self._tls = tls
        self._users = dict(users or {})
        self._timeout_s = timeout_s
        self._numbers = count(1)
        self._running: BrokerProcess | None = None
        self._transport: LadingTransport | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="lading-")
        self._directory = Path(self._scratch.name)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the broker with these arguments; LocalError, which says which one is wrong, instead of a TypeError."""
        if not isinstance(options, Mapping):
            raise LocalError(f"it has to return a dict of arguments of LadingBroker, not {options!r}")
        for name, value in options.items():
            if name not in OPTIONS:
                near = get_close_matches(str(name), OPTIONS, 1, 0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"LadingBroker takes {', '.join(OPTIONS)}"
                raise LocalError(f"unknown argument {name!r}; {hint}")
            kinds, wanted = OPTIONS[name]
            if not isinstance(value, kinds):
                raise LocalError(f"argument {name!r} has to be {wanted}, not {value!r}")
        return cls(**options)

    # life

    def __enter__(self) -> LadingBroker:
        try:
            self._add_users()
            self._start()
            from ..settings.endpoints import endpoint_key

            # a restarted broker keeps its addresses
            for name, address in self.process.endpoints.items():
                self._settings[f"{endpoint_key(name)}.address"] = address
            for name, proxy in self._proxies.items():
                proxy.start(self._settings[f"endpoints.{name}.address"])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the broker and remove its directory; raises LocalError if it hangs. Further calls do nothing."""
        try:
            self._stop(crash=False)
        finally:
            for proxy in self._proxies.values():
                proxy.close()
            self._ports.close()
            self._scratch.cleanup()

    @contextmanager
    def outage(self, *, crash: bool = False) -> Iterator[None]:
        """Run a block without the broker; afterwards the broker is back, at the same addresses and with its messages.

        With ``crash`` it is killed instead of stopped: requests in flight get no response.
        """
        prepare()
        self._stop(crash=crash)
        try:
            yield
        finally:
            self._start()

    def faults(self, endpoint: str) -> FaultyProxy:
        """Return what makes connections of an endpoint fail; LocalError for a broker without ``faults=True``."""
        if endpoint not in self._proxies:
            raise LocalError(
                f"endpoint {endpoint!r} has no faults; start the broker with faults=True, and name one of "
                + ", ".join(PROXIED)
            )
        return self._proxies[endpoint]

    def refuse_produces(self, count: int) -> None:
        """Refuse the next ``count`` produce requests, of any protocol; 0 refuses no more of them.

        Clients get the error of a full disk in their protocol, after which they may send again: Kafka's
        KAFKA_STORAGE_ERROR, Iggy's 4006, NSQ's E_PUB_FAILED. A request for several partitions counts for each.
        """
        self._connect_admin().set_faults(appends_to_refuse=count)

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Run a block in which nothing can be written, as on a full disk; reading continues.

        Every produce gets its protocol's error, as in ``refuse_produces``, and so do a new topic and positions that are
        stored; ``/health`` is degraded. All of it recovers by itself after the block. Deleting a topic would free room
        on a real disk, but does not here: it is refused as well, although the topic is deleted.
        """
        self._connect_admin().set_faults(disk_is_full=True)
        try:
            yield
        finally:
            self._connect_admin().set_faults(disk_is_full=False)

    def restart(self, *, crash: bool = False) -> None:
        """Stop, or kill, the broker and start it again on the same addresses and data; all connections end."""
        with self.outage(crash=crash):
            pass

    @property
    def process(self) -> BrokerProcess:
        """The running process; raises LocalError if the broker is stopped."""
        if self._running is None:
            raise LocalError("the broker does not run: use it inside its with block, and not while it is stopped")
        return self._running

    def _add_users(self) -> None:
        if not self._users:
            return
        from ..runtime.clock import now_us
        from ..serve.serve import change_access

        def add(name: str, password: str, is_first: bool) -> None:
            change_access(
                self._directory / "data",
                lambda access: access.add_user(name, password, now_us=now_us(), is_administrator=is_first),
            )

        for number, (name, password) in enumerate(self._users.items()):
            add(name, password, number == 0)

    def _start(self) -> None:
        self._running = start(
            self._directory / "data", self._settings, self._directory / "stderr.log", self._timeout_s, ["--test-faults"]
        )

    def _stop(self, *, crash: bool) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        running, self._running = self._running, None
        if running is None:
            return
        if crash:
            running.kill()
        else:
            running.stop()

    # addresses

    def address(self, endpoint: str) -> str:
        """``host:port`` of an endpoint, by its name in the settings; with ``faults`` that of its proxy."""
        if endpoint in self._proxies:
            return self._proxies[endpoint].address
        address: str = self._settings[f"endpoints.{endpoint}.address"]
        return address

    @property
    def ca_file(self) -> Path:
        """The certificate that clients have to trust; LocalError without ``tls``."""
        if not self._tls:
            raise LocalError("the broker has no certificate; give it tls=True")
        file = self._directory / "ca.pem"
        if not file.exists():
            end = "-----END CERTIFICATE-----\n"
            own = (self._directory / "data" / "certificate.pem").read_text()
            # the key comes after it in the file
            file.write_text(own[own.index("-----BEGIN CERTIFICATE-----") : own.index(end) + len(end)])
        return file

    def connect(self) -> LadingTransport:
        """Open a connection to the admin endpoint, trusted and logged in; the caller closes it."""
        from ..transports.lading.transport import LadingTransport

        transport = LadingTransport(self.process.url, tls=self._tls, ca_file=str(self.ca_file) if self._tls else None)
        for name, password in list(self._users.items())[:1]:
            transport.log_in(name, password)
        return transport

    # topics and messages

    def create_topic(self, name: str | None = None, partitions: int = 1) -> str:
        """Create a topic and return its name; without one, a name that no topic of this run had."""
        name = f"test-{next(self._numbers)}" if name is None else name
        self._connect_admin().create_topic(name, partitions)
        return name

    def reset(self) -> None:
        """Delete all topics, with their messages and with what groups stored for them. Users and settings stay.

        Refusals that ``refuse_produces`` ordered and that have not happened yet are dropped.
        """
        admin = self._connect_admin()
        admin.set_faults(appends_to_refuse=0)
        for topic in admin.topics():
            admin.delete_topic(topic.name)

    def messages(self, topic: str, headers: ExpectedHeaders | None = None) -> list[Message]:
        """Return the messages that the topic has now, in the order of partitions and offsets, if they match."""
        from ..client.consumer import Consumer

        with Consumer(self.connect(), topic, end="latest", timeout_s=0) as consumer:
            found = [message for message in consumer if _has_headers(message.headers, headers or {})]
        return sorted(found, key=lambda message: (message.partition, message.offset))

    def wait_for(
        self, topic: str, headers: ExpectedHeaders | None = None, *, count: int = 1, timeout_s: float = WAIT_S
    ) -> list[Message]:
        """Wait until a topic has ``count`` messages with all these headers; return all that match by then.

        A text matches a string and, as Kafka has no kinds, the same text as bytes; numbers match by value, a
        ``HeaderValue`` (``lading.u16(7)``) by kind too. If a key stands several times, one of them has to match. The
        topic may be created meanwhile. Raises AssertionError, with the messages that came instead, after ``timeout_s``.
        """
        # pytest shows the line of the test
        __tracebackhide__ = True
        from ..client.consumer import Consumer
        from ..transports.topics import UnknownTopic

        wanted = headers or {}
        deadline = time.monotonic() + timeout_s
        found: list[Message] = []
        others: list[Message] = []
        while True:
            try:
                consumer = Consumer(self.connect(), topic)
                break
            except UnknownTopic as error:
                if time.monotonic() >= deadline:
                    raise AssertionError(f"no message came within {timeout_s:g} s: {error}") from None
                time.sleep(STEP_S)
        with consumer:
            while True:
                left_s = deadline - time.monotonic()
                for message in consumer.poll(timeout_s=min(max(left_s, 0.0), STEP_S)):
                    (found if _has_headers(message.headers, wanted) else others).append(message)
                if len(found) >= count:
                    return found
                if left_s <= 0:
                    raise AssertionError(_describe_absence(topic, wanted, count, timeout_s, found, others))

    def assert_no_message(self, topic: str, headers: ExpectedHeaders | None = None) -> None:
        """Raise AssertionError if the topic has a message with all these headers now.

        A topic that does not exist has none: if nothing was sent, nothing created it.
        """
        __tracebackhide__ = True
        from ..transports.topics import UnknownTopic

        try:
            found = self.messages(topic, headers)
        except UnknownTopic:
            return
        if found:
            raise AssertionError(
                f"{topic} has messages {_describe(headers or {})}: {len(found)}{_list_messages(found)}"
            )

    def _connect_admin(self) -> LadingTransport:
        if self._transport is None:
            self._transport = self.connect()
        return self._transport


def _has_headers(headers: Headers, wanted: ExpectedHeaders) -> bool:
    """Whether each of the wanted headers is among these, by key and value."""
    return all(any(_make_test(value)(header) for header in headers.all(key)) for key, value in wanted.items())


def _make_test(wanted: Any) -> Callable[[Any], bool]:
    def equals(header: Any) -> bool:
        if isinstance(wanted, HeaderValue):
            return (header.kind, header.value) == (wanted.kind, wanted.data)
        if isinstance(wanted, str) and isinstance(header.typed, bytes):
            return bool(header.typed == wanted.encode())
        # True == 1 in Python, but not in a header
        return bool(header.typed == wanted) and isinstance(header.typed, bool) == isinstance(wanted, bool)

    return equals


def _describe(wanted: ExpectedHeaders) -> str:
    return "with " + ", ".join(f"{key} = {value!r}" for key, value in wanted.items()) if wanted else "at all"


def _list_messages(messages: list[Message]) -> str:
    lines = [
        f"\n  partition {message.partition}, offset {message.offset}: "
        + "".join(f"{header}, " for header in message.headers)
        + f"payload {(message.payload or b'')[:80]!r}"
        for message in messages[:SHOWN_MAX]
    ]
    more = len(messages) - SHOWN_MAX
    return "".join(lines) + (f"\n  and {more} more" if more > 0 else "")


def _describe_absence(
    topic: str, wanted: ExpectedHeaders, count: int, timeout_s: float, found: list[Message], others: list[Message]
) -> str:
    came = f"others came:{_list_messages(others)}" if others else "no others came"
    return f"{topic} has {len(found)} of {count} messages {_describe(wanted)} after {timeout_s:g} s; {came}"
