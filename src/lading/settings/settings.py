"""Settings: every key with its type, its bounds and its default. Sizes take plain bytes or a unit (``512MiB``)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import ByteSize, Field, model_validator

from ..model.address import Address as Address
from ..model.address import parse_address as parse_address
from ..model.durability import Durability as Durability
from ..runtime.log_lines import LogFormat
from .endpoints import EndpointSettings as EndpointSettings
from .sections import DEFAULTS, Names
from .sections import Section as Section


def is_secret(key: str) -> bool:
    """Return whether the value of a setting is never printed: tokens of endpoints and of their listeners."""
    return key.startswith("endpoints.") and key.endswith(".token")


class ConnectionSettings(Section):
    """Deadlines of connections, and how many of them one peer may have; for every endpoint."""

    first_request_timeout_ms: int = Field(default=30_000, ge=10)
    """A connection is closed if its first request is not complete by then."""
    head_timeout_ms: int = Field(default=10_000, ge=10)
    """A connection is closed if the head of an HTTP request is not complete this long after it began."""
    request_timeout_ms: int = Field(default=60_000, ge=10)
    """A connection is closed if a later request is not complete this long after it began."""
    idle_timeout_ms: int = Field(default=600_000, ge=10)
    """A connection is closed after this long without a request, if its protocol does not keep it open."""
    http_idle_timeout_ms: int = Field(default=75_000, ge=10)
    """Over HTTP, a connection is closed after this long without a request."""
    unread_timeout_ms: int = Field(default=60_000, ge=10)
    """A peer that reads nothing of its responses for this long is disconnected."""
    keepalive_s: int = Field(default=60, ge=0, le=32_767)
    """The kernel probes a connection after this long without traffic (TCP keepalive); 0 never."""
    peer_share: float = Field(default=0.75, gt=0, le=1)
    """The share of an endpoint's ``connections_max``, and of ``connections.receive_bytes_max``, that one peer address
    may use."""
    receive_bytes_max: ByteSize = Field(default=ByteSize(512 << 20), ge=1 << 20)
    """Memory for requests of all connections that are not whole yet, HTTP bodies too; an eighth of it, at most 64 MiB,
    is kept for small ones. When it is used up, the connection whose incomplete request has waited longest is closed."""


class HttpSettings(Section):
    """Settings of every HTTP endpoint."""

    hosts: Names = ()
    """Names for the ``Host`` of HTTP requests beside the addresses that were bound, separated by commas; see who may
    send HTTP requests."""
    origins: Names = ()
    """Origins, such as ``https://console.example``, whose web pages may send requests; separated by commas."""
    head_bytes_max: ByteSize = Field(default=ByteSize(256 << 10), ge=1 << 14, le=1 << 24)
    """A request line with its header lines and trailers; a larger head is refused (431) and its connection closed."""


class OAuthSettings(Section):
    """Issuer of tokens (JWT) that are logins beside the broker's own users.

    Kafka's OAUTHBEARER, AUTH of NSQ, bearer on HTTP.
    """

    issuer: str | None = None
    """Whose tokens (JWT) are logins beside the broker's own users: the claim ``iss``."""
    audience: str | None = None
    """The name of this broker in the claim ``aud``."""
    jwks_file: Path | None = None
    """The issuer's public keys as a JWKS; read again every 5 minutes, and for a key that is not known."""
    jwks_url: str | None = None
    """The issuer's public keys over https, or over http from this machine."""
    user_claim: str = "sub"
    """The claim that names the user."""
    clock_skew_s: float = Field(default=30, ge=0, le=600)
    """The issuer's clock may be so far off."""

    @model_validator(mode="after")
    def _require_keys(self) -> Self:
        if self.issuer is None:
            if self.audience or self.jwks_file or self.jwks_url:
                raise ValueError("issuer is not set; set it as the claim iss of its tokens has it")
            return self
        if not self.audience or (self.jwks_file is None) == (self.jwks_url is None):
            raise ValueError("with an issuer, set audience and one of jwks_file and jwks_url")
        if self.jwks_url is not None:
            parts = urlsplit(self.jwks_url)
            if parts.scheme != "https" and not (
                parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
            ):
                raise ValueError("jwks_url: keys come by https; http is for this machine alone")
        return self


class NsqSettings(Section):
    """Behaviour of NSQ's endpoints in cases in which its two implementations differ (docs/reference/nsq.md)."""

    compat: Literal["upstream", "youzan"] = "upstream"
    """``upstream``: publishing and subscribing create topics, the first channel gets the messages kept before, DPUB
    works. ``youzan``: the responses of the fork with extend headers."""


class LogSettings(Section):
    """Files of partition logs."""

    segment_bytes: ByteSize = Field(default=ByteSize(256 << 20), ge=1 << 16, le=1 << 31)
    """A segment is closed when it is at least this large."""
    open_files_max: int | None = Field(default=None, ge=16)
    """Files that partitions hold open; beyond it those of partitions that rest longest are closed until the next write.
    All connections together get what is left of the process' limit, but for 128 files. Unset: half of that limit."""


