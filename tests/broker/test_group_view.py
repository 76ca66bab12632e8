"""Groups of all protocols in one list, each with its lag."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lading.broker.core.position import StoredPosition
from lading.broker.group_view import PartitionLag
from lading.broker.iggy.poll import Next
from lading.broker.kafka.group_coordinator import MemberCall
from lading.runtime.turns import finish_in_turns
from tests.broker.room import GROUP, NOW, fill, opened, topic_of
from tests.broker.test_coordinated_groups import stable


def test_each_protocol_counts_in_its_own_terms(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker, partitions=2)
    partition = topic.partition(0)
    fill(broker, partition, 10)
    broker.groups.create(topic, 1)
    broker.groups.join(topic, 1, 77)
    broker.poller.poll(topic, GROUP, 77, 0, Next(), 3, True, max_bytes=1 << 20, now_us=NOW)
    broker.native_groups.join("ops", "m", [topic], now_us=NOW)
    broker.native_groups.store_position("ops", partition, 4, None, 1, now_us=NOW)
    stable(broker.coordinated_groups, 2)
    broker.coordinated_groups.admit(MemberCall("alone", "", -1), now_us=NOW)
    broker.coordinated_groups.store("alone", partition, StoredPosition(8, None, None, NOW))
    found = {(view.protocol, view.name): view for view in asyncio.run(finish_in_turns(broker.group_views.list_all()))}
    assert list(found) == [("iggy", "s.t/1"), ("kafka", "alone"), ("kafka", "g"), ("native", "ops")]
    assert {name: (view.lag, len(view.members), view.state) for (_, name), view in found.items()} == {
        "s.t/1": (7, 1, "Stable"),
        "alone": (2, 0, "Empty"),
        "g": (0, 2, "Stable"),
        "ops": (6, 1, "Stable"),
    }
    assert found["native", "ops"].progress == [PartitionLag("s.t", 0, 4, 10, 6)]
