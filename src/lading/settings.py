"""Settings: every key with its type, its bounds and its default. Sizes take plain bytes or a unit (``512MiB``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
)

from .log_lines import LogFormat
from .model.address import Address as Address
from .model.address import parse_address as parse_address

SECRETS = frozenset(f"endpoints.{name}.token" for name in ("admin", "iggy_http", "nsqd_http", "nsqlookupd_http"))
"""Keys whose values are never printed."""

Durability = Literal["fsync", "os"]
"""``fsync``: an acknowledged message is on disk. ``os``: it is in the page cache; a power cut may take it."""


Listen = Annotated[Address, BeforeValidator(parse_address), PlainSerializer(str, return_type=str)]


def parse_names(value: object) -> object:
    """Return the words of a text that separates them by commas; anything else as it is."""
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(parse_names)]


class Section(BaseModel):
    """A table of settings; keys it does not declare are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class EndpointSection(Section):
    """What every endpoint has. ``remedy`` is the setting that makes a bind beyond loopback acceptable."""

    remedy: ClassVar[str]
    enabled: bool = True
    address: Listen

    @property
    def secured(self) -> bool:
        """Whether it may listen beyond loopback."""
        raise NotImplementedError


class UnauthenticatedEndpoint(EndpointSection):
    """An endpoint whose protocol has no credentials: beyond loopback it must be allowed by name."""

    remedy: ClassVar[str] = "allow_unauthenticated=true"
    allow_unauthenticated: bool = False

    @property
    def secured(self) -> bool:
        return self.allow_unauthenticated


class TokenSettings(EndpointSection):
    """An endpoint that takes a bearer token, by value or in a file that holds nothing else."""

    token: SecretStr | None = Field(default=None, min_length=1)
    token_file: Path | None = None


class WithoutLogin(TokenSettings, UnauthenticatedEndpoint):
    """HTTP without a login: requests that delete or administrate need ``token``, by default that of admin."""


class IggyTcpSettings(UnauthenticatedEndpoint):
    """The Iggy TCP endpoint, classic generation (iggy.md A1)."""

    address: Listen = Address("127.0.0.1", 8090)
    connections_max: int = Field(default=4096, ge=1)
    idle_timeout_ms: int = Field(default=86_400_000, ge=10)
    """A connection without a request for so long is closed; clients of Iggy keep theirs, and few open a new one."""
    answer_bytes_max: ByteSize = Field(default=ByteSize(16 << 20), ge=1 << 16)
    """A poll answers at most about this many bytes of messages; the first message always goes."""
    carrier: bool = True
    """Whether messages of other protocols have a carrier with what this one cannot hold, where a topic says nothing."""


class IggyHttpSettings(WithoutLogin):
    """The Iggy HTTP endpoint, classic generation (iggy.md A5)."""

    address: Listen = Address("127.0.0.1", 3000)
    connections_max: int = Field(default=1024, ge=1)
    answer_bytes_max: ByteSize = Field(default=ByteSize(8 << 20), ge=1 << 16)
    carrier: bool = True
    """Whether messages of other protocols have a carrier with what this one cannot hold, where a topic says nothing."""


class AdminSettings(TokenSettings):
    """The admin endpoint: CLI, Spark, metrics, native data. With ``token`` every request but /health must carry it."""

    remedy: ClassVar[str] = "token"
    address: Listen = Address("127.0.0.1", 7070)
    connections_max: int = Field(default=1024, ge=1)
    answer_bytes_max: ByteSize = Field(default=ByteSize(16 << 20), ge=1 << 16)
    wait_ms_max: int = Field(default=30_000, ge=0)
    """The longest a long poll may wait."""

    @property
    def secured(self) -> bool:
        return self.token is not None


