"""Share groups: what a message costs from the log to a member and accepted, without sockets.

Members take and accept 500 at a time, Kafka's ``max.poll.records``; the position is stored after each acceptance, as
before each response, without a sync. The last row is a subscriber of the channel, as ``channels`` measures it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.channels import NOW_US, _case, _filled
from bench.measure import rounds
from lading.broker.broker import Broker
from lading.broker.share_sessions import ACCEPT, AcknowledgementBatch
from lading.dialects.kafka import batch_slicing
from lading.kernels import engine
from lading.runtime.turns import finish

QUESTION = "share groups: ns a message, from the log to a member and accepted; 100 B + 3 headers, durability os"
TAKEN = 500
GROUP = "bench"


def run(quick: bool) -> list[dict[str, Any]]:
    """One row a case."""
    messages = 100_000 if quick else 1_000_000
    count = 3 if quick else 5
    for room in ("broker.channels.kernels", "dialects.nsq.survey_kernels", "dialects.nsq.delivery_kernels"):
        engine.load(f"lading.{room}")
    with tempfile.TemporaryDirectory(prefix="lading-bench-") as directory:
        broker = _filled(Path(directory), messages)
        cases = [
            ("1 member", _share(broker, 1, messages)),
            ("4 members", _share(broker, 4, messages)),
            ("a channel's subscriber", _case(broker, [""], TAKEN, messages)),
        ]
        rows = []
        for name, case in cases:
            took_ns = rounds(case, count) / messages * 1e9
            rows.append({"case": name, "ns a message": round(took_ns, 1), "M messages/s": round(1e3 / took_ns, 2)})
        broker.stop()
    return rows


def _share(broker: Broker, members_count: int, messages: int) -> Callable[[], None]:
    """The last ``messages`` through a share group of ``members_count`` members."""
    topic = broker.topology.topic("default", "t")
    sessions = broker.share_sessions

    def once() -> None:
        channel = finish(sessions.open_channel(GROUP, topic))
        channel.seek(0, topic.partition(0).log.last_stable_offset - messages)
        config = sessions.find_config(GROUP)
        members = [finish(sessions.open(GROUP, f"m{number}")) for number in range(members_count)]
        for member in members:
            member.add(channel, 0)
        accepted = 0
        while accepted < messages:
            for member in members:
                for reader in member.take(TAKEN, 1 << 24, config, NOW_US):
                    deliveries, reader.deliveries = reader.deliveries, []
                    if not deliveries:
                        continue
                    offsets = np.concatenate([delivery.offsets for delivery in deliveries])
                    for delivery in deliveries:
                        batch_slicing.slice_holding(delivery.page.run, delivery.offsets)
                    sessions.settle(reader, [AcknowledgementBatch(int(offsets[0]), int(offsets[-1]), [ACCEPT])], NOW_US)
                    broker.channels.store_marked()
                    accepted += len(offsets)
        for member in members:
            sessions.close(member)

    return once
