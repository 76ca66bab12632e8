"""A program for the published package ``iggy_py``, of whatever release is installed where it runs; not a test.

It connects, logs in and does what its second argument says: a JSON list of calls, each a list of a name and arguments.
What each gave is a line of JSON; an exception is told as ``{"error": …}``. It is run by the interpreter of an
environment that has nothing but the package, so it imports nothing else and keeps to Python 3.10.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import sys
from typing import Any

import iggy_py

HAS_NAMES = hasattr(iggy_py.IggyClient, "get_stream")
"""Releases before name streams and topics by number, poll from the next message only, and connect to port 8090."""


async def finish(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


def describe(message: Any) -> dict[str, Any]:
    told = {"offset": message.offset(), "payload": base64.b64encode(bytes(message.payload())).decode()}
    for name in ("id", "timestamp", "checksum", "length"):
        if hasattr(message, name):
            told[name] = getattr(message, name)()
    if hasattr(message, "state"):
        told["state"] = str(message.state()).rpartition(".")[2]
    return told


def describe_entity(found: Any) -> Any:
    # both call it so, whatever it counts
    return found and [found.id, found.name, found.messages_count, found.topics_count]


def takes(function: Any, name: str) -> bool:
    return name in inspect.signature(function).parameters


async def call(client: Any, name: str, *arguments: Any) -> Any:
    if name == "create_stream":
        stream, ident = arguments
        return await finish(client.create_stream(name=stream, stream_id=ident))
    if name == "create_topic":
        stream, topic, ident, partitions = arguments
        if HAS_NAMES:
            return await finish(client.create_topic(stream=stream, name=topic, partitions_count=partitions))
        more = {"compression_algorithm": "none"} if takes(client.create_topic, "compression_algorithm") else {}
        client.create_topic(stream_id=stream, topic_id=ident, partitions_count=partitions, name=topic, **more)
        return None
    if name in ("get_stream", "get_topic"):
        return describe_entity(await finish(getattr(client, name)(*arguments)))
    if name == "send":
        stream, topic, partition, texts = arguments
        messages = [iggy_py.SendMessage(text) for text in texts]
        return await finish(client.send_messages(stream, topic, partition, messages))
    if name == "poll":
        stream, topic, partition, (kind, *value), count, commit = arguments
        strategy = [getattr(iggy_py.PollingStrategy, kind)(*value)] if HAS_NAMES else []
        polled = await finish(client.poll_messages(stream, topic, partition, *strategy, count, commit))
        return [describe(message) for message in polled]
    raise ValueError(name)


async def main() -> None:
    address, calls = sys.argv[1], json.loads(sys.argv[2])
    client = iggy_py.IggyClient(address) if HAS_NAMES else iggy_py.IggyClient()
    await finish(client.connect())
    await finish(client.login_user("iggy", "iggy"))
    for name, *arguments in calls:
        try:
            told = {"ok": await call(client, name, *arguments)}
        except Exception as error:
            told = {"error": str(error)}
        print(json.dumps(told), flush=True)


asyncio.run(main())
# threads of the package outlive the interpreter's end and abort it now and then
os._exit(0)
