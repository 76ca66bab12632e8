"""``kafka://``: the client side of Kafka's protocol, to a real cluster of version 2.4 or newer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from ...dialects.kafka import errors
from ...dialects.kafka.commands import EARLIEST, LATEST
from ...dialects.kafka.protocol import PROTOCOL, RECORDS
from ...dialects.kafka.scram import HASHES
from ...dialects.protocols import SCHEMES
from ...model.errors import LocalError, SettingError
from ...model.protocol import MessageBound
from ..client_tls import parse_tls
from ..fetched import FetchResult
from ..interface import Membership, SendResult, TopicMeta
from ..secrets import read_secret, run_secret_command
from ..transactions import TransactionDecision
from . import groups
from .cluster import Address, KafkaCluster, kafka_error, raise_for_code
from .offsets import epoch_ends, list_offsets
from .reader import KafkaReader
from .socket import OAUTHBEARER, PLAIN, KafkaSecurity, KafkaSocket
from .topics import KafkaTopics

if TYPE_CHECKING:
    import pyarrow as pa

    from .writer import KafkaWriter

TOPICS_WAIT: Final[Mapping[str, Any]] = {"timeout_ms": 10_000, "wait_s": 10.0}
"""How long brokers may take to create, grow and delete topics, besides the time that any response may take."""
WATCH_MS: Final = 100
"""Time that all leaders together hold back their responses to a reader that waits for several of them."""


def parse_mechanism(text: str | None, *, has_user: bool, has_token: bool) -> str:
    """Return the login mechanism: the given one, or the one that the options imply. Raises SettingError if they
    contradict.
    """
    if has_user and has_token:
        raise SettingError("username and oauth_token are both given; give one of them")
    found = text.upper() if text is not None else OAUTHBEARER if has_token else PLAIN
    if found not in (PLAIN, *HASHES, OAUTHBEARER):
        raise SettingError(f"sasl_mechanism {text!r}: not supported; use {', '.join((PLAIN, *HASHES, OAUTHBEARER))}")
    if text is not None and not (has_token if found == OAUTHBEARER else has_user):
        needed = (
            "oauth_token, oauth_token_file or oauth_token_command" if found == OAUTHBEARER else "username and password"
        )
        raise SettingError(f"sasl_mechanism {found}: nothing to log in with; give {needed}")
    return found


def _read_token(token: str | None, file: str | None, command: str | None) -> str:
    if command is not None:
        return run_secret_command("oauth_token_command", command)
    found = read_secret("oauth_token", token, file)
    assert found is not None, "one of them is given"
    return found


class KafkaTransport:
    """One Kafka cluster, ``kafka://host:port[,host:port]``; reads what is committed (read_committed).

    Options: ``timeout_s`` one response may take; ``retries`` of requests that may be repeated; ``tls``, with
    ``ca_file`` (a file of certificates to trust besides the system's), ``certificate_file`` and ``key_file`` (the
    client's own certificate); ``username`` with ``password`` or ``password_file``, and ``sasl_mechanism`` (PLAIN,
    SCRAM-SHA-256, SCRAM-SHA-512); ``oauth_token``, or ``oauth_token_file`` or ``oauth_token_command``, which are read
    or run for each connection, for OAUTHBEARER. In a group, ``session_timeout_s`` without a sign of life makes the
    cluster drop this member, and a member that does not read for ``reading_timeout_s`` gives its partitions back.
    """

    capabilities = RECORDS

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        retries: int = 20,
        tls: bool | str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        username: str | None = None,
        password: str | None = None,
        password_file: str | None = None,
        sasl_mechanism: str | None = None,
        oauth_token: str | None = None,
        oauth_token_file: str | None = None,
        oauth_token_command: str | None = None,
        session_timeout_s: float = 45.0,
        reading_timeout_s: float = 300.0,
    ) -> None:
        self.url = url
        self._session_timeout_s = session_timeout_s
        self._reading_timeout_s = reading_timeout_s
        password = read_secret("password", password, password_file)
        if password is not None and username is None:
            raise SettingError("a password was given without a username; give both")
        token: Callable[[], str] | None = None
        if oauth_token_command is not None or read_secret("oauth_token", oauth_token, oauth_token_file) is not None:
            # the file is read for each connection: its writer puts a new token there before the old one ends
            token = partial(_read_token, oauth_token, oauth_token_file, oauth_token_command)
        mechanism = parse_mechanism(sasl_mechanism, has_user=username is not None, has_token=token is not None)
        access = KafkaSecurity(
            parse_tls(tls, ca_file, certificate_file, key_file), username, password, mechanism, token
        )
        self._cluster = KafkaCluster(bootstrap(url), access, timeout_s=timeout_s, retries=retries)
        self._topics = KafkaTopics(self._cluster, url)
        self._reader = KafkaReader(self._cluster, self._topics, url)
        self._writer: KafkaWriter | None = None

    @property
    def cluster(self) -> KafkaCluster:
        """The connections, for requests that no method here makes."""
        return self._cluster

    @property
    def idempotent(self) -> bool:
        """Whether the cluster drops repeated batches: always, as batches are numbered."""
        return True

    # topics

    def topics(self, wanted: Callable[[str], bool] | None = None) -> list[TopicMeta]:
        """Return all topics but Kafka's own, or those whose name is wanted."""
        return self._topics.list_topics(wanted)

    def topic(self, name: str) -> TopicMeta:
        """Return the topic as it is now. Raises LocalError with near names if it does not exist."""
        return self._topics.look_up(name)

    def limit_reconnects(self, count: int) -> None:
        """Give up a broken connection after ``count`` retries; errors that brokers report as retriable are repeated as
        before.
        """
        self._cluster.reconnects = min(count, self._cluster.retries)

    def limit_patience(self, silence_s: float, patience_s: float) -> None:
        """Wait at most ``silence_s`` for each response, and repeat a request at most until ``patience_s`` are over."""
        self._cluster.limit_patience(silence_s, patience_s)

    def message_bound(self, topic: str) -> MessageBound | None:
        """Return the size that the topic's ``max.message.bytes`` leaves for a record; None if this login
        may not see it.
        """
        return self._topics.message_bound(topic)

    def groups(self) -> list[dict[str, Any]]:
        """Return a row of each consumer group, with the number of its ``members`` and its ``lag``."""
        return groups.list_groups(self._cluster, self._list_ends())

    def group(self, protocol: str, name: str) -> dict[str, Any]:
        """Return one group with ``members`` and ``partitions``. Raises Refusal GROUP_NOT_FOUND."""
        self._require_own(protocol)
        return groups.describe_group(self._cluster, name, self._list_ends())

    def describe_groups(self, limit: int) -> list[dict[str, Any]]:
        """Return the first ``limit`` consumer groups by name, with ``members``, and ``partitions`` with lag."""
        return groups.describe_groups(self._cluster, self._list_ends(), limit)

    def reset_group(self, protocol: str, name: str, positions: Sequence[tuple[str, int, int]]) -> None:
        """Set the positions of a group without members to (topic, partition, next offset)."""
        self._require_own(protocol)
        groups.reset_group(self._cluster, name, positions)

    def delete_group(self, protocol: str, name: str) -> None:
        """Delete a group without members, with its positions."""
        self._require_own(protocol)
        groups.delete_group(self._cluster, name)

    def _list_ends(self) -> dict[tuple[str, int], int]:
        return {(meta.name, part.number): part.end_offset for meta in self.topics() for part in meta.partitions}

    def _require_own(self, protocol: str) -> None:
        if protocol != PROTOCOL.name:
            raise LocalError(f"{self.url} has groups of {PROTOCOL.name} alone, none of {protocol}")

    def create_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        """Create the topic with the cluster's own settings. Raises Refusal TOPIC_NAME_EXISTS if it exists."""
        made = {"name": name, "num_partitions": partitions, "replication_factor": -1}
        (row,) = self._cluster.at_controller("CreateTopics", **TOPICS_WAIT, topics=[made]).topics
        if row.error_code:
            raise kafka_error(f"topic {name!r} cannot be created", row.error_code, row.error_message)

        def ready() -> TopicMeta:
            # brokers are notified of a new topic one after the other
            (found,) = self._cluster.metadata([name]).topics
            code = found.error_code
            if not code and any(part.leader_id < 0 for part in found.partitions):
                code = errors.LEADER_NOT_AVAILABLE
            raise_for_code(f"topic {name!r}", code)
            return self._topics.describe([found])[0]

        return self._cluster.retry(ready)

    def delete_topic(self, name: str) -> None:
        """Delete the topic with all its messages."""
        (row,) = self._cluster.at_controller("DeleteTopics", **TOPICS_WAIT, topic_names=[name]).responses
        if row.error_code:
            raise kafka_error(f"topic {name!r} cannot be deleted", row.error_code)
        self._topics.forget(name)

    # reading

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_messages: int | None = None,
        wait_ms: int = 0,
    ) -> FetchResult:
        """Return committed batches from ``offset`` on, whole ones, so ``max_messages`` is ignored.

        Offsets removed by compaction, aborted transactions and control records belong to the batch that follows them:
        only offsets below the first kept one are a gap. A new ``topic_id`` means that the topic was deleted and created
        again. If a new leader's log was truncated below ``offset``, the result has no batches, and ``epochs`` has the
        offset of the truncation. Raises DataLoss if ``offset`` is beyond the end.
        """
        return self._reader.fetch(topic, partition, offset, max_bytes, wait_ms)

    def wait_for_news(self, places: Mapping[tuple[str, int], int], wait_ms: int) -> int:
        """Ask the leaders, each for its partitions; if there are several, in turn and for a shorter time.

        Returns for how many milliseconds a quota is exhausted, 0 if it is not.
        """

        def ask() -> int:
            throttle_ms = 0
            by_leader: dict[KafkaSocket, dict[tuple[str, int], int]] = {}
            for place, offset in places.items():
                by_leader.setdefault(self._cluster.leader(*place), {})[place] = offset
            longest_ms = wait_ms if len(by_leader) == 1 else min(wait_ms, WATCH_MS) // len(by_leader)
            for broker, asked in by_leader.items():
                try:
                    throttle_ms = max(throttle_ms, broker.watch(asked, wait_ms=max(1, longest_ms)))
                except OSError:
                    broker.close()
                    for topic, _ in asked:
                        self._cluster.forget(topic)
                    raise
            return throttle_ms

        return self._cluster.retry(ask)

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        """Return the first offset whose timestamp is at or after ``timestamp_us``, or the end offset.

        For times before 1970 it is the first offset of all, as negative times mean the ends to a broker.
        """
        wanted = [(topic, partition)]
        if timestamp_us < 0:
            return list_offsets(self._cluster, wanted, EARLIEST)[topic, partition].offset
        found = list_offsets(self._cluster, wanted, -(-timestamp_us // 1000))[topic, partition].offset
        return found if found >= 0 else list_offsets(self._cluster, wanted, LATEST)[topic, partition].offset

    # writing

    def send(
        self,
        topic: str,
        partition: int | None,
        batch: pa.RecordBatch,
        *,
        strict: bool = False,
        compression: Literal["lz4"] | None = None,
    ) -> SendResult:
        """Send as one batch or several, in order, acknowledged by all replicas in sync; see ``kafka_sending``."""
        if partition is None:
            partition = self._writer_for_sending().turn(topic, len(self.topic(topic).partitions))
        return self._writer_for_sending().send(topic, partition, batch, strict=strict, compression=compression)

    def send_all(
        self,
        topic: str,
        parts: Iterable[tuple[int, pa.RecordBatch]],
        *,
        strict: bool = False,
        compression: Literal["lz4"] | None = None,
    ) -> int:
        """Send many batches without waiting for earlier ones; see ``kafka_sending``."""
        return self._writer_for_sending().send_all(topic, parts, strict=strict, compression=compression)

    def find_acknowledged(self, topic: str, partition: int, batch: pa.RecordBatch) -> SendResult | None:
        """Return the result of the last batch sent to the partition, if it was this object and is acknowledged."""
        return self._writer_for_sending().find_acknowledged(topic, partition, batch)

    def decision(self, name: str, topic: str, *, timeout_s: float | None = None) -> TransactionDecision:
        """Return the decision under a transactional id; see ``kafka_transactions``."""
        from .transactions import TIMEOUT_S, KafkaDecision

        return KafkaDecision(self._cluster, name, topic, TIMEOUT_S if timeout_s is None else timeout_s)

    def _writer_for_sending(self) -> KafkaWriter:
        if self._writer is None:
            from .writer import KafkaWriter

            self._writer = KafkaWriter(self._cluster)
        return self._writer

    def join(self, group: str, topics: Sequence[str]) -> Membership:
        """Become a member of the group, together with members of any other Kafka client; see ``kafka_group``."""
        from .group import KafkaMembership, Timing

        return KafkaMembership(self._cluster, group, topics, Timing(self._session_timeout_s, self._reading_timeout_s))

    def close(self) -> None:
        """Close all connections."""
        self._cluster.close()

    def epoch_ends(self, epochs: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        """Return the present end of the log written under each epoch, by topic and partition (KIP-320)."""
        return epoch_ends(self._cluster, epochs)


def bootstrap(url: str) -> list[Address]:
    """Return the addresses in ``kafka://host:port[,host:port]``. Raises SettingError for anything else."""
    row = SCHEMES["kafka"]
    scheme, _, rest = url.partition("://")
    found: list[Address] = []
    for part in rest.rstrip("/").split(","):
        try:
            parts = urlsplit(f"//{part.strip()}")
            host, port = parts.hostname, parts.port or row.port
        except ValueError as error:
            raise SettingError(f"{part!r} is not an address ({error}); write it like {row.example}") from None
        if scheme.lower() != "kafka" or not host or port is None or parts.path or parts.query or parts.fragment:
            raise SettingError(f"{url!r} is not an address of Kafka brokers; write it like {row.example}")
        if parts.username is not None:
            raise SettingError("give user and password as options (username, password), not in the URL")
        found.append((host, port))
    return found
