"""The toy as a transport: publishing and reading over one connection."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lading.model.errors import LocalError, Unreachable
from lading.model.run import Run
from lading.transports.fetched import FetchResult
from lading.transports.fitting import fill_missing_columns, fit_to_target
from lading.transports.interface import Membership, PartitionMeta, SendResult, TopicMeta
from lading.transports.open import address

from .dialect.commands import HEAD, Command, PublishCommand, ReadCommand, frame_bytes, pack_command, parse_frame
from .dialect.messages import bodies_of, iter_stored, pack_sent
from .dialect.protocol import CODE, SENT

if TYPE_CHECKING:
    import pyarrow as pa

COUNT_MAX = 10_000


class ToyTransport:
    """One server of the toy; it lists no topics, keeps no groups, and has only offsets to begin at."""

    idempotent = False
    capabilities = SENT

    def __init__(self, url: str, *, timeout_s: float = 30.0) -> None:
        self.url = url
        self._place = address(url, "toy")
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def topics(self, wanted: Callable[[str], bool] | None = None) -> list[TopicMeta]:
        """Nothing: the toy cannot ask."""
        raise LocalError(f"{self.url} does not list topics")

    def topic(self, name: str) -> TopicMeta:
        """The topic as it is now; LocalError if there is none."""
        first = self._bounds(name, 0)
        rest = [self._bounds(name, number) for number in range(1, first["partitions"])]
        parts = [
            PartitionMeta(number, facts["first_offset"], facts["end_offset"])
            for number, facts in enumerate([first, *rest])
        ]
        return TopicMeta("default", name, name, None, tuple(parts))

    def create_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        """Create the topic, in the default stream."""
        self._ask(PublishCommand(name, 0, create=partitions))
        return self.topic(name)

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
        """Stored messages from ``offset`` on, as one chunk."""
        count = COUNT_MAX if max_messages is None else max_messages
        facts, data = self._ask(ReadCommand(topic, partition, offset, count))
        found = list(iter_stored(memoryview(data)))
        runs = []
        if found:
            times_us = [message.timestamp_us for message in found]
            row = [0, len(data), found[0].offset, len(found), found[-1].offset, min(times_us), max(times_us), 0]
            runs.append(Run(CODE, np.frombuffer(data, np.uint8), np.array([row], np.int64)))
        return FetchResult(
            topic,
            partition,
            runs,
            max(offset, facts["next_offset"]),
            first_offset=facts["first_offset"],
            last_stable_offset=facts["end_offset"],
        )

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        """LocalError: the toy has no times to go to."""
        raise LocalError(f"{self.url} cannot start at a time")

    def send(
        self,
        topic: str,
        partition: int | None,
        batch: pa.RecordBatch,
        *,
        strict: bool = False,
        compression: Literal["lz4"] | None = None,
    ) -> SendResult:
        """Publish the messages, in order, with carriers for what the toy has no form for."""
        ready = fit_to_target(fill_missing_columns(batch), SENT, "the toy", strict=strict)
        sent = b"".join(map(pack_sent, bodies_of(ready)))
        facts, _ = self._ask(PublishCommand(topic, partition or 0), sent)
        return SendResult(batch.num_rows, facts["base_offset"])

    def join(self, group: str, topics: Sequence[str]) -> Membership:
        """LocalError: the toy keeps no groups."""
        raise LocalError(f"{self.url} keeps no groups")

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _bounds(self, topic: str, partition: int) -> dict[str, Any]:
        return self._ask(ReadCommand(topic, partition, 0, 0))[0]

    def _ask(self, command: Command, sent: bytes = b"") -> tuple[dict[str, Any], bytes]:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._place, self._timeout_s)
            self._socket.sendall(pack_command(command, sent))
            head = self._receive(HEAD.size)
            facts, data = parse_frame(head, self._receive(frame_bytes(head)))
        except OSError as error:
            self.close()
            raise Unreachable(f"{self.url}: {error}") from None
        if "error" in facts:
            raise LocalError(facts["error"])
        return facts, data

    def _receive(self, size_bytes: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < size_bytes:
            part = self._socket.recv(size_bytes - len(data))
            if not part:
                raise ConnectionResetError("the server closed the connection")
            data += part
        return data
