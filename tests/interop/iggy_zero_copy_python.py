"""A program for the published package ``apache_iggy`` 0.5 to 0.8, run where just that is installed; not a test.

It connects, logs in and does what its second argument says: a JSON list of calls, each a list of a name and arguments.
What each gave is a line of JSON; an exception is told as ``{"error": …}``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from typing import Any

import apache_iggy as iggy  # type: ignore[import-not-found]


def describe(message: Any) -> dict[str, Any]:
    return {
        "offset": message.offset(),
        "payload": base64.b64encode(bytes(message.payload())).decode(),
        "id": message.id(),
        "timestamp": message.timestamp(),
        "checksum": message.checksum(),
        "length": message.length(),
    }


async def call(client: Any, name: str, *arguments: Any) -> Any:
    if name == "create_stream":
        return await client.create_stream(name=arguments[0])
    if name == "create_topic":
        stream, topic, partitions = arguments
        return await client.create_topic(stream=stream, name=topic, partitions_count=partitions)
    if name in ("get_stream", "get_topic"):
        found = await getattr(client, name)(*arguments)
        return found and [found.name, found.messages_count]
    if name == "send":
        stream, topic, partition, texts = arguments
        return await client.send_messages(stream, topic, partition, [iggy.SendMessage(text) for text in texts])
    if name == "poll":
        stream, topic, partition, (kind, *value), count, commit = arguments
        strategy = getattr(iggy.PollingStrategy, kind)(*value)
        polled = await client.poll_messages(stream, topic, partition, strategy, count, commit)
        return [describe(message) for message in polled]
    raise ValueError(name)


async def main() -> None:
    address, calls = sys.argv[1], json.loads(sys.argv[2])
    client = iggy.IggyClient(address)
    await client.connect()
    await client.login_user("iggy", "iggy")
    for name, *arguments in calls:
        try:
            told = {"ok": await call(client, name, *arguments)}
        except Exception as error:
            told = {"error": str(error)}
        print(json.dumps(told), flush=True)


asyncio.run(main())
# 0.5.0 now and then dies of a signal when the interpreter takes its threads down
os._exit(0)
