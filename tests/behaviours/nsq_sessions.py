"""NSQ clients as sessions of the behaviour suite: our own, upstream's go-nsq and Youzan's.

NSQ is a queue: reading is finishing, through a channel, and the first channel of a topic gets what was kept. So each
session reads through one channel, everything that waits for it; partitions and offsets are not in the protocol, and
offsets here number the arrival.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import httpx

from lading import Consumer, Header, Headers, Producer
from lading.model.errors import RemoteError
from lading.model.kinds import Kind
from lading.model.message import Message
from lading.transports.open import open_transport
from tests.interop import go_programs

if TYPE_CHECKING:
    from tests.behaviours.rows import HeaderRow, Seen, Sending

CHANNEL = "behaviour"
TIMEOUT_S = 20.0


class _Queue:
    """What the sessions share: topics and figures over nsqd's HTTP face."""

    def __init__(self, endpoints: Mapping[str, str]) -> None:
        self._tcp = endpoints["nsqd_tcp"]
        self._http = httpx.Client(base_url=f"http://{endpoints['nsqd_http']}", timeout=TIMEOUT_S)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._ask("/topic/create", topic=topic)

    def end(self, topic: str, partition: int = 0) -> int:
        return int(self._figures(topic)["message_count"])

    def _ask(self, path: str, **query: str) -> None:
        answer = self._http.post(path, params=query)
        if not answer.is_success:
            raise RemoteError(f"{path} {query}: {answer.text}")

    def _figures(self, topic: str) -> dict[str, Any]:
        answer = self._http.get("/stats", params={"format": "json", "topic": topic}).json()
        rows = [row for row in answer.get("data", answer)["topics"] or () if row["topic_name"] == topic]
        if not rows:
            raise RemoteError(f"there is no topic {topic!r}")
        row: dict[str, Any] = rows[0]
        return row

    def _waiting(self, topic: str, channel: str) -> int:
        """How many messages the channel has to give; it is made where it is not there yet."""
        self._figures(topic)
        self._ask("/channel/create", topic=topic, channel=channel)
        deadline_s = time.monotonic() + TIMEOUT_S
        # a server moves what the topic has to its first channel a little later
        while self._figures(topic)["depth"] and time.monotonic() < deadline_s:
            time.sleep(0.01)
        (row,) = (row for row in self._figures(topic)["channels"] if row["channel_name"] == channel)
        return int(row["depth"])

    def close(self) -> None:
        self._http.close()


class PythonNsqSession(_Queue):
    """Producer and Consumer over ``nsq://``."""

    holds_kinds: ClassVar[bool] = True

    def __init__(self, endpoints: Mapping[str, str]) -> None:
        super().__init__(endpoints)
        self._url = f"nsq://{self._tcp}"
        self._transport = open_transport(self._url)
        self._producer = Producer(self._url)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._transport.create_topic(topic, partitions)

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        for message in messages:
            headers = Headers([Header(*header) for header in message.headers])
            self._producer.send(topic, message.payload, key=message.key, headers=headers, partition=partition)
        self._producer.flush()

    def read(self, topic: str, partition: int = 0, offset: int = 0, count: int = 1000) -> list[Seen]:
        return self._read(topic, CHANNEL, min(count, self._waiting(topic, CHANNEL)))

    def read_as_group(self, topic: str, group: str, count: int) -> list[Seen]:
        self._waiting(topic, group)
        return self._read(topic, group, count)

    def _read(self, topic: str, channel: str, count: int) -> list[Seen]:
        seen: list[Seen] = []
        # one at a time, so that what is left goes to the next reader in order
        with Consumer(self._url, topic, channel=channel, in_flight=1, timeout_s=TIMEOUT_S) as consumer:
            while len(seen) < count:
                seen.append(_seen(next(consumer)))
        return seen

    def close(self) -> None:
        self._producer.close()
        self._transport.close()
        super().close()


class GoNsqSession(_Queue):
    """Upstream's go-nsq: bodies, no headers."""

    holds_kinds: ClassVar[bool] = False
    program: ClassVar[str] = "upstream"

    def __init__(self, endpoints: Mapping[str, str]) -> None:
        super().__init__(endpoints)
        self._client = go_programs.Conversation(go_programs.client(self.program))

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        self._asked("publish", topic, bodies=[message.payload or b"" for message in messages])

    def read(self, topic: str, partition: int = 0, offset: int = 0, count: int = 1000) -> list[Seen]:
        return self._read(topic, CHANNEL, min(count, self._waiting(topic, CHANNEL)))

    def read_as_group(self, topic: str, group: str, count: int) -> list[Seen]:
        self._waiting(topic, group)
        return self._read(topic, group, count)

    def _read(self, topic: str, channel: str, count: int) -> list[Seen]:
        from tests.behaviours.rows import Seen

        if not count:
            return []
        asked = {"channel": channel, "count": count, "in_flight": 1, "timeout_ms": int(TIMEOUT_S * 1000)}
        rows = self._asked("consume", topic, **asked)["messages"]
        return [Seen(0, at, row["body"], _headers(row), None) for at, row in enumerate(rows)]

    def _asked(self, what: str, topic: str, **more: Any) -> dict[str, Any]:
        answer = self._client.ask(op=what, address=self._tcp, topic=topic, **more)
        if answer["error"]:
            raise RemoteError(f"{topic}: {answer['error']}")
        return answer

    def close(self) -> None:
        self._client.close()
        super().close()


class YouzanNsqSession(GoNsqSession):
    """Youzan's go-nsq: headers are a JSON object, here of strings."""

    program: ClassVar[str] = "youzan"

    def create_topic(self, topic: str, partitions: int) -> None:
        transport = open_transport(f"nsq://{self._tcp}")
        transport.create_topic(topic, partitions)
        transport.close()

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        exts = [{key: (value or b"").decode() for key, _, value in message.headers} for message in messages]
        bodies = [message.payload or b"" for message in messages]
        self._asked("publish", topic, bodies=bodies, exts=exts, partition=str(partition or 0))


def _headers(row: Mapping[str, Any]) -> list[HeaderRow]:
    pairs = json.loads(row.get("ext") or "{}", object_pairs_hook=list) or []
    kind = int(Kind.RAW)
    return [(key, kind, str(value).encode()) for key, value in pairs if not key.startswith("##")]


def _seen(message: Message) -> Seen:
    from tests.behaviours.rows import Seen

    headers = [(header.key, header.kind, header.value) for header in message.headers]
    return Seen(message.partition, message.offset, message.payload, headers, message.key, message.state.word)
