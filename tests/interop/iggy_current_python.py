"""A program for the published package ``apache_iggy`` 0.9, run where just that is installed; not a test.

It connects to its first argument, logs in, and answers each line of its input, a JSON list of a name and arguments,
with a line of JSON: ``{"ok": …}`` or ``{"error": …}``. Bytes are Base64; a header is ``[key kind, key, kind, value]``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import struct
import sys
from typing import Any

import apache_iggy as iggy  # type: ignore[import-not-found]

INTEGERS = [f"Int{bits}" for bits in (8, 16, 32, 64, 128)]
KINDS = ["Raw", "String", "Bool", *INTEGERS, *(f"Unsigned{name}" for name in INTEGERS), "Float32", "Float64"]
FLOATS = {14: "<f", 15: "<d"}


def pack(kind: int, value: Any) -> bytes:
    if kind == 1:
        return bytes(value)
    if kind == 2:
        return bytes(value.encode())
    if kind in FLOATS:
        return struct.pack(FLOATS[kind], value)
    return int(value).to_bytes(size_of(kind), "little", signed=4 <= kind <= 8)


def unpack(kind: int, data: bytes) -> Any:
    if kind == 1:
        return data
    if kind == 2:
        return data.decode()
    if kind == 3:
        return data != b"\0"
    if kind in FLOATS:
        return struct.unpack(FLOATS[kind], data)[0]
    return int.from_bytes(data, "little", signed=kind <= 8)


def size_of(kind: int) -> int:
    return 1 if kind == 3 else 1 << (kind - 4 if kind <= 8 else kind - 9)


def typed(family: Any, kind: int, data: bytes) -> Any:
    return getattr(family, KINDS[kind - 1])(unpack(kind, data))


def kind_of(value: Any) -> int:
    return KINDS.index(type(value).__name__.rpartition("_")[2]) + 1


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def describe(message: Any) -> dict[str, Any]:
    headers = [
        [kind_of(key), text(pack(kind_of(key), key.value)), kind_of(value), text(pack(kind_of(value), value.value))]
        for key, value in (message.user_headers() or {}).items()
    ]
    return {
        "partition": message.partition_id(),
        "offset": message.offset(),
        "payload": text(bytes(message.payload())),
        "id": message.id(),
        "timestamp": message.timestamp(),
        "origin_timestamp": message.origin_timestamp(),
        "headers": headers,
    }


def sent(payload: str, headers: list[Any], id_: int | None = None) -> Any:
    made = {
        typed(iggy.HeaderKey, key_kind, base64.b64decode(key)): typed(iggy.HeaderValue, kind, base64.b64decode(value))
        for key_kind, key, kind, value in headers
    }
    return iggy.SendMessage(base64.b64decode(payload), made or None, id_)


async def call(client: Any, name: str, *arguments: Any) -> Any:
    if name == "send":
        stream, topic, (kind, *value), messages = arguments
        where = getattr(iggy.Partitioning, kind)(*value)
        response = await client.send_messages(stream, topic, where, [sent(*message) for message in messages])
        return [[one.stream_id, one.topic_id, one.partition_id, one.base_offset] for one in response.confirmations]
    if name == "poll":
        stream, topic, (consumer, ident), partition, (kind, *value), count, commit = arguments
        polled = await client.poll_messages(
            stream,
            topic,
            consumer=getattr(iggy.Consumer, consumer)(ident),
            polling_strategy=getattr(iggy.PollingStrategy, kind)(*value),
            count=count,
            auto_commit=commit,
            partition_id=partition,
        )
        return [describe(message) for message in polled]
    if name == "raw":
        code, body = arguments
        return text(bytes(await client.send_binary_request(code, base64.b64decode(body))))
    if name == "consume":
        stream, topic, group, count = arguments
        consumer = await client.consumer_group(group, stream, topic, polling_strategy=iggy.PollingStrategy.Next())
        found: list[Any] = []
        async for message in consumer.iter_messages():
            found.append(describe(message))
            await consumer.store_offset(message.offset(), message.partition_id())
            if len(found) == count:
                return found
    told = await getattr(client, name)(*arguments)
    if isinstance(told, list):
        return [look(one) for one in told]
    return look(told)


def look(value: Any) -> Any:
    """The plain facts of an object of the package."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [look(one) for one in value]
    names = [name for name in dir(value) if not name.startswith("_")]
    found = {name: getattr(value, name) for name in names if not callable(getattr(value, name))}
    return {name: look(one) for name, one in found.items() if isinstance(one, bool | int | float | str | list)}


async def main() -> None:
    place = sys.argv[1]
    # with a user in the connection string the client logs in by itself
    client = iggy.IggyClient.from_connection_string(place) if "://" in place else iggy.IggyClient(place)
    await client.connect()
    if "://" not in place or place.startswith("iggy+http"):
        await client.login_user("anyone", "anything")
    print(json.dumps({"ok": "ready"}), flush=True)
    for line in sys.stdin:
        try:
            told = {"ok": await asyncio.wait_for(call(client, *json.loads(line)), 30)}
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), flush=True)


asyncio.run(main())
os._exit(0)
