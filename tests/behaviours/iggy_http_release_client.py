"""Iggy's HTTP clients since 0.1, written from docs/reference/protocols/iggy.md#http-releases: log in, then a token."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import httpx

from lading.model.errors import RemoteError
from lading.model.kinds import Kind

if TYPE_CHECKING:
    from tests.behaviours.rows import Seen, Sending

CONSUMER: Final = 77
NEVER: Final = (1 << 64) - 1


class HttpShape(NamedTuple):
    """What differs between releases."""

    version: str | None
    """What a login says."""
    first_partition: int = 1
    has_headers: bool = False
    """Messages are polled with a header of their own."""
    has_typed_keys: bool = False


HTTP_SHAPES: Final = {
    "0.1": HttpShape(None),
    "0.2": HttpShape(None),
    "0.4": HttpShape(None),
    "0.5": HttpShape("0.5.0"),
    "0.6": HttpShape("0.6.10"),
    "0.6.60": HttpShape("0.6.202"),
    "0.7": HttpShape("0.7.0", 1, True),
    "0.8": HttpShape("0.8.0", 0, True),
    "0.9": HttpShape("0.9.0", 0, True, True),
    "0.10": HttpShape("0.10.0", 0, True, True),
}
_SIZE_NAME: Final = {"0.1": "size_bytes"}
_LATE: Final = ("0.8", "0.9", "0.10")
"""Those that leave ids to the server."""


class IggyHttpReleaseSession:
    """One client; topics lie in stream ``default``, as flat names do."""

    holds_kinds: ClassVar[bool] = True

    def __init__(self, release: str, address: str) -> None:
        self._release, self._shape = release, HTTP_SHAPES[release]
        self._http = httpx.Client(base_url=f"http://{address}", timeout=20)
        login: dict[str, Any] = {"username": "anyone", "password": "anything"}
        if self._shape.version is not None:
            login |= {"version": self._shape.version, "context": ""}
        told = _document(self._http.post("/users/login", json=login))
        token = told["tokens"]["access_token"] if self._shape.version is None else told["access_token"]
        self._http.headers["authorization"] = f"Bearer {token['token']}"

    def create_topic(self, topic: str, partitions: int) -> None:
        ids = self._release not in _LATE
        if self._http.get("/streams/default").status_code != 200:
            _require(
                self._http.post("/streams", json={"name": "default", **({"stream_id": 0xFFFF_FFFF} if ids else {})})
            )
        taken = {row["id"] for row in _document(self._http.get("/streams/default/topics"))}
        free = next(number for number in range(1, len(taken) + 2) if number not in taken)
        document: dict[str, Any] = {
            "partitions_count": partitions,
            "name": topic,
            **({"topic_id": free} if ids else {}),
        }
        if self._release in ("0.1", "0.2", "0.4"):
            document["message_expiry"] = None
        else:
            document |= {"message_expiry": NEVER, "max_topic_size": 0}
        if self._release == "0.2":
            document |= {"max_topic_size": None, "replication_factor": 1}
        elif self._release != "0.1":
            document |= {"compression_algorithm": "none", "replication_factor": None}
        _require(self._http.post("/streams/default/topics", json=document))
        row = _document(self._http.get(f"/streams/default/topics/{topic}"))
        assert (row["name"], row["partitions_count"]) == (topic, partitions)
        # a missing member would be an error of the client
        assert row["created_at"] > 0 and _SIZE_NAME.get(self._release, "size") in row

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        kind, value = "balanced", b""
        if partition is not None:
            kind, value = "partition_id", struct.pack("<I", partition + self._shape.first_partition)
        # one request a message: a balanced request goes to one partition as a whole
        for message in messages:
            one: dict[str, Any] = {"id": 0, "payload": _base64(message.payload or b"")}
            fields = [
                (key, {"kind": Kind(code).word, "value": _base64(data or b"")}) for key, code, data in message.headers
            ]
            if self._shape.has_typed_keys:
                one["user_headers"] = [
                    {"key": {"kind": "string", "value": _base64(key.encode())}, "value": field} for key, field in fields
                ]
            else:
                one["headers"] = dict(fields)
            document = {"partitioning": {"kind": kind, "value": _base64(value)}, "messages": [one]}
            _require(self._http.post(f"/streams/default/topics/{topic}/messages", json=document))

    def read(self, topic: str, partition: int = 0, offset: int = 0, count: int = 1000) -> list[Seen]:
        query: dict[str, str | int] = {
            "consumer_id" if self._release in _LATE else "id": str(CONSUMER),
            "partition_id": partition + self._shape.first_partition,
            "kind": "offset",
            "value": str(offset),
            "count": count,
            "auto_commit": "false",
        }
        answer = _document(self._http.get(f"/streams/default/topics/{topic}/messages", params=query))
        assert answer["partition_id"] == partition + self._shape.first_partition
        read = self._seen_with_header if self._shape.has_headers else _seen
        return [read(partition, row) for row in answer["messages"]]

    def end(self, topic: str, partition: int = 0) -> int:
        row = _document(self._http.get(f"/streams/default/topics/{topic}"))["partitions"][partition]
        assert row["id"] == partition + self._shape.first_partition
        return int(row["current_offset"]) + 1 if row["messages_count"] else 0

    def read_as_group(self, topic: str, group: str, count: int) -> list[Seen]:
        raise NotImplementedError("Iggy's HTTP face has no way to join a group")

    def close(self) -> None:
        # 0.1 and 0.2 send POST
        method = "POST" if self._release in ("0.1", "0.2") else "DELETE"
        assert self._http.request(method, "/users/logout").status_code == 204
        assert self._http.get("/streams").status_code == 401
        self._http.close()

    def _seen_with_header(self, partition: int, row: dict[str, Any]) -> Seen:
        from tests.behaviours.rows import Seen

        if self._shape.has_typed_keys:
            assert all(entry["key"]["kind"] == "string" for entry in row["user_headers"])
            fields = [
                (base64.b64decode(entry["key"]["value"]).decode(), entry["value"]) for entry in row["user_headers"]
            ]
        else:
            fields = list(row.get("user_headers", {}).items())
        payload = base64.b64decode(row["payload"])
        assert row["header"]["payload_length"] == len(payload)
        return Seen(partition, row["header"]["offset"], payload, _headers(fields), None)


def _require(answer: httpx.Response) -> httpx.Response:
    if not answer.is_success:
        raise RemoteError(answer.text, code=answer.json().get("id"))
    return answer


def _document(answer: httpx.Response) -> Any:
    return _require(answer).json()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _headers(fields: Sequence[tuple[str, dict[str, str]]]) -> list[tuple[str, int, bytes | None]]:
    return [(key, int(Kind[field["kind"].upper()]), base64.b64decode(field["value"])) for key, field in fields]


def _seen(partition: int, row: dict[str, Any]) -> Seen:
    from tests.behaviours.rows import Seen

    headers = _headers(list((row["headers"] or {}).items()))
    return Seen(partition, row["offset"], base64.b64decode(row["payload"]), headers, None, row["state"])