class KafkaSettings(UnauthenticatedEndpoint):
    """The Kafka endpoint (kafka.md 3)."""

    address: Listen = Address("127.0.0.1", 9092)
    advertised: Listen | None = None
    """What clients are told to connect to; unset: the address they reached."""
    auto_create: bool = True
    """Whether a topic that a client asks for is made where it is missing, unless the client says not to."""
    partitions: int = Field(default=1, ge=1, le=1_000)
    """Of topics that are made without a number of partitions."""
    connections_max: int = Field(default=4096, ge=1)
    request_bytes_max: ByteSize = Field(default=ByteSize(100 << 20), ge=1 << 16, le=1 << 30)
    """The longest request; a longer one closes its connection."""
    message_bytes_max: ByteSize = Field(default=ByteSize(1_048_588), ge=1024)
    """The largest record batch, where a topic says nothing else (Kafka: message.max.bytes)."""
    answer_bytes_max: ByteSize = Field(default=ByteSize(4 << 20), ge=1 << 16)
    """A fetch answers at most about this many bytes, whatever it asks for (Kafka: fetch.max.bytes)."""
    carrier: bool = True
    """Whether messages of other protocols have a carrier with what this one cannot hold, where a topic says nothing."""


class NsqEndpointSettings(UnauthenticatedEndpoint):
    """What the faces of the NSQ node have in common (nsq.md 1, 5)."""

    connections_max: int = Field(default=4096, ge=1)


class NsqdTcpSettings(NsqEndpointSettings):
    """The NSQ endpoint that clients publish to and read from."""

    address: Listen = Address("127.0.0.1", 4150)
    advertised: Listen | None = None
    """Where lookups send clients; unset: where it listens."""
    carrier: bool = True
    """Whether messages of other protocols have a carrier with what this one cannot hold, where a topic says nothing."""


class NsqdHttpSettings(NsqEndpointSettings, WithoutLogin):
    """The HTTP face of the same."""

    address: Listen = Address("127.0.0.1", 4151)
    advertised: Listen | None = None
    """Where lookups send clients; unset: where it listens."""


class NsqlookupdTcpSettings(NsqEndpointSettings):
    """Where nodes of NSQ say what they have."""

    address: Listen = Address("127.0.0.1", 4160)
    registrations_max: int = Field(default=20_000, ge=1)
    """Partitions and channels that one node may register; all nodes together ten times as many."""


class NsqlookupdHttpSettings(NsqEndpointSettings, WithoutLogin):
    """Where clients of NSQ look topics up."""

    address: Listen = Address("127.0.0.1", 4161)


class EndpointSettings(Section):
    """One table an endpoint; an endpoint that is not built is an unknown key."""

    iggy_tcp: IggyTcpSettings = IggyTcpSettings()
    iggy_http: IggyHttpSettings = IggyHttpSettings()
    kafka: KafkaSettings = KafkaSettings()
    nsqd_tcp: NsqdTcpSettings = NsqdTcpSettings()
    nsqd_http: NsqdHttpSettings = NsqdHttpSettings()
    nsqlookupd_tcp: NsqlookupdTcpSettings = NsqlookupdTcpSettings()
    nsqlookupd_http: NsqlookupdHttpSettings = NsqlookupdHttpSettings()
    admin: AdminSettings = AdminSettings()


class ConnectionSettings(Section):
    """How long a connection may wait for what, and how many of them one peer may have; for every endpoint."""

    first_request_timeout_ms: int = Field(default=30_000, ge=10)
    """A connection whose first request is not whole by then is closed."""
    head_timeout_ms: int = Field(default=10_000, ge=10)
    """The head of an HTTP request that is not whole so long after it began ends its connection."""
    request_timeout_ms: int = Field(default=60_000, ge=10)
    """A later request that is not whole so long after it began ends its connection."""
    idle_timeout_ms: int = Field(default=600_000, ge=10)
    """A connection without a request for so long is closed, if its protocol does not keep it open."""
    http_idle_timeout_ms: int = Field(default=75_000, ge=10)
    """The same over HTTP."""
    unread_timeout_ms: int = Field(default=60_000, ge=10)
    """A peer that reads nothing of its responses for so long is disconnected."""
    keepalive_s: int = Field(default=60, ge=0, le=32_767)
    """A connection that is silent for so long is probed by the kernel (TCP keepalive); 0 never."""
    peer_share: float = Field(default=0.75, gt=0, le=1)
    """So much of an endpoint's ``connections_max``, and of ``receive_bytes_max``, one peer address may have."""
    receive_bytes_max: ByteSize = Field(default=ByteSize(512 << 20), ge=1 << 20)
    """Memory for requests of all connections that are not whole yet."""


