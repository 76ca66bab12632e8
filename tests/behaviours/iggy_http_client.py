"""Iggy's HTTP face as curl sees it: plain documents, no carrier, nothing that Iggy itself cannot hold."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import httpx

from lading.model.errors import RemoteError
from lading.model.kinds import Kind

if TYPE_CHECKING:
    from tests.behaviours.rows import Seen, Sending

DEFAULT_ID = 0xFFFF_FFFF
CONSUMER = 77


class IggyHttpSession:
    """One client; topics lie in stream ``default``, as flat names do."""

    holds_kinds: ClassVar[bool] = True

    def __init__(self, address: str) -> None:
        self._http = httpx.Client(base_url=f"http://{address}", timeout=20)

    def create_topic(self, topic: str, partitions: int) -> None:
        if self._http.get("/streams/default").status_code != 200:
            self._post("/streams", {"stream_id": DEFAULT_ID, "name": "default"})
        taken = {row["id"] for row in self._http.get("/streams/default/topics").json()}
        free = next(number for number in range(1, len(taken) + 2) if number not in taken)
        self._post("/streams/default/topics", {"topic_id": free, "partitions_count": partitions, "name": topic})

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        kind, value = "balanced", b""
        if partition is not None:
            kind, value = "partition_id", struct.pack("<I", partition + 1)
        # one request a message: a balanced request goes to one partition as a whole
        for message in messages:
            headers = {
                key: {"kind": Kind(code).word, "value": _base64(data or b"")} for key, code, data in message.headers
            }
            document = {
                "partitioning": {"kind": kind, "value": _base64(value)},
                "messages": [{"payload": _base64(message.payload or b""), "headers": headers}],
            }
            self._post(f"/streams/default/topics/{topic}/messages", document)

    def read(self, topic: str, partition: int = 0, offset: int = 0, count: int = 1000) -> list[Seen]:
        query: dict[str, str | int] = {
            "partition_id": partition + 1,
            "kind": "offset",
            "value": offset,
            "count": count,
            "id": CONSUMER,
        }
        answer = self._http.get(f"/streams/default/topics/{topic}/messages", params=query)
        return [_seen(partition, row) for row in _document(answer)]

    def end(self, topic: str, partition: int = 0) -> int:
        row = _document(self._http.get(f"/streams/default/topics/{topic}"))["partitions"][partition]
        return int(row["current_offset"]) + 1 if row["messages_count"] else 0

    def read_as_group(self, topic: str, group: str, count: int) -> list[Seen]:
        raise NotImplementedError("Iggy's HTTP face has no way to join a group")

    def close(self) -> None:
        self._http.close()

    def _post(self, path: str, document: dict[str, Any]) -> None:
        _require(self._http.post(path, json=document))


def _require(answer: httpx.Response) -> httpx.Response:
    if not answer.is_success:
        raise RemoteError(answer.text, code=answer.json().get("id"))
    return answer


def _document(answer: httpx.Response) -> Any:
    return _require(answer).json()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _seen(partition: int, row: dict[str, Any]) -> Seen:
    from tests.behaviours.rows import Seen

    headers = [
        (key, int(Kind[header["kind"].upper()]), base64.b64decode(header["value"]))
        for key, header in (row["headers"] or {}).items()
    ]
    return Seen(partition, row["offset"], base64.b64decode(row["payload"]), headers, None, row["state"])
