"""Somebody sets the machine's clock by a day while clients are connected: what lasts a moment lasts a moment."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.endpoints.kafka_frames import KafkaFrames
from tests.endpoints.nsq_client import NsqClient, pub, sized
from tests.endpoints.test_disk_faults import served
from tests.faults.faulty import FaultyDisk

DAY_S = 86_400
WAIT_S = 20.0
SHORT = ("broker.session_timeout_ms=3000", "broker.member_session_min_ms=3000", "broker.rebalance_delay_ms=0",
         "broker.transaction_timeout_ms=3000")  # fmt: skip


class WallClock:
    """The machine's clock, set back and forth."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0
        real_ns = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + self.ahead_s * 10**9)
        monkeypatch.setattr(time, "time", lambda: real_ns() / 1e9 + self.ahead_s)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("days", [1, -1], ids=["ahead", "back"])
@pytest.mark.turns(2)
def test_durations_do_not_follow_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    clock = WallClock(monkeypatch)

    def ask(endpoints: dict[str, str]) -> None:
        admin = f"http://{endpoints['admin']}"
        # -- before: one message in flight, one put off, one postponed; members of groups; a transaction
        reader = NsqClient(endpoints["nsqd_tcp"], msg_timeout=3000, heartbeat_interval=60_000)
        sender = NsqClient(endpoints["nsqd_tcp"])
        assert sender.ask(pub("t", b"held")) == b"OK"
        assert reader.ask(b"SUB t c\n") == b"OK"
        reader.send(b"RDY 10\n")
        held = reader.message()
        assert sender.ask(pub("t", b"put off")) == b"OK"
        put_off = reader.message()
        reader.send(b"REQ " + put_off.id + b" 3000\n")
        assert sender.ask(sized(b"DPUB t 3500\n", b"postponed")) == b"OK"

        kafka = KafkaFrames(endpoints["kafka"])
        member = {"group_id": "g", "session_timeout_ms": 3000, "rebalance_timeout_ms": 3000, "member_id": "",
                  "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
        joined = kafka.ask("JoinGroup", 2, **member)
        assert joined.error_code == 0
        httpx.post(f"{admin}/topics/default/n", json={"partitions": 1}).raise_for_status()
        httpx.post(f"{admin}/transactions", json={}).raise_for_status()
        httpx.post(f"{admin}/groups/n/join", json={"member": "m", "topics": ["n"]}).raise_for_status()

        asked_s = time.monotonic()
        clock.ahead_s = days * DAY_S
        # -- nothing comes early
        assert reader.quiet(0.3)
        assert kafka.ask("Heartbeat", 1, group_id="g", generation_id=joined.generation_id,
                         member_id=joined.member_id).error_code == 0  # fmt: skip
        httpx.post(f"{admin}/groups/n/heartbeat", json={"member": "m"}).raise_for_status()
        # -- and everything comes, in its order
        reader._socket.settimeout(WAIT_S)
        bodies = []
        for _ in range(3):
            kind, data = reader.frame(WAIT_S)
            assert kind == 2
            bodies.append(data[26:])
        assert time.monotonic() - asked_s >= 1
        assert sorted(bodies) == [b"held", b"postponed", b"put off"] and held.body == b"held"
        # the member has said nothing for its session
        until = time.monotonic() + WAIT_S
        while kafka.ask("DescribeGroups", 0, groups=["g"]).groups[0].members:
            assert time.monotonic() < until
            time.sleep(0.05)
        while httpx.get(f"{admin}/groups/native/n").json()["members"]:
            assert time.monotonic() < until
            time.sleep(0.05)
        # the transaction was open for too long
        while "lading_broker_transactions_open 0.0" not in httpx.get(f"{admin}/metrics").text:
            assert time.monotonic() < until
            time.sleep(0.05)
        for one in (reader, sender, kafka):
            one.close()

    served(tmp_path / "data", FaultyDisk(), ask, *SHORT)