class HttpSettings(Section):
    """What holds for every HTTP endpoint."""

    hosts: Names = ()
    """Names for the Host header beside the addresses that were bound, such as that of a proxy."""
    origins: Names = ()
    """Origins, such as ``https://console.example``, whose pages may send requests."""
    head_bytes_max: ByteSize = Field(default=ByteSize(256 << 10), ge=1 << 14, le=1 << 24)
    """A request line with its header lines and trailers; a larger head is refused and its connection closed."""


class NsqSettings(Section):
    """How NSQ's faces answer where its two implementations differ (docs/reference/nsq.md)."""

    compat: Literal["upstream", "youzan"] = "upstream"
    """``upstream``: topics are made by publishing and subscribing, the first channel gets what was kept, DPUB works.
    ``youzan``: none of it, as the fork with extend headers answers."""


class LogSettings(Section):
    """How partition logs lie on disk."""

    segment_bytes: ByteSize = Field(default=ByteSize(256 << 20), ge=1 << 16, le=1 << 31)
    """A segment is closed when it is at least this large."""
    open_files_max: int | None = Field(default=None, ge=16)
    """Files that partitions hold open; those of partitions that rest longest are closed. None: half of the process'."""


class RetentionSettings(Section):
    """What is kept where a topic says nothing else; unset keeps everything."""

    age_ms: int | None = Field(default=None, ge=1)
    size_bytes: ByteSize | None = Field(default=None, ge=1)
    """Per partition."""
    check_ms: int = Field(default=60_000, ge=100)
    mark_ms: int | None = Field(default=None, ge=1)
    """Messages are marked for deletion this long before they are due; unset marks them one check before."""


class BrokerLimits(Section):
    """Limits and times of the broker's own bookkeeping."""

    partitions_per_topic_max: int = Field(default=1_000, ge=1, le=100_000)
    unsynced_bytes_max: ByteSize = Field(default=ByteSize(64 << 20), ge=1 << 20)
    """Above this many bytes on their way to the disk, endpoints stop reading requests until it has caught up."""
    position_flush_ms: int = Field(default=100, ge=1)
    """Stored positions are written together, at most this long after they were stored."""
    session_timeout_ms: int = Field(default=30_000, ge=100)
    """A native group member that sends no heartbeat for this long has left."""
    member_session_min_ms: int = Field(default=6_000, ge=100)
    """The shortest session timeout that a member of a Kafka group may ask for."""
    rebalance_delay_ms: int = Field(default=100, ge=0)
    """The first members of a Kafka group wait this long for others."""
    group_members_max: int = Field(default=1_000, ge=1)
    """Members of one Kafka group."""
    member_metadata_bytes_max: ByteSize = Field(default=ByteSize(1 << 20), ge=1 << 10)
    """What one member of a Kafka group may say of itself."""
    groups_metadata_bytes_max: ByteSize = Field(default=ByteSize(32 << 20), ge=1 << 10)
    """What the members of all Kafka groups may say of themselves, in sum."""
    group_assignment_bytes_max: ByteSize = Field(default=ByteSize(8 << 20), ge=1 << 10)
    """What the leader of a Kafka group may give its members, in sum."""
    transaction_timeout_ms: int = Field(default=3_600_000, ge=100)
    """A transaction that is open for longer is aborted."""
    transaction_memory_ms: int = Field(default=30 * 86_400_000, ge=1_000)
    """Commit keys and settled transactions are remembered at least this long."""
    writers_per_partition_max: int = Field(default=10_000, ge=1)
    """Writers whose sequence is remembered, the least recently used goes first."""
    stall_timeout_ms: int = Field(default=60_000, ge=0)
    """A broker whose event loop stands still for this long ends, with its stacks on standard error; 0 never does."""


class Settings(Section):
    """Everything that can be set, with defaults."""

    data: Path = Path("data")
    durability: Durability = "fsync"
    workers: int = Field(default=2, ge=1, le=64)
    """Threads for work too long for the event loop: filters, decompression, cross-dialect reads."""
    log_format: LogFormat = "text"
    """Lines on standard error: ``text`` for people, ``json`` with one object a line."""
    busy_poll_us: int = Field(default=200, ge=0, le=10_000)
    """After a run of requests the event loop looks for the next one so long before it sleeps; 0 never does."""
    endpoints: EndpointSettings = EndpointSettings()
    connections: ConnectionSettings = ConnectionSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    retention: RetentionSettings = RetentionSettings()
    nsq: NsqSettings = NsqSettings()
    broker: BrokerLimits = BrokerLimits()
