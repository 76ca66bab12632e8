"""A process that publishes to a topic and consumes it over a channel as fast as it can, and is killed.

One line on standard output for each thing that is certain: ``P first end`` published and acknowledged, ``I offset …``
about to be finished, ``F offset …`` finished and stored with where the channel is.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from random import Random

import numpy as np

from lading.broker.broker import Broker
from lading.broker.channels import Delivery, Subscriber
from lading.broker.core.settings import BrokerSettings
from lading.log.group_commit import SyncNow
from lading.model.errors import Refusal
from tests.broker.channel_room import put
from tests.broker.room import topic_of

TAGS = (None, "A", "B")


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def main(home: Path, seed: int) -> None:
    """Publish, deliver, finish, put off, come and go, until the end."""
    random = Random(seed)
    broker = Broker.open(home, BrokerSettings(segment_bytes=1 << 16), now_us=now_us(), commit=SyncNow())
    try:
        topic = broker.topology.topic("s", "t")
    except Refusal:
        topic = topic_of(broker)
    channel = broker.channels.open(topic, "c")
    partition = topic.partition(0)
    flying: dict[Subscriber, list[int]] = {}

    def join(tag: str) -> None:
        def take(delivery: Delivery) -> None:
            flying[subscriber].extend(delivery.offsets.tolist())

        subscriber = Subscriber(take, tag=tag, timeout_us=300_000)
        flying[subscriber] = []
        channel.subscribe(subscriber)
        subscriber.set_ready(random.choice((1, 10, 50)))

    for tag in ("", "A"):
        join(tag)
    # imports and first calls take their time
    put(broker, partition, b"first", now_us=now_us())
    broker.channels.pump(now_us())
    os.write(1, b"ready\n")
    finished: list[int] = []
    while True:
        tags = random.choices(TAGS, k=random.randint(1, 20))
        first = put(broker, partition, *(b"m" * random.randint(1, 200) for _ in tags), tags=tags, now_us=now_us())
        os.write(1, f"P {first} {first + len(tags)}\n".encode())
        broker.channels.pump(now_us())
        for subscriber, offsets in list(flying.items()):
            random.shuffle(offsets)
            cut = random.randint(0, len(offsets))
            done, flying[subscriber] = offsets[:cut], offsets[cut:]
            if done:
                os.write(1, ("I " + " ".join(map(str, done)) + "\n").encode())
            for offset in done:
                if random.random() < 0.05:
                    try:
                        channel.requeue(subscriber, 0, offset, random.choice((0, 20_000)), now_us=now_us())
                    except Refusal:
                        continue  # its time was over
                elif channel.finish(subscriber, 0, np.array([offset], np.int64)):
                    finished.append(offset)
            if random.random() < 0.02:
                channel.leave(subscriber)
                del flying[subscriber]
                join(subscriber.tag)
        broker.tick(now_us())
        if random.random() < 0.2:
            broker.channels.store(now_us())
            os.write(1, ("F " + " ".join(map(str, finished)) + "\n").encode())
            finished.clear()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
