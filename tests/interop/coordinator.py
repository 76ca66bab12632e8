"""One conversation with a coordinator in raw requests: what it answers to right, wrong and late ones, as plain data.

Names and ids that a server chooses are replaced by the order in which they came.
"""

from __future__ import annotations

import socket
import struct
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from lading.broker.kafka.append import BatchSequence
from lading.dialects.kafka import commands, requests
from lading.dialects.kafka import versions as v
from tests.broker.kafka_batches import record_batch

TIMEOUT_S = 30.0
SUBSCRIPTION = struct.pack(">hih4si", 0, 1, 4, b"talk", -1)
"""What a consumer says of itself: version 0, the topics it reads, no data of its own. A real broker looks into it."""


class Talk:
    """A connection to a broker at ``address``; ``said`` is what it answered, step by step."""

    def __init__(self, address: str, topic: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._names: dict[Any, str] = {}
        self.topic = topic
        self.said: list[list[Any]] = []

    def close(self) -> None:
        self._socket.close()

    def ask(self, api: int, version: int, /, **fields: Any) -> Any:
        """The decoded answer."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            request = requests._build_container(requests._message_class(api, "Request"), version, fields)
            request.with_header(correlation_id=7, client_id="talk")
            self._socket.sendall(bytes(request.encode(header=True, framed=True)))
            return requests._message_class(api, "Response").decode(self._frame(), version=version, header=True)

    def _frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._take(4))
        return self._take(size)

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the broker has closed the connection"
            data += more
        return data

    def named(self, value: Any, kind: str) -> Any:
        """A stable name for what the server chose."""
        if value in ("", None, -1):
            return value
        known = [one for one in self._names.values() if one.startswith(kind)]
        return self._names.setdefault((kind, value), f"{kind}{len(known) + 1}")

    def note(self, step: str, *outcome: Any) -> None:
        self.said.append([step, *outcome])

    def coordinated(self, name: str, kind: int) -> None:
        """Wait until somebody coordinates this group (0) or transaction (1): a real broker makes topics for it."""
        until = time.monotonic() + TIMEOUT_S
        while self.ask(v.FIND_COORDINATOR, 2, key=name, key_type=kind).error_code or self._loading(name, kind):
            assert time.monotonic() < until
            time.sleep(0.1)

    def _loading(self, name: str, kind: int) -> bool:
        if kind == 0:
            answer = self.ask(v.HEARTBEAT, 3, group_id=name, member_id="m", generation_id=1, group_instance_id=None)
        else:
            answer = self.ask(
                v.ADD_OFFSETS_TO_TXN, 3, transactional_id=name, producer_id=1, producer_epoch=1, group_id="g"
            )
        return answer.error_code in (14, 15, 16)

    def settled(self, ask: Callable[[], int]) -> int:
        """The code of a request, asked again while a real coordinator ends the transaction before on its own time."""
        until = time.monotonic() + TIMEOUT_S
        while (code := ask()) in (14, 15, 16, 51):
            assert time.monotonic() < until
            time.sleep(0.05)
        return code

    # -- groups

    def join(
        self,
        step: str,
        group: str,
        member: str = "",
        version: int = 5,
        *,
        instance: str | None = None,
        kind: str = "consumer",
        protocols: Sequence[tuple[str, bytes]] = (("range", SUBSCRIPTION),),
        session_ms: int = 10_000,
    ) -> Any:
        got = self.ask(
            v.JOIN_GROUP, version, group_id=group, member_id=member, group_instance_id=instance, protocol_type=kind,
            session_timeout_ms=session_ms, rebalance_timeout_ms=10_000,
            protocols=[{"name": name, "metadata": data} for name, data in protocols],
        )  # fmt: skip
        members = [[self.named(one.member_id, "m"), one.group_instance_id, one.metadata.hex()] for one in got.members]
        self.note(
            step, got.error_code, got.generation_id, got.protocol_name or "", self.named(got.leader, "m"),
            self.named(got.member_id, "m"), members,
        )  # fmt: skip
        return got

    def sync(self, step: str, group: str, member: str, generation: int, version: int = 3, **more: Any) -> None:
        fields: dict[str, Any] = {"assignments": [], "protocol_type": "consumer", "protocol_name": "range"} | more
        got = self.ask(v.SYNC_GROUP, version, group_id=group, member_id=member, generation_id=generation, **fields)
        self.note(step, got.error_code, got.assignment.decode())

    def heartbeat(self, step: str, group: str, member: str, generation: int, instance: str | None = None) -> None:
        got = self.ask(
            v.HEARTBEAT, 3, group_id=group, member_id=member, generation_id=generation, group_instance_id=instance
        )
        self.note(step, got.error_code)

    def leave(self, step: str, group: str, *members: tuple[str, str | None]) -> None:
        identities = [{"member_id": member, "group_instance_id": instance} for member, instance in members]
        got = self.ask(v.LEAVE_GROUP, 3, group_id=group, members=identities)
        self.note(step, got.error_code, [one.error_code for one in got.members])

    def commit(
        self,
        step: str,
        group: str,
        member: str,
        generation: int,
        *,
        topic: str = "",
        text: str = "text",
        offset: int = 5,
    ) -> None:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 3}
        topics = [{"name": topic or self.topic, "partitions": [partition | {"committed_metadata": text}]}]
        got = self.ask(
            v.OFFSET_COMMIT, 7, group_id=group, member_id=member, generation_id_or_member_epoch=generation,
            group_instance_id=None, topics=topics,
        )  # fmt: skip
        self.note(step, got.topics[0].partitions[0].error_code)

    def fetch(self, step: str, group: str, version: int, *, every: bool = False, stable: bool = False) -> None:
        topics = None if every else [{"name": self.topic, "partition_indexes": [0, 1]}]
        if version < 8:
            got = self.ask(v.OFFSET_FETCH, version, group_id=group, topics=topics, require_stable=stable)
            found, error = got.topics, got.error_code
        else:
            groups = [{"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1}]
            got = self.ask(v.OFFSET_FETCH, version, groups=groups, require_stable=stable).groups[0]
            found, error = got.topics, got.error_code
        rows = [
            [one.partition_index, one.committed_offset, one.metadata, one.error_code]
            for topic in found
            for one in topic.partitions
        ]
        self.note(step, error, sorted(rows))

    def describe(self, step: str, group: str, version: int = 5) -> None:
        (got,) = self.ask(v.DESCRIBE_GROUPS, version, groups=[group], include_authorized_operations=False).groups
        members = [[one.member_metadata.hex(), one.member_assignment.decode()] for one in got.members]
        self.note(step, got.error_code, got.group_state, got.protocol_type, got.protocol_data, members)

    def delete(self, step: str, group: str) -> None:
        (got,) = self.ask(v.DELETE_GROUPS, 2, groups_names=[group]).results
        self.note(step, got.error_code)

    # -- producers

    def init(
        self, step: str, name: str | None, version: int = 4, *, timeout_ms: int = 60_000, known: Any = None
    ) -> Any:
        identity = known or (-1, -1)
        fields = {"transactional_id": name, "producer_id": identity[0], "producer_epoch": identity[1]}
        got: Any = None

        def ask() -> int:
            nonlocal got
            got = self.ask(v.INIT_PRODUCER_ID, version, transaction_timeout_ms=timeout_ms, **fields)
            return int(got.error_code)

        self.note(step, self.settled(ask), self.named(got.producer_id, "p"), got.producer_epoch)
        return got.producer_id, got.producer_epoch

    def add(self, step: str, name: str, who: Any, topics: Sequence[str] = (), version: int = 3) -> None:
        wanted = topics or (self.topic,)
        codes: dict[str, list[int]] = {}

        def ask() -> int:
            got = self.ask(
                v.ADD_PARTITIONS_TO_TXN, version, v3_and_below_transactional_id=name, v3_and_below_producer_id=who[0],
                v3_and_below_producer_epoch=who[1],
                v3_and_below_topics=[{"name": one, "partitions": [0]} for one in wanted],
            )  # fmt: skip
            for one in got.results_by_topic_v3_and_below:
                codes[one.name] = [part.partition_error_code for part in one.results_by_partition]
            return codes[self.topic][0]

        self.settled(ask)
        self.note(step, [codes[one] for one in wanted])

    def add_group(self, step: str, name: str, who: Any, group: str, version: int = 3) -> None:
        fields = {"transactional_id": name, "producer_id": who[0], "producer_epoch": who[1], "group_id": group}
        code = self.settled(lambda: self.ask(v.ADD_OFFSETS_TO_TXN, version, **fields).error_code)
        self.note(step, code)

    def commit_later(
        self, step: str, name: str, who: Any, group: str, *, offset: int, member: str = "", generation: int = -1
    ) -> None:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
        got = self.ask(
            v.TXN_OFFSET_COMMIT, 3, transactional_id=name, group_id=group, producer_id=who[0], producer_epoch=who[1],
            generation_id=generation, member_id=member, group_instance_id=None,
            topics=[{"name": self.topic, "partitions": [partition | {"committed_metadata": "tx"}]}],
        )  # fmt: skip
        self.note(step, got.topics[0].partitions[0].error_code)

    def end(self, step: str, name: str, who: Any, committed: bool, version: int = 3) -> None:
        fields = {"transactional_id": name, "producer_id": who[0], "producer_epoch": who[1], "committed": committed}
        self.note(step, self.settled(lambda: self.ask(v.END_TXN, version, **fields).error_code))

    def produce(self, step: str, who: Any, sequence: int, count: int = 1, *, name: str | None = None) -> None:
        batch = record_batch([b"x"] * count, BatchSequence(who[0], who[1], sequence, count, name is not None))
        head = commands.encode_produce(7, "talk", self.topic, 0, len(batch), timeout_ms=10_000, transactional_id=name)
        self._socket.sendall(head + batch)
        got = commands.parse_produce(memoryview(self._frame()))
        self.note(step, got.error, got.base_offset)


def converse(address: str, topic: str, suffix: str) -> list[list[Any]]:
    """All of it, with groups and names that end in ``suffix``; the topic has two empty partitions."""
    talk = Talk(address, topic)
    try:
        for kind, names in enumerate(((f"g{suffix}", f"i{suffix}", f"tg{suffix}", f"g{suffix}-none"), (f"t{suffix}",))):
            for name in names:
                talk.coordinated(name, kind)
        _groups(talk, f"g{suffix}")
        _instances(talk, f"i{suffix}")
        _numbers(talk)
        _transactions(talk, f"t{suffix}", f"tg{suffix}")
    finally:
        talk.close()
    return talk.said


def _groups(talk: Talk, group: str) -> None:
    talk.heartbeat("heartbeat without a group", group, "nobody", 1)
    talk.describe("describe without a group", group)
    talk.join("join with an empty group", "")
    talk.join("join with a short session", group, session_ms=1)
    talk.join("join without a protocol", group, protocols=())
    talk.join("join with a name nobody gave", group, "nobody")
    named = talk.join("join without a name", group)
    first = talk.join("join by name", group, named.member_id)
    me, generation = first.member_id, first.generation_id
    talk.heartbeat("heartbeat before sync", group, me, generation)
    talk.commit("commit before sync", group, me, generation)
    talk.sync("sync of an old generation", group, me, generation - 1)
    talk.sync("sync of nobody", group, "nobody", generation)
    talk.sync("sync of another protocol", group, me, generation, 5, protocol_name="sticky")
    talk.sync("sync of another type", group, me, generation, 5, protocol_type="connect")
    work = [{"member_id": me, "assignment": b"work"}]
    talk.sync("sync of the leader", group, me, generation, 5, assignments=work)
    talk.sync("sync again", group, me, generation)
    talk.describe("describe", group)
    talk.heartbeat("heartbeat", group, me, generation)
    talk.heartbeat("heartbeat of an old generation", group, me, generation - 1)
    talk.heartbeat("heartbeat of nobody", group, "nobody", generation)
    talk.heartbeat("heartbeat of an unknown instance", group, me, generation, "instance")
    talk.join("join of another type", group, kind="connect")
    talk.join("join with nothing in common", group, protocols=(("sticky", SUBSCRIPTION),))
    talk.fetch("positions before there are any", group, 5)
    talk.commit("commit", group, me, generation)
    talk.commit("commit of an old generation", group, me, generation - 1)
    talk.commit("commit of nobody", group, "nobody", generation)
    talk.commit("commit alone beside members", group, "", -1)
    talk.commit("commit to no topic", group, me, generation, topic="no-such-topic")
    talk.commit("commit with a long text", group, me, generation, text="x" * 4097)
    for version in (1, 2, 5, 7, 8, 9):
        talk.fetch(f"positions, version {version}", group, version)
    for version in (2, 7, 8):
        talk.fetch(f"all positions, version {version}", group, version, every=True)
    talk.fetch("positions without a group", group + "-none", 7)
    talk.delete("delete with members", group)
    talk.delete("delete without a group", group + "-none")
    again = talk.join("leader joins again", group, me)
    talk.sync("sync after it", group, me, again.generation_id, assignments=[{"member_id": me, "assignment": b"more"}])
    talk.leave("leave of nobody", group, ("nobody", None))
    talk.leave("leave", group, (me, None))
    talk.leave("leave again", group, (me, None))
    talk.describe("describe when empty", group)
    talk.heartbeat("heartbeat after leaving", group, me, again.generation_id)
    talk.join("join after leaving", group, me)
    talk.commit("commit after leaving", group, me, again.generation_id)
    talk.commit("commit alone", group, "", -1, offset=9)
    talk.fetch("positions at the end", group, 7)
    talk.delete("delete", group)
    talk.fetch("positions after delete", group, 7)


def _instances(talk: Talk, group: str) -> None:
    first = talk.join("instance joins", group, instance="a")
    me, generation = first.member_id, first.generation_id
    talk.sync("instance syncs", group, me, generation, assignments=[{"member_id": me, "assignment": b"work"}])
    again = talk.join("instance is started again", group, instance="a")
    talk.heartbeat("heartbeat of the former", group, me, generation, "a")
    talk.sync("sync of the former", group, me, generation, group_instance_id="a")
    talk.sync("sync of the new one", group, again.member_id, generation, group_instance_id="a")
    skipping = talk.join("again, and it may be told to skip", group, version=9, instance="a")
    talk.join("join of the former", group, me, instance="a")
    talk.leave("leave of an unknown instance", group, ("", "b"))
    talk.leave("leave of the former", group, (me, "a"))
    talk.leave("leave by instance", group, ("", "a"))
    talk.heartbeat("heartbeat after that", group, skipping.member_id, generation, "a")


def _numbers(talk: Talk) -> None:
    who = talk.init("id without a name", None)
    talk.produce("first batch", who, 0, 2)
    talk.produce("second batch", who, 2, 3)
    talk.produce("second batch again", who, 2, 3)
    talk.produce("first batch again", who, 0, 2)
    talk.produce("gap", who, 9)
    talk.produce("part of a batch", who, 3)
    talk.produce("a later epoch in the middle", (who[0], who[1] + 1), 5)
    talk.produce("a later epoch", (who[0], who[1] + 1), 0)
    talk.produce("the epoch before", who, 5)
    stranger = talk.init("another id", None)
    talk.produce("begins in the middle", stranger, 77)


def _transactions(talk: Talk, name: str, group: str) -> None:
    talk.init("empty name", "")
    talk.init("no time", name, timeout_ms=0)
    talk.init("too much time", name, timeout_ms=3_600_000)
    who = talk.init("name", name)
    wrong = (who[0], who[1] + 1)
    talk.end("commit of nothing", name, who, True)
    talk.add("partitions of a later epoch", name, wrong)
    talk.add("partitions of another id", name, (who[0] + 500, 0))
    talk.add("partitions of no name", name + "-none", who)
    talk.add("a topic that is not there", name, who, (talk.topic, "no-such-topic"))
    talk.add("partitions", name, who)
    talk.produce("in the transaction", who, 0, name=name)
    talk.end("commit of a later epoch", name, wrong, True)
    talk.end("commit", name, who, True)
    talk.end("commit again", name, who, True)
    talk.end("abort after commit", name, who, False)
    talk.add_group("positions are to come", name, who, group)
    talk.commit_later("positions of an unknown generation", name, who, group, offset=1, member="m", generation=3)
    talk.commit_later("positions", name, who, group, offset=7)
    talk.fetch("stable positions, open", group, 7, stable=True)
    talk.fetch("positions, open", group, 7)
    talk.end("abort", name, who, False)
    talk.add_group("positions are to come again", name, who, group)
    talk.fetch("stable positions, aborted", group, 7, stable=True)
    talk.commit_later("positions again", name, who, group, offset=8)
    talk.end("commit with positions", name, who, True)
    talk.add("the next one", name, who)
    talk.end("and its abort", name, who, False)
    talk.fetch("stable positions, committed", group, 7, stable=True)
    next_ = talk.init("known identity", name, known=who)
    talk.init("known identity again", name, known=who)
    talk.add("begin before somebody takes over", name, next_)
    talk.produce("to be lost", next_, 0, name=name)
    newest = talk.init("somebody takes over", name)
    talk.init("identity that is over", name, known=who)
    talk.init("identity that is over, version 3", name, 3, known=who)
    for version in (0, 1, 2, 3):
        talk.add(f"partitions of who was shut out, version {version}", name, next_, version=version)
        talk.add_group(f"group of who was shut out, version {version}", name, next_, group, version)
        talk.end(f"end of who was shut out, version {version}", name, next_, True, version)
    talk.commit_later("positions of who was shut out", name, next_, group, offset=1)
    talk.produce("batch of who was shut out", next_, 1, name=name)
    talk.add("the next one goes on", name, newest)
    talk.produce("and writes", newest, 0, name=name)
    talk.end("and commits", name, newest, True)