class RetentionSettings(Section):
    """Retention of topics without a setting of their own; unset keeps everything."""

    age_ms: int | None = Field(default=None, ge=1)
    """Older messages are deleted, a whole segment at a time, unless the topic has its own limit."""
    size_bytes: ByteSize | None = Field(default=None, ge=1)
    """The oldest segments of a larger partition are deleted, unless the topic has its own limit."""
    check_ms: int = Field(default=60_000, ge=100)
    """How often retention looks for what is due."""
    mark_ms: int | None = Field(default=None, ge=1)
    """Messages get the state ``marked_for_deletion`` this long before they are due; unset: one check before."""


class CompactionSettings(Section):
    """Compaction of topics with ``cleanup.policy=compact``, which keep the last message of each key."""

    check_ms: int = Field(default=15_000, ge=100)
    """How often the broker looks for partitions to clean."""
    memory_bytes: ByteSize = Field(default=ByteSize(16 << 20), ge=1 << 16)
    """Memory for the keys of one cleaning, 96 bytes each; a partition with more keys is cleaned in several passes."""


class BrokerLimits(Section):
    """Limits and times of the broker's own bookkeeping."""

    partitions_per_topic_max: int = Field(default=1_000, ge=1, le=100_000)
    """Partitions of a topic; each is a directory with open files."""
    unsynced_bytes_max: ByteSize = Field(default=ByteSize(64 << 20), ge=1 << 20)
    """Above this, on its way to the disk, no more requests are read until it has caught up."""
    position_flush_ms: int = Field(default=100, ge=1)
    """Stored positions are written together, at most this long after they were stored."""
    session_timeout_ms: int = Field(default=30_000, ge=100)
    """A native group member that is silent for this long has left."""
    member_session_min_ms: int = Field(default=6_000, ge=100)
    """The shortest ``session.timeout.ms`` that a member of a Kafka group may ask for."""
    rebalance_delay_ms: int = Field(default=100, ge=0)
    """The first members of a Kafka group wait this long for others to join."""
    group_members_max: int = Field(default=1_000, ge=1)
    """Members of one Kafka group; more get GROUP_MAX_SIZE_REACHED."""
    member_metadata_bytes_max: ByteSize = Field(default=ByteSize(1 << 20), ge=1 << 10)
    """Size limit of the metadata that one member of a Kafka group may send in JoinGroup."""
    groups_metadata_bytes_max: ByteSize = Field(default=ByteSize(32 << 20), ge=1 << 10)
    """Size limit of the metadata of all members of all Kafka groups together: it is in memory until they leave."""
    group_assignment_bytes_max: ByteSize = Field(default=ByteSize(8 << 20), ge=1 << 10)
    """Size limit of the assignments that the leader of a Kafka group sends in SyncGroup, for all members together."""
    transaction_timeout_ms: int = Field(default=3_600_000, ge=100)
    """A transaction that is open for longer is aborted."""
    transaction_memory_ms: int = Field(default=30 * 86_400_000, ge=1_000)
    """Commit keys and settled transactions are remembered at least this long."""
    writers_per_partition_max: int = Field(default=10_000, ge=1)
    """Writers whose sequence is remembered, the least recently used goes first."""
    stall_timeout_ms: int = Field(default=60_000, ge=0)
    """A broker whose event loop is blocked for this long ends with exit code 70 and writes the stacks of its threads to
    standard error; time during which the whole process or machine was stopped does not count. 0 never ends it."""


class Settings(Section):
    """Everything that can be set, with defaults."""

    data: Path = Path("data")
    """Directory of the log; ``--data`` sets it."""
    store: str | None = None
    """``kafka://HOST:PORT[,HOST:PORT][?OPTION=VALUE&…]``: topics are in this Apache Kafka cluster instead of a data
    directory; ``--store`` sets it. See When one machine is not enough."""
    durability: Durability = "fsync"
    """``fsync``: a message is on disk before it is acknowledged. ``os``: it is in the page cache; a power cut may lose
    it. ``none``: nothing is ever synced, topics and positions neither; after a power cut the directory may not open.
    For tests."""
    workers: int = Field(default=2, ge=1, le=64)
    """Threads for work too long for the event loop: filters, JSON, messages of another dialect."""
    log_format: LogFormat = "text"
    """Lines on standard error, see log lines: ``text`` for people, ``json`` with one object a line. ``--log`` sets
    it."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines below this level are not written: ``debug``, ``info``, ``warning``, ``error``."""
    busy_poll_us: int = Field(default=200, ge=0, le=10_000)
    """How long the broker waits, without sleeping, for the next request of a client that sends one small request after
    the other: a sleeping core wakes up late. Clients with fewer requests cost nothing; 0 always sleeps."""
    fast_connections: bool = True
    """Whether compiled code reads the sockets of NSQ clients that publish single messages, and of Kafka and Iggy
    clients that send one small batch after the other, and responds to them, many at once (on Linux, without TLS). If
    not, each is served by itself; what clients get is the same."""
    endpoints: EndpointSettings = DEFAULTS
    connections: ConnectionSettings = DEFAULTS
    http: HttpSettings = DEFAULTS
    log: LogSettings = DEFAULTS
    retention: RetentionSettings = DEFAULTS
    compaction: CompactionSettings = DEFAULTS
    nsq: NsqSettings = DEFAULTS
    oauth: OAuthSettings = DEFAULTS
    broker: BrokerLimits = DEFAULTS
