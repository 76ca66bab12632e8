"""A program for the newest pre-release of the package ``apache_iggy``, run where just that is installed; not a test.

Its arguments are a connection string and a word. ``all`` does what a client does, step by step, and prints a JSON
object of what it saw; ``read`` prints the messages of the topic alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import apache_iggy as iggy  # type: ignore[import-not-found]

STREAM, TOPIC = "stream", "topic"
FIRST = iggy.PollingStrategy.Offset(0)


def shown(messages: list[Any]) -> list[list[Any]]:
    """Offset, payload and headers of each message."""
    return [[one.offset(), one.payload().decode(), headers_of(one)] for one in messages]


def headers_of(message: Any) -> list[str]:
    found = message.user_headers()
    return [] if found is None else sorted(f"{key}={value}" for key, value in found.to_scalar_dict().items())


async def poll(client: Any, topic: str = TOPIC, **how: Any) -> list[Any]:
    asked = {"consumer": iggy.Consumer.Single(7), "polling_strategy": FIRST, "count": 100, "auto_commit": False, **how}
    return list(await client.poll_messages(STREAM, topic, **asked))


async def do_all(client: Any, is_http: bool) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    await client.create_stream(STREAM)
    await client.create_topic(
        STREAM, TOPIC, iggy.TopicOptions(partitions_count=2, durability=iggy.Durability.PERSISTED)
    )
    headers = {"carrier": "UA", "delay": iggy.HeaderValue.Int32(-12), "late": True}
    messages = [iggy.SendMessage(b"first", headers, 2**64 - 1), iggy.SendMessage(b"second")]
    sent = await client.send_messages(STREAM, TOPIC, iggy.Partitioning.partition_id(0), messages)
    seen["confirmed"] = [one.base_offset for one in sent.confirmations]
    seen["polled"] = shown(await poll(client, partition_id=0))
    seen["other"] = shown(await poll(client, partition_id=1))
    await client.send_messages(STREAM, TOPIC, iggy.Partitioning.balanced(), [iggy.SendMessage(b"third")])
    await client.send_messages(STREAM, TOPIC, iggy.Partitioning.messages_key(b"k1"), [iggy.SendMessage(b"fourth")])
    topic = await client.get_topic(STREAM, TOPIC)
    seen["topic"] = [topic.id, topic.name, topic.partitions_count, topic.messages_count]
    stream = await client.get_stream(STREAM)
    seen["stream"] = [stream.id, stream.name, stream.topics_count]
    seen["streams"] = [one.name for one in await client.get_streams()]
    seen["missing"] = [await client.get_stream("nobody"), await client.get_topic(STREAM, "nobody")]
    await client.update_topic(STREAM, TOPIC, name="renamed", message_expiry=iggy.IggyExpiry.NeverExpire())
    seen["renamed"] = (await client.get_topic(STREAM, "renamed")).name
    await client.update_topic(STREAM, "renamed", name=TOPIC, reset=[iggy.OptionKey.MessageExpiry])
    await client.create_partitions(STREAM, TOPIC, 1)
    await client.delete_partitions(STREAM, TOPIC, 1)
    seen["users"] = [one.username for one in await client.get_users()]
    seen["messages"] = (await client.get_stats()).messages_count
    if not is_http:
        seen["group"] = await read_as_group(client)
    try:
        await client.create_stream(STREAM)
    except iggy.IggyError as error:
        seen["refused"] = str(error)
    return seen


async def read_as_group(client: Any) -> list[str]:
    """The payloads that a group of one member is given, from both partitions."""
    consumer = await client.consumer_group(
        "group", STREAM, TOPIC, polling_strategy=iggy.PollingStrategy.First(), auto_commit=iggy.AutoCommit.Disabled()
    )
    found = []
    async for message in consumer.iter_messages():
        found.append(message.payload().decode())
        if len(found) == 4:
            break
    return sorted(found)


async def main() -> None:
    place, word = sys.argv[1:3]
    is_http = place.startswith("iggy+http")
    client = iggy.IggyClient.from_connection_string(place)
    await client.connect()
    if is_http:
        await client.login_user("iggy", "iggy")
    if word == "all":
        seen = await do_all(client, is_http)
    else:
        seen = {"read": shown(await poll(client, partition_id=0))}
    print(json.dumps(seen), flush=True)


asyncio.run(asyncio.wait_for(main(), 60))
os._exit(0)
