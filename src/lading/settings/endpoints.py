"""Settings of endpoints, one table each: their addresses, the clients they accept and the responses they send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import ByteSize, Field

from ..model.address import Address
from .sections import (
    DEFAULTS,
    ClientCertificateSettings,
    EndpointSection,
    Listen,
    ListenerName,
    Names,
    Section,
    TlsEndpointSection,
    TlsSettings,
    TokenSettings,
    UnauthenticatedEndpoint,
    WithListeners,
    WithoutLogin,
)

IggyRelease = Literal["0.0.30", "0.0.40", "0.1", "0.2", "0.4", "0.5", "0.6", "0.6.60", "0.7", "0.8", "0.9", "0.10"]
"""Releases of Iggy with the classic framing (docs/reference/protocols/iggy.md#releases)."""
IggyHttpRelease = Literal[
    "0.0.30", "0.0.40", "0.1", "0.2", "0.4", "0.5", "0.6", "0.6.60", "0.7", "0.8", "0.9", "0.10", "0.11"
]  # fmt: skip
"""These releases, and the current generation, whose HTTP cannot be recognised by its first bytes."""


class IggyListener(UnauthenticatedEndpoint):
    """An address for Iggy's binary protocol, over any transport."""

    release: IggyRelease | None = None
    """The release of Iggy of its clients. Unset: their login shows it, and clients that do not log in count as 0.0.40.
    Only 0.0.30 must be set, as it looks like another release (0.0.40)."""
    connections_max: int = Field(default=4096, ge=1)
    """Further connections are closed; over QUIC they get no response."""
    idle_timeout_ms: int = Field(default=86_400_000, ge=10)
    """A connection is closed after this long without a request, in place of ``connections.idle_timeout_ms``. Over QUIC
    a client that sends no datagram at all is disconnected after 30 s."""
    answer_bytes_max: ByteSize = Field(default=ByteSize(16 << 20), ge=1 << 16)
    """A poll returns at most about this much, but at least one message."""
    carrier: bool = True
    """Whether messages of other protocols get a carrier with facts that this one cannot hold; the topic setting
    ``carrier`` takes precedence."""


class IggyTcpListener(TlsEndpointSection, IggyListener):
    """An address for Iggy over TCP."""


class IggyTcpSettings(IggyTcpListener, WithListeners):
    """Iggy over TCP."""

    address: Listen = Address("127.0.0.1", 8090)
    listeners: Mapping[ListenerName, IggyTcpListener] = {}
    """More addresses, each a table by its name; see listeners."""


class IggyQuicListener(IggyListener):
    """An address for Iggy over QUIC, always encrypted."""

    tls: ClientCertificateSettings = DEFAULTS
    request_bytes_max: ByteSize = Field(default=ByteSize(10 << 20), ge=1 << 16, le=1 << 26)
    """A longer request is refused on its stream."""

    @property
    def demands_certificate(self) -> bool:
        return self.tls.demands_certificate


class IggyQuicSettings(IggyQuicListener, WithListeners):
    """Iggy over QUIC, on UDP; its libraries are loaded when the first datagram arrives."""

    address: Listen = Address("127.0.0.1", 8080)
    listeners: Mapping[ListenerName, IggyQuicListener] = {}
    """More addresses, each a table by its name; see listeners."""


class IggyWebSocketListener(IggyTcpListener):
    """An address for Iggy over WebSocket."""

    request_bytes_max: ByteSize = Field(default=ByteSize(64 << 20), ge=1 << 16, le=1 << 28)
    """A longer message closes its connection."""


class IggyWebSocketSettings(IggyWebSocketListener, WithListeners):
    """Iggy over WebSocket."""

    address: Listen = Address("127.0.0.1", 8092)
    listeners: Mapping[ListenerName, IggyWebSocketListener] = {}
    """More addresses, each a table by its name; see listeners."""


class IggyHttpListener(WithoutLogin):
    """An address for Iggy over HTTP."""

    release: IggyHttpRelease | None = None
    """The release of Iggy of its clients. Unset: the token from their login shows it, and clients without a token count
    as 0.0.40."""
    connections_max: int = Field(default=1024, ge=1)
    """Further connections replace one that has sent no request or is idle, else they get 503."""
    answer_bytes_max: ByteSize = Field(default=ByteSize(8 << 20), ge=1 << 16)
    """A poll returns at most about this much, but at least one message."""
    carrier: bool = True
    """Whether messages of other protocols get a carrier with facts that this one cannot hold; the topic setting
    ``carrier`` takes precedence."""


class IggyHttpSettings(IggyHttpListener, WithListeners):
    """Iggy over HTTP."""

    address: Listen = Address("127.0.0.1", 3000)
    listeners: Mapping[ListenerName, IggyHttpListener] = {}
    """More addresses, each a table by its name; see listeners."""


class AdminSettings(TokenSettings):
    """Command line, ``lading://``, Spark and metrics."""

    remedy: ClassVar[str] = "token"
    address: Listen = Address("127.0.0.1", 7070)
    connections_max: int = Field(default=1024, ge=1)
    """Further connections replace one that has sent no request or is idle, else they get 503."""
    answer_bytes_max: ByteSize = Field(default=ByteSize(16 << 20), ge=1 << 16)
    """Size limit of the chunks in one response, and of the messages that are read for one filtered response."""
    wait_ms_max: int = Field(default=30_000, ge=0)
    """The longest time that a long poll may wait."""

    @property
    def secured(self) -> bool:
        return self.token is not None or self.demands_certificate


class KafkaListener(TlsEndpointSection, UnauthenticatedEndpoint):
    """An address for Kafka clients (kafka.md 3)."""

    checks_users: ClassVar[bool] = True
    advertised: Listen | None = None
    """The address that clients are asked to connect to; unset: the address they connected to."""
    auto_create: bool = True
    """A missing topic is created when a client requests it, unless the client forbids it."""
    sasl_plain_without_tls: bool = False
    """Whether other machines may send passwords in plain text, by SASL PLAIN, over a connection without TLS."""
    partitions: int = Field(default=1, ge=1, le=1_000)
    """Partitions of topics that are created without a number of partitions."""
    request_bytes_max: ByteSize = Field(default=ByteSize(100 << 20), ge=1 << 16, le=1 << 30)
    """A longer request closes its connection."""
    message_bytes_max: ByteSize = Field(default=ByteSize(1_048_588), ge=1024)
    """The largest record batch, if a topic has no ``max.message.bytes``."""
    message_timestamp_before_max_ms: int | None = Field(default=None, ge=0)
    """A record is refused if its timestamp is older than this, and the topic has no
    ``message.timestamp.before.max.ms``; None, as in Apache Kafka, accepts any."""
    message_timestamp_after_max_ms: int | None = Field(default=None, ge=0)
    """A record is refused if its timestamp is further ahead than this, and the topic has no
    ``message.timestamp.after.max.ms``; None accepts any; Apache Kafka's default is 3600000, an hour."""
    client_metrics: Names = ()
    """Metrics that clients push (KIP-714) and ``/metrics`` shows by client: beginnings of names, such as
    ``org.apache.kafka.consumer.fetch.manager``, or ``*`` for all; empty: none."""
    client_metrics_interval_ms: int = Field(default=300_000, ge=100, le=3_600_000)
    """How often clients push."""
    answer_bytes_max: ByteSize = Field(default=ByteSize(4 << 20), ge=1 << 16)
    """A fetch returns at most about this much, whatever it asks for, but at least one batch. Other requests wait while
    it is read."""
    carrier: bool = True
    """Whether messages of other protocols get a carrier with facts that this one cannot hold; the topic setting
    ``carrier`` takes precedence."""


class KafkaSettings(KafkaListener, WithListeners):
    """Kafka clients."""

    address: Listen = Address("127.0.0.1", 9092)
    listeners: Mapping[ListenerName, KafkaListener] = {}
    """More addresses, each a table by its name; see listeners. A listener does not inherit ``advertised``."""


class NsqTlsSettings(TlsSettings):
    """TLS of nsqd: clients begin with it, or begin in plain text and change to it by IDENTIFY."""

    enabled: bool = False
    """Clients may change to TLS 1.2 or later (``tls_v1`` in IDENTIFY), or begin with it."""
    required: bool = True
    """Whether clients without TLS are refused all commands but IDENTIFY (nsqd: ``-tls-required``)."""

    @property
    def demands_certificate(self) -> bool:
        return self.required and super().demands_certificate


class NsqEndpointSettings(TlsEndpointSection, UnauthenticatedEndpoint):
    """Settings of all endpoints of the NSQ node (nsq.md 1, 5)."""

    connections_max: int = Field(default=4096, ge=1)
    """Further connections get an error and are closed; over HTTP they replace a connection that has sent no request or
    is idle, or else get 503."""


class NsqdTcpSettings(NsqEndpointSettings):
    """NSQ clients, which publish and read."""

    checks_users: ClassVar[bool] = True
    address: Listen = Address("127.0.0.1", 4150)
    tls: NsqTlsSettings = DEFAULTS
    deflate: bool = True
    """Clients may compress their connection with deflate, by IDENTIFY (nsqd: ``-deflate``)."""
    deflate_level_max: int = Field(default=6, ge=1, le=9)
    """The highest level that a client gets: higher ones cost the broker more CPU (nsqd: ``-max-deflate-level``)."""
    snappy: bool = True
    """Clients may compress their connection with snappy, by IDENTIFY (nsqd: ``-snappy``)."""
    advertised: Listen | None = None
    """The address to which lookups send clients; unset: the address it listens on."""
    carrier: bool = True
    """Whether messages of other protocols get a carrier with facts that this one cannot hold; the topic setting
    ``carrier`` takes precedence."""


class NsqdHttpSettings(NsqEndpointSettings, WithoutLogin):
    """NSQ over HTTP, which publishes and administrates."""

    address: Listen = Address("127.0.0.1", 4151)
    advertised: Listen | None = None
    """The address to which lookups send clients; unset: the address it listens on."""


class NsqlookupdTcpSettings(NsqEndpointSettings):
    """The address at which other NSQ nodes register their topics and channels."""

    address: Listen = Address("127.0.0.1", 4160)
    registrations_max: int = Field(default=20_000, ge=1)
    """Partitions and channels that one node may register; all nodes together may register ten times as many. Further
    ones get E_INVALID and are counted in ``lading_dropped_total``; the node keeps those it has."""


class NsqlookupdHttpSettings(NsqEndpointSettings, WithoutLogin):
    """The address at which NSQ clients look up topics."""

    address: Listen = Address("127.0.0.1", 4161)


class SchemaRegistrySettings(WithoutLogin):
    """A schema registry for serialisers of Kafka's clients, as Confluent's; its schemas are in the catalog."""

    is_left_out_if_taken: ClassVar[bool] = True
    address: Listen = Address("127.0.0.1", 8081)
    connections_max: int = Field(default=1024, ge=1)
    """Further connections replace one that has sent no request or is idle, else they get 503."""


class EndpointSettings(Section):
    """One table for each endpoint; an endpoint that is not built is an unknown key."""

    iggy_tcp: IggyTcpSettings = DEFAULTS
    iggy_quic: IggyQuicSettings = DEFAULTS
    iggy_websocket: IggyWebSocketSettings = DEFAULTS
    iggy_http: IggyHttpSettings = DEFAULTS
    kafka: KafkaSettings = DEFAULTS
    nsqd_tcp: NsqdTcpSettings = DEFAULTS
    nsqd_http: NsqdHttpSettings = DEFAULTS
    nsqlookupd_tcp: NsqlookupdTcpSettings = DEFAULTS
    nsqlookupd_http: NsqlookupdHttpSettings = DEFAULTS
    schema_registry: SchemaRegistrySettings = DEFAULTS
    admin: AdminSettings = DEFAULTS

    def sections(self) -> Iterator[tuple[str, EndpointSection]]:
        """Yield every endpoint, each followed by its listeners: ``iggy_tcp``, ``iggy_tcp.old``."""
        for name in type(self).model_fields:
            endpoint: EndpointSection = getattr(self, name)
            yield name, endpoint
            listeners: Mapping[str, EndpointSection] = getattr(endpoint, "listeners", {})
            yield from ((f"{name}.{listener}", section) for listener, section in listeners.items())

    def section(self, name: str) -> EndpointSection:
        """Return an endpoint, or one of its listeners, by the name that ``sections`` gives it."""
        endpoint, _, listener = name.partition(".")
        section: EndpointSection = getattr(self, endpoint)
        return getattr(section, "listeners", {})[listener] if listener else section


def endpoint_key(name: str) -> str:
    """Return the dotted key of an endpoint, or of one of its listeners, by the name that ``sections`` gives it."""
    endpoint, _, listener = name.partition(".")
    return f"endpoints.{endpoint}.listeners.{listener}" if listener else f"endpoints.{endpoint}"
