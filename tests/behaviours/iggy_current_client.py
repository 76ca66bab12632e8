"""The published client of Iggy's current generation, unmodified: package apache-iggy 0.9.0 in a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from lading.model.errors import RemoteError
from tests.interop.iggy_current import CallError, CurrentClient

if TYPE_CHECKING:
    from tests.behaviours.rows import Seen, Sending

STREAM = "default"
TEXT_KEY = 2


class IggyCurrentSession:
    """One client; topics lie in stream ``default``, as flat names do."""

    holds_kinds: ClassVar[bool] = True

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = CurrentClient(address)

    def create_topic(self, topic: str, partitions: int) -> None:
        if self._client.call("get_stream", STREAM) is None:
            self._client.call("create_stream", STREAM)
        with _named(f"topic {topic}"):
            self._client.call("create_topic", STREAM, topic, partitions)

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        where = ("balanced",) if partition is None else ("partition_id", partition)
        with _named(f"topic {topic}, partition {partition}"):
            # one request a message: a balanced request goes to one partition as a whole
            for message in messages:
                headers = [(TEXT_KEY, key.encode(), kind, value or b"") for key, kind, value in message.headers]
                self._client.send(STREAM, topic, where, [(message.payload or b"", headers, None)])

    def read(self, topic: str, partition: int = 0, offset: int = 0, count: int = 1000) -> list[Seen]:
        with _named(f"topic {topic}, partition {partition}"):
            polled = self._client.poll(
                STREAM, topic, partition=partition, start=("Offset", offset), count=count, consumer=("Single", 77)
            )
        return [_seen(message) for message in polled]

    def end(self, topic: str, partition: int = 0) -> int:
        last = self._client.poll(STREAM, topic, partition=partition, start=("Last",), count=1)
        return last[0]["offset"] + 1 if last else 0

    def read_as_group(self, topic: str, group: str, count: int) -> list[Seen]:
        seen: list[Seen] = []
        with contextlib.closing(CurrentClient(self._address)) as member:
            name = f"group-{group}"
            if member.call("get_consumer_group", STREAM, topic, name) is None:
                member.call("create_consumer_group", STREAM, topic, name)
            member.call("join_consumer_group", STREAM, topic, name)
            idle = 0
            while len(seen) < count and idle < 50:
                polled = member.poll(
                    STREAM, topic, partition=None, start=("Next",), count=count - len(seen), consumer=("Group", name),
                    commit=True,
                )  # fmt: skip
                idle = 0 if polled else idle + 1
                seen += map(_seen, polled)
            member.call("leave_consumer_group", STREAM, topic, name)
        return seen

    def close(self) -> None:
        self._client.close()


def _seen(message: dict[str, Any]) -> Seen:
    from tests.behaviours.rows import Seen

    headers = [(key.decode(), kind, value) for _, key, kind, value in message["headers"]]
    return Seen(message["partition"], message["offset"], message["payload"], headers, None)


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """The client says what is wrong, and not with what."""
    try:
        yield
    except CallError as error:
        raise RemoteError(f"{what}: {error}") from None
