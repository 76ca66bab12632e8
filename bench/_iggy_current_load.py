"""A program for the published package ``apache_iggy`` 0.9, run where just that is installed: sends, polls, waits.

Its arguments are the connection string and how many batches of a size; it prints a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import apache_iggy as iggy  # type: ignore[import-not-found]

SINGLES = 300


async def main() -> None:
    place, batches, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    client = iggy.IggyClient.from_connection_string(place)
    await client.connect()
    name = f"bench-{time.time_ns()}"
    await client.create_stream(name)
    await client.create_topic(name, "topic", 1)
    headers = {"carrier": "UA", "trace": "abcdefabcdef", "delay": iggy.HeaderValue.Int32(12)}
    messages = [iggy.SendMessage(b"x" * 100, headers) for _ in range(size)]
    where = iggy.Partitioning.partition_id(0)
    began_s = time.perf_counter()
    for _ in range(batches):
        await client.send_messages(name, "topic", where, messages)
    sent_s = time.perf_counter() - began_s
    began_s, count = time.perf_counter(), 0
    while count < batches * size:
        polled = await client.poll_messages(
            name,
            "topic",
            consumer=iggy.Consumer.Single(1),
            polling_strategy=iggy.PollingStrategy.Offset(count),
            count=size,
            auto_commit=False,
            partition_id=0,
        )
        count += len(polled)
    polled_s = time.perf_counter() - began_s
    waits_s = []
    for _ in range(SINGLES):
        began_s = time.perf_counter()
        await client.send_messages(name, "topic", where, messages[:1])
        waits_s.append(time.perf_counter() - began_s)
    waits_s.sort()
    rates = {"sent": batches * size / sent_s, "polled": batches * size / polled_s}
    print(json.dumps({**rates, "p50": waits_s[SINGLES // 2], "p99": waits_s[SINGLES * 99 // 100]}), flush=True)


asyncio.run(main())
os._exit(0)
