"""``kafka://``: the client side of Kafka's protocol, towards a real cluster of version 2.4 or newer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from ...dialects.kafka import errors, layout
from ...dialects.kafka.commands import EARLIEST, LATEST, FetchResponse
from ...dialects.kafka.messages import CODE, Batches, read_batches, visible
from ...dialects.kafka.protocol import RECORDS
from ...dialects.protocols import SCHEMES
from ...model.errors import ChecksumMismatch, CorruptError, DataLoss, SettingError
from ...model.names import DEFAULT_STREAM
from ...model.run import BASE_OFFSET, BODY_END, BODY_START, COUNT, LAST_OFFSET, MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, Run
from ..fetched import FetchResult
from ..interface import Membership, PartitionMeta, SendResult, TopicMeta, TransactionDecision
from ..topics import unknown_topic_error
from .cluster import Address, KafkaCluster, Retriable, kafka_error, raise_for_code
from .offsets import Place, epoch_ends, list_offsets, to_epoch
from .socket import Access, KafkaSocket

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from .writer import KafkaWriter

WATCH_MS: Final = 100
"""How long all leaders together hold back their answers to a reader that waits for several of them."""
_WORDS: Final[Mapping[str, bool]] = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class KafkaTransport:
    """One Kafka cluster, ``kafka://host:port[,host:port]``; reads what is committed (read_committed).

    Options: ``timeout_s`` one answer may take; ``retries`` of what may be repeated; ``tls`` and ``ca_file`` (a file of
    certificates to trust besides the system's); ``username`` and ``password`` for SASL/PLAIN. In a group,
    ``session_timeout_s`` without a sign of life makes the cluster drop this member, and a member that does not read for
    ``reading_timeout_s`` gives its partitions back.
    """

    capabilities = RECORDS

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        retries: int = 20,
        tls: bool | str = False,
        ca_file: str | None = None,
        username: str | None = None,
        password: str | None = None,
        session_timeout_s: float = 45.0,
        reading_timeout_s: float = 300.0,
    ) -> None:
        self.url = url
        self._session_timeout_s = session_timeout_s
        self._reading_timeout_s = reading_timeout_s
        if password is not None and username is None:
            raise SettingError("a password was given without a username")
        access = Access(_yes("tls", tls) or ca_file is not None, ca_file, username, password)
        self._cluster = KafkaCluster(bootstrap(url), access, timeout_s=timeout_s, retries=retries)
        self._ids: dict[str, bytes | None] = {}
        self._reached: dict[Place, _Reached] = {}
        self._writer: KafkaWriter | None = None

    @property
    def idempotent(self) -> bool:
        """Batches are numbered: the cluster drops those it has already."""
        return True

    # topics

    def topics(self) -> list[TopicMeta]:
        """All topics but Kafka's own."""
        answer = self._cluster.metadata(None)
        return self._metas([row for row in answer.topics if not row.is_internal and not row.error_code])

    def topic(self, name: str) -> TopicMeta:
        """The topic as it is now; LocalError with near names where there is none."""

        def ask() -> Any:
            (row,) = self._cluster.metadata([name]).topics
            if row.error_code in (errors.UNKNOWN_TOPIC, errors.INVALID_TOPIC):
                return None
            raise_for_code(f"topic {name!r}", row.error_code)
            return row

        row = self._cluster.retry(ask)
        if row is None:
            self._cluster.forget(name)
            known = [row.name for row in self._cluster.metadata(None).topics if not row.is_internal]
            raise unknown_topic_error(name, known, self.url)
        return self._metas([row])[0]

    def create_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        """Create the topic with the cluster's own settings; Refusal TOPIC_NAME_EXISTS where it is."""
        made = {"name": name, "num_partitions": partitions, "replication_factor": -1}
        wait_ms = int(self._cluster.timeout_s * 1000)
        (row,) = self._cluster.at_controller("CreateTopics", topics=[made], timeout_ms=wait_ms).topics
        if row.error_code:
            raise kafka_error(f"topic {name!r} cannot be created", row.error_code, row.error_message)

        def ready() -> TopicMeta:
            # brokers hear of a new topic one after the other
            (found,) = self._cluster.metadata([name]).topics
            code = found.error_code
            if not code and any(part.leader_id < 0 for part in found.partitions):
                code = errors.LEADER_NOT_AVAILABLE
            raise_for_code(f"topic {name!r}", code)
            return self._metas([found])[0]

        return self._cluster.retry(ready)

    def delete_topic(self, name: str) -> None:
        """Delete the topic with all its messages."""
        wait_ms = int(self._cluster.timeout_s * 1000)
        (row,) = self._cluster.at_controller("DeleteTopics", topic_names=[name], timeout_ms=wait_ms).responses
        if row.error_code:
            raise kafka_error(f"topic {name!r} cannot be deleted", row.error_code)
        self._cluster.forget(name)
        self._ids.pop(name, None)

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
        """Committed batches from ``offset`` on; whole batches, so ``max_messages`` makes no difference.

        What compaction, aborted transactions and control records took belongs to the batch that follows it: only
        offsets below the first kept one are a gap. Another ``topic_id`` than before says that the topic was made again.
        Where a new leader's log had been cut back below ``offset`` there are no batches, and ``epochs`` tells from
        where on. DataLoss where ``offset`` lies beyond the end.
        """
        if topic not in self._ids:
            self.topic(topic)
        place = (topic, partition)
        try:
            answer, data = self._fetched(place, offset, max_bytes, wait_ms)
            if answer.error in errors.OTHER_TOPIC:
                # what to do about it is the reader's, who knows which topic it began with
                self._reached.pop(place, None)
                return FetchResult(topic, partition, [], offset, topic_id=self._ids.get(topic))
            since = offset
            if answer.error == errors.OFFSET_OUT_OF_RANGE:
                since = self._first_above(place, offset)
                answer, data = self._fetched(place, since, max_bytes, wait_ms)
            found = _found(answer, data, place, since)
            if not len(found.table) and found.reason:
                answer, data = self._fetched(place, since, max_bytes, wait_ms)
                found = _found(answer, data, place, since)
                if not len(found.table) and found.reason:
                    raise _unreadable(found.reason, topic, partition, since)
        except _CutBack as cut:
            told = ((max(to_epoch(self._cluster.leader_epoch(*place)), cut.epoch + 1), cut.end),)
            return FetchResult(
                topic, partition, [], offset, epoch=cut.epoch, epochs=told, topic_id=self._ids.get(topic)
            )
        end = offset
        if len(found.table):
            end = int(found.table[-1, layout.LAST]) + 1
            epoch_at = int(found.table[-1, layout.START]) + layout.EPOCH_AT
            epoch = int.from_bytes(data[epoch_at : epoch_at + 4].tobytes(), "big", signed=True)
            self._reached[place] = _Reached(end, to_epoch(epoch), self._cluster.leader_epoch(*place))
        chunks = _chunks(found.table, visible(found.table, answer.aborted), since)
        runs = [Run(CODE, data, chunks)] if len(chunks) else []
        reached = self._reached.get(place)
        return FetchResult(
            topic, partition, runs, end, answer.first_offset, answer.last_stable_offset, topic_id=self._ids.get(topic),
            epoch=0 if reached is None else reached.epoch,
        )  # fmt: skip

    def wait_for_news(self, places: Mapping[tuple[str, int], int], wait_ms: int) -> None:
        """Ask the leaders, each for its partitions; where there are several, in turn and for a shorter time."""

        def ask() -> None:
            by_leader: dict[KafkaSocket, dict[tuple[str, int], int]] = {}
            for place, offset in places.items():
                by_leader.setdefault(self._cluster.leader(*place), {})[place] = offset
            longest_ms = wait_ms if len(by_leader) == 1 else min(wait_ms, WATCH_MS) // len(by_leader)
            for broker, asked in by_leader.items():
                try:
                    broker.watch(asked, wait_ms=max(1, longest_ms))
                except OSError:
                    broker.close()
                    for topic, _ in asked:
                        self._cluster.forget(topic)
                    raise

        self._cluster.retry(ask)

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        """First offset whose timestamp is at or after ``timestamp_us``; the end offset when there is none.

        Brokers cannot be asked for times before 1970 (negative ones mean the ends): the first offset of all then.
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
            partition = self._sending().turn(topic, len(self.topic(topic).partitions))
        return self._sending().send(topic, partition, batch, strict=strict, compression=compression)

    def send_all(
        self,
        topic: str,
        parts: Iterable[tuple[int, pa.RecordBatch]],
        *,
        strict: bool = False,
        compression: Literal["lz4"] | None = None,
    ) -> int:
        """Send many, the next while those before are on their way; see ``kafka_sending``."""
        return self._sending().send_all(topic, parts, strict=strict, compression=compression)

    def decision(self, name: str, topic: str, *, timeout_s: float | None = None) -> TransactionDecision:
        """What was decided under a transactional id; see ``kafka_transactions``."""
        from .transactions import TIMEOUT_S, KafkaDecision

        return KafkaDecision(self._cluster, name, topic, TIMEOUT_S if timeout_s is None else timeout_s)

    def _sending(self) -> KafkaWriter:
        if self._writer is None:
            from .writer import KafkaWriter

            self._writer = KafkaWriter(self._cluster)
        return self._writer

    def join(self, group: str, topics: Sequence[str]) -> Membership:
        """Become a member of the group, beside those of any other Kafka client; see ``kafka_group``."""
        from .group import KafkaMembership, Timing

        return KafkaMembership(self._cluster, group, topics, Timing(self._session_timeout_s, self._reading_timeout_s))

    def close(self) -> None:
        """Close all connections."""
        self._cluster.close()

    def epoch_ends(self, topic: str, epochs: Mapping[int, int]) -> Mapping[int, int]:
        """Where what was written under an epoch ends now, by partition (KIP-320)."""
        ends = epoch_ends(self._cluster, {(topic, number): epoch for number, epoch in epochs.items()})
        return {number: end for (_, number), end in ends.items()}

    def _fetched(
        self, place: Place, offset: int, max_bytes: int, wait_ms: int
    ) -> tuple[FetchResponse, NDArray[np.uint8]]:
        """The leader's answer; _CutBack where it took over without what was read before ``offset``."""
        topic, partition = place

        def ask(broker: KafkaSocket) -> tuple[FetchResponse, NDArray[np.uint8]] | None:
            epoch = self._cluster.leader_epoch(topic, partition)
            reached = self._reached.get(place)
            if reached is not None and reached.leader_epoch != epoch and offset <= reached.offset:
                return None
            topic_id = self._ids.get(topic)
            how: Any = {"topic_id": topic_id, "leader_epoch": epoch, "max_bytes": max_bytes, "wait_ms": wait_ms}
            broker.send_fetch(topic, partition, offset, **how)
            answer, data = broker.receive_fetch(wait_ms)
            if answer.error in errors.OTHER_TOPIC and self.topic(topic).topic_id != topic_id:
                return answer, data
            if answer.error in errors.RETRIABLE:
                raise_for_code(f"topic {topic!r}, partition {partition}", answer.error)
            return answer, data

        while (found := self._cluster.at_leader(topic, partition, ask)) is None:
            reached = self._reached.pop(place)
            end = epoch_ends(self._cluster, {place: reached.epoch}).get(place, offset)
            if offset > end:
                raise _CutBack(reached.epoch, end)
            self._reached[place] = reached._replace(leader_epoch=self._cluster.leader_epoch(topic, partition))
        return found

    def _first_above(self, place: Place, offset: int) -> int:
        """The first offset kept, where that lies above one that is not there; DataLoss where it does not."""
        topic, partition = place
        part = self.topic(topic).partitions[partition]
        if offset >= part.first_offset:
            raise DataLoss(
                f"topic {topic!r}, partition {partition} at {self.url} has no offset {offset}: offsets "
                f"{part.first_offset} to {part.end_offset - 1} are there; was the topic made again, or cut back?"
            )
        return part.first_offset

    def _metas(self, rows: Sequence[Any]) -> list[TopicMeta]:
        places = [(row.name, part.partition_index) for row in rows for part in row.partitions]
        first, end = list_offsets(self._cluster, places, EARLIEST), list_offsets(self._cluster, places, LATEST)
        metas = []
        for row in rows:
            topic_id = getattr(row, "topic_id", None)
            self._ids[row.name] = None if topic_id is None else topic_id.bytes
            partitions = tuple(
                PartitionMeta(number, first[row.name, number].offset, *end[row.name, number])
                for number in sorted(part.partition_index for part in row.partitions)
            )
            metas.append(TopicMeta(DEFAULT_STREAM, row.name, row.name, self._ids[row.name], partitions))
        return metas


class _Reached(NamedTuple):
    """How far a partition was read: the next offset, the epoch of the last batch, and Kafka's of its leader then."""

    offset: int
    epoch: int
    leader_epoch: int


class _CutBack(Exception):
    """What was read under an epoch ends at ``end`` in the log of the leader that took over."""

    def __init__(self, epoch: int, end: int) -> None:
        super().__init__(epoch, end)
        self.epoch, self.end = epoch, end


def _found(answer: FetchResponse, data: NDArray[np.uint8], place: Place, since: int) -> Batches:
    raise_for_fetch_error(answer, *place)
    return read_batches(data, answer.start, answer.end, first=since)


def raise_for_fetch_error(answer: FetchResponse, topic: str, partition: int) -> None:
    """Nothing where the broker answered with batches; else an error that names the place."""
    try:
        raise_for_code(f"topic {topic!r}, partition {partition} cannot be read", answer.error)
    except Retriable as refused:
        raise refused.error from None


def _unreadable(reason: int, topic: str, partition: int, offset: int) -> CorruptError:
    where = f"topic {topic!r}, partition {partition}, offset {offset}"
    sentence = f"{where}: the record batch {layout.REASONS[reason]}"
    if reason == layout.BAD_CRC:
        return ChecksumMismatch(f"{sentence}, also when asked for once more; to go on read from behind it")
    return CorruptError(sentence)


def _chunks(table: NDArray[np.int64], seen: NDArray[np.bool_], since: int) -> NDArray[np.int64]:
    """The batches that are seen as chunks of a Run, each from where the one before ends."""
    kept = table[seen]
    chunks = np.zeros((len(kept), 8), np.int64)
    chunks[:, BODY_START], chunks[:, BODY_END] = kept[:, layout.START], kept[:, layout.END]
    chunks[:, LAST_OFFSET], chunks[:, COUNT] = kept[:, layout.LAST], kept[:, layout.COUNT]
    if len(kept):
        chunks[0, BASE_OFFSET] = min(since, int(kept[0, layout.BASE]))
        chunks[1:, BASE_OFFSET] = kept[:-1, layout.LAST] + 1
    chunks[:, MIN_TIMESTAMP_US] = np.clip(kept[:, layout.BASE_TIME_MS], 0, layout.TIME_MS_MAX) * 1000
    chunks[:, MAX_TIMESTAMP_US] = np.clip(kept[:, layout.MAX_TIME_MS], 0, layout.TIME_MS_MAX) * 1000
    return chunks


def bootstrap(url: str) -> list[Address]:
    """The addresses in ``kafka://host:port[,host:port]``; SettingError for anything else."""
    row = SCHEMES["kafka"]
    scheme, _, rest = url.partition("://")
    found: list[Address] = []
    for part in rest.rstrip("/").split(","):
        try:
            parts = urlsplit(f"//{part.strip()}")
            host, port = parts.hostname, parts.port or row.port
        except ValueError as error:
            raise SettingError(f"{part!r} is no address ({error}); write it like {row.example}") from None
        if scheme.lower() != "kafka" or not host or port is None or parts.path or parts.query or parts.fragment:
            raise SettingError(f"{url!r} is no address of Kafka brokers; write it like {row.example}")
        if parts.username is not None:
            raise SettingError("give user and password as options (username, password), not in the URL")
        found.append((host, port))
    return found


def _yes(name: str, value: bool | str) -> bool:
    if isinstance(value, bool):
        return value
    if value.lower() not in _WORDS:
        raise SettingError(f"{name} is {value!r}; it takes true or false")
    return _WORDS[value.lower()]
