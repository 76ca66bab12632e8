"""How long an honest client waits beside each request whose work grows with topics, partitions, groups or clients.

Two honest clients, an Iggy ping and a Kafka ApiVersions, ask again and again while one other client asks for
something large. The figure is the longest that either waited, without the time in which the machine gave the broker's
loop or the client itself no core though it wanted one; ``wall ms`` has that time in it. ``idle ms`` is the longest wait
in as long a time right behind it, in which nothing large is asked: what is the machine's, and not the request's.
``loop ms`` is the longest that the broker's loop computed while an honest client waited: what others did to it, also on
a machine that is busy, or whose host takes cores away unnoticed, where ``wait ms`` is long beside nothing.

``python -m bench.others_wait PATTERN ... [--data DIRECTORY]`` asks only for cases whose names hold one of the patterns;
those that create something and those that need it belong together. ``--data`` keeps the topics for the next run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, TypeVar

import httpx

from bench._floods import ENCRYPTED_LISTENER, flood_cases, login_rows
from bench._nsq_frames import read_oks
from bench.measure import cpu_s, kernels_loaded, median
from lading import testing
from tests.endpoints.connection import Connection
from tests.endpoints.frames import Frames
from tests.endpoints.kafka_frames import KafkaFrames, one_batch, produce

QUESTION = "Longest wait of an honest client beside each large request; clean start with as many topics"
MANY = 1_000
START = "(a clean start)"
LOGINS = "(logins)"
PATIENCE_S = 300
REST_S = 0.0005
PING, STATS, GET_TOPIC, CREATE_TOPIC, DELETE_TOPIC, GET_TOPICS = 1, 10, 300, 302, 303, 301
GET_STREAM, GET_STREAMS, CREATE_PARTITIONS, DELETE_PARTITIONS, GET_CLIENTS = 200, 201, 402, 403, 22

ROWS = 100_000
REQUESTS_EACH = 128
"""As many as one Kafka connection may have under way."""
FETCH_NOW = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0}

Work = Callable[[], Any]
C = TypeVar("C", bound=Connection)


class HonestClients:
    """A process that asks for what costs nothing, and remembers the longest it waited."""

    def __init__(self, broker: testing.BrokerProcess) -> None:
        self._pipe, there = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=_ask_on, args=(dict(broker.endpoints), broker.pid, there), daemon=True
        )
        self._process.start()

    def longest_ms(self, work: Work) -> tuple[float, float, float]:
        """The longest wait while ``work`` went on: without time that no core was given, with it, the loop's part."""
        self._pipe.send("begin")
        self._pipe.recv()
        time.sleep(0.05)
        work()
        time.sleep(0.05)
        self._pipe.send("end")
        found: tuple[float, float, float] = self._pipe.recv()
        return found

    def close(self) -> None:
        """End the process, also amid a measurement that failed."""
        self._process.kill()
        self._process.join()


def _ask_on(endpoints: dict[str, str], pid: int, pipe: Pipe) -> None:
    iggy, kafka = Frames(endpoints["iggy_tcp"]), KafkaFrames(endpoints["kafka"])
    for one in (iggy, kafka):
        one.socket.settimeout(PATIENCE_S)
    frame = kafka.request("ApiVersions", 0)

    def ask_kafka() -> None:
        kafka.send(frame)
        kafka.answer()

    while pipe.recv():
        longest = wall = computed = 0.0
        pipe.send("begun")
        while not pipe.poll():
            for ask in (lambda: iggy.ask(PING), ask_kafka):
                without_core_s, loop_s = _without_core_s(pid), _loop_s(pid)
                began_s = time.perf_counter()
                ask()
                took_s = time.perf_counter() - began_s
                wall = max(wall, took_s)
                computed = max(computed, _loop_s(pid) - loop_s)
                longest = max(longest, took_s - (_without_core_s(pid) - without_core_s))
            time.sleep(REST_S)
        pipe.recv()
        pipe.send((longest * 1_000, wall * 1_000, computed * 1_000))


def _without_core_s(pid: int) -> float:
    """How long the broker's loop and this process have waited for a core so far."""
    schedules = (Path(f"/proc/{pid}/schedstat"), Path("/proc/self/schedstat"))
    return sum(int(each.read_text().split()[1]) for each in schedules) / 1e9


def _loop_s(pid: int) -> float:
    """How long the broker's first thread, its loop, has computed so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


class Cases:
    """The large requests, by name."""

    def __init__(self, broker: testing.BrokerProcess, stack: ExitStack) -> None:
        self._broker = broker
        self._stack = stack
        self._http = stack.enter_context(httpx.Client(timeout=PATIENCE_S))

    @cached_property
    def _iggy(self) -> Frames:
        return self._patient(Frames(self._broker.endpoints["iggy_tcp"]))

    @cached_property
    def _kafka(self) -> KafkaFrames:
        return self._patient(KafkaFrames(self._broker.endpoints["kafka"]))

    @cached_property
    def _nsqd(self) -> socket.socket:
        nsqd = socket.create_connection(_place(self._broker.endpoints["nsqd_tcp"]), PATIENCE_S)
        nsqd.sendall(b"  V2")
        return self._stack.enter_context(nsqd)

    def _patient(self, connection: C) -> C:
        connection.socket.settimeout(PATIENCE_S)
        self._stack.callback(connection.close)
        return connection

    def all(self) -> Iterator[tuple[str, Work]]:
        """Each case; those that create something also delete it, in the order in which they come."""
        yield from self._admin()
        yield from self._iggy_cases()
        yield from self._kafka_lists()
        yield from self._kafka_changes()
        yield from self._kafka_rows()
        yield from self._kafka_waiting()
        yield from self._nsq()

    def _get(self, endpoint: str, path: str) -> Work:
        return lambda: self._ask(endpoint, "GET", path)

    def _ask(self, endpoint: str, method: str, path: str, **body: Any) -> None:
        answer = self._http.request(method, f"http://{self._broker.endpoints[endpoint]}{path}", **body)
        assert answer.status_code < 300, (path, answer.status_code, answer.text[:200])

    def _admin(self) -> Iterator[tuple[str, Work]]:
        for path in ("/metrics", "/health", "/streams", "/topics", "/groups"):
            yield f"admin GET {path}", self._get("admin", path)
        yield "admin GET a group of all partitions", self._get("admin", "/groups/kafka/g0")
        place = "/topics/default/admin-many"
        yield f"admin POST a topic of {MANY}", lambda: self._ask("admin", "POST", place, json={"partitions": MANY})
        yield f"admin GET a topic of {MANY}", self._get("admin", place)
        yield f"admin GET states of a topic of {MANY}", self._get("admin", f"{place}/states")
        yield f"admin GET retention of a topic of {MANY}", self._get("admin", f"{place}/retention")
        yield f"admin DELETE a topic of {MANY}", lambda: self._ask("admin", "DELETE", place)

    def _iggy_ask(self, code: int, payload: bytes = b"") -> Work:
        def work() -> None:
            status, _ = self._iggy.ask(code, payload)
            assert status == 0, (code, status)

        return work

    def _iggy_cases(self) -> Iterator[tuple[str, Work]]:
        stream = struct.pack("<BBI", 1, 4, 0xFFFF_FFFF)
        topic = stream + b"\x02\x09iggy-many"
        yield "Iggy stats", self._iggy_ask(STATS)
        yield "Iggy get_streams", self._iggy_ask(GET_STREAMS)
        yield "Iggy get_stream", self._iggy_ask(GET_STREAM, stream)
        yield "Iggy get_topics", self._iggy_ask(GET_TOPICS, stream)
        yield "Iggy get_clients", self._iggy_ask(GET_CLIENTS)
        half = MANY // 2
        create = stream + struct.pack("<II", 900_000, half) + b"iggy-many"
        yield f"Iggy create_topic of {half}", self._iggy_ask(CREATE_TOPIC, create)
        yield f"Iggy create_partitions, {half}", self._iggy_ask(CREATE_PARTITIONS, topic + struct.pack("<I", half))
        yield f"Iggy get_topic of {MANY}", self._iggy_ask(GET_TOPIC, topic)
        yield f"Iggy delete_partitions, {half}", self._iggy_ask(DELETE_PARTITIONS, topic + struct.pack("<I", half))
        yield f"Iggy delete_topic of {half}", self._iggy_ask(DELETE_TOPIC, topic)
        yield "Iggy HTTP GET stats", self._get("iggy_http", "/stats")
        yield "Iggy HTTP GET a stream", self._get("iggy_http", "/streams/default")
        yield "Iggy HTTP GET topics", self._get("iggy_http", "/streams/default/topics")
        create_document = {"topic_id": 900_001, "partitions_count": MANY, "name": "iggy-http"}
        place = "/streams/default/topics"
        yield (
            f"Iggy HTTP POST a topic of {MANY}",
            lambda: self._ask("iggy_http", "POST", place, json=create_document),
        )
        yield f"Iggy HTTP DELETE a topic of {MANY}", lambda: self._ask("iggy_http", "DELETE", f"{place}/iggy-http")

    def _kafka_ask(self, name: str, version: int, **fields: Any) -> Work:
        # encoded before, so that this process does not take the second core meanwhile
        frame = self._kafka.request(name, version, **fields)

        def work() -> None:
            self._kafka.send(frame)
            self._kafka.answer()

        return work

    def _kafka_lists(self) -> Iterator[tuple[str, Work]]:
        kafka = self._kafka
        rows = kafka.ask("Metadata", 1, topics=None).topics
        names = [row.name for row in rows]
        places = {row.name: range(len(row.partitions)) for row in rows}
        yield "Kafka Metadata of all", self._kafka_ask("Metadata", 9, topics=None, allow_auto_topic_creation=False)
        yield (
            "Kafka Metadata by name",
            self._kafka_ask("Metadata", 9, topics=[{"name": name} for name in names], allow_auto_topic_creation=False),
        )
        yield "Kafka ListGroups", self._kafka_ask("ListGroups", 2)
        groups = [f"g{number}" for number in range(MANY)]
        yield f"Kafka DescribeGroups, {MANY}", self._kafka_ask("DescribeGroups", 1, groups=groups)
        yield (
            "Kafka DescribeConfigs of all",
            self._kafka_ask(
                "DescribeConfigs", 1, include_synonyms=True,
                resources=[{"resource_type": 2, "resource_name": one, "configuration_keys": None} for one in names],
            ),
        )  # fmt: skip
        yield "Kafka DescribeLogDirs of all", self._kafka_ask("DescribeLogDirs", 1, topics=None)
        yield "Kafka OffsetFetch of all", self._kafka_ask("OffsetFetch", 5, group_id="g0", topics=None)
        numbers = [{"name": name, "partition_indexes": list(places[name])} for name in names]
        yield "Kafka OffsetFetch by name", self._kafka_ask("OffsetFetch", 5, group_id="g0", topics=numbers)
        latest = [
            {"name": name, "partitions": [{"partition_index": one, "timestamp": -1} for one in places[name]]}
            for name in names
        ]
        yield (
            "Kafka ListOffsets of all",
            self._kafka_ask("ListOffsets", 2, replica_id=-1, isolation_level=0, topics=latest),
        )
        commits = [
            {"name": name, "partitions": [{"partition_index": one, "committed_offset": 0} for one in places[name]]}
            for name in names
        ]
        commit = {"group_id": "g0", "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
        yield "Kafka OffsetCommit of all", self._kafka_ask("OffsetCommit", 2, **commit, topics=commits)
        deletes = [
            {"name": name, "partitions": [{"partition_index": one} for one in places[name]]} for name in names[:500]
        ]
        yield "Kafka OffsetDelete of 500 topics", self._kafka_ask("OffsetDelete", 0, group_id="g0", topics=deletes)
        yield f"Kafka DeleteGroups, {MANY}", self._kafka_ask("DeleteGroups", 0, groups_names=groups)
        fetch = [
            {
                "topic": name,
                "partitions": [
                    {"partition": one, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for one in places[name]
                ],
            }
            for name in names
        ]
        wait = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0}
        yield "Kafka Fetch of all", self._kafka_ask("Fetch", 4, **wait, topics=fetch)

    def _kafka_changes(self) -> Iterator[tuple[str, Work]]:
        def create(names: list[str], partitions: int) -> Work:
            rows = [
                {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
                for name in names
            ]
            return self._kafka_ask("CreateTopics", 4, topics=rows, timeout_ms=60_000, validate_only=False)

        few, many = [f"few-{one}" for one in range(4)], [f"many-{one}" for one in range(400)]
        yield f"Kafka CreateTopics 4 x {MANY}", create(few, MANY)
        yield f"Kafka DeleteTopics 4 x {MANY}", self._kafka_ask("DeleteTopics", 1, topic_names=few, timeout_ms=60_000)
        yield "Kafka CreateTopics 400 x 1", create(many, 1)
        more = {"topics": [{"name": many[0], "count": MANY, "assignments": None}], "timeout_ms": 60_000}
        yield f"Kafka CreatePartitions to {MANY}", self._kafka_ask("CreatePartitions", 0, **more, validate_only=False)
        configs = [{"name": "retention.ms", "value": "60000"}]
        resources = [{"resource_type": 2, "resource_name": name, "configs": configs} for name in many]
        yield "Kafka AlterConfigs of 400", self._kafka_ask("AlterConfigs", 0, resources=resources, validate_only=False)
        yield "Kafka DeleteTopics 400 x 1", self._kafka_ask("DeleteTopics", 1, topic_names=many, timeout_ms=60_000)
        missing = [{"name": f"auto-{one}"} for one in range(100)]
        yield (
            "Kafka Metadata, 100 made",
            self._kafka_ask("Metadata", 4, topics=missing, allow_auto_topic_creation=True),
        )

    def _kafka_rows(self) -> Iterator[tuple[str, Work]]:
        keys = [f"key-{number}" for number in range(ROWS)]
        yield f"Kafka FindCoordinator, {ROWS}", self._kafka_ask("FindCoordinator", 4, key_type=0, coordinator_keys=keys)
        for rows_count in (ROWS, 10 * ROWS):
            # encoded by hand: the library takes seconds for it
            head = struct.pack(">hhih", 2, 2, 7, -1) + struct.pack(">ibi", -1, 0, 1) + struct.pack(">h", 2) + b"t0"
            rows = b"".join(struct.pack(">iq", number, -1) for number in range(rows_count))
            frame = head + struct.pack(">i", rows_count) + rows
            yield f"Kafka ListOffsets of {rows_count} rows, six at once", partial(self._ask_together, frame, 6)
        places = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1} for number in range(ROWS)]
        yield f"Kafka Fetch of {ROWS} rows", self._kafka_ask("Fetch", 4, **FETCH_NOW, topics=[_fetched("t0", places)])
        batches = [{"index": number, "records": one_batch(b"x")} for number in range(ROWS // 10)]
        yield (
            f"Kafka Produce of {ROWS // 10} partitions",
            self._kafka_ask("Produce", 7, acks=-1, timeout_ms=1_000,
                            topic_data=[{"name": "t0", "partition_data": batches}]),
        )  # fmt: skip

    def _ask_together(self, frame: bytes, count: int) -> None:
        """Send a frame on several connections, and wait until each has its response or is closed."""
        with ExitStack() as stack:
            clients = [self._kafka_client(stack) for _ in range(count)]
            for client in clients:
                client.send(frame)
            for client in clients:
                with suppress(ConnectionError):
                    client.answer()

    def _kafka_client(self, stack: ExitStack) -> KafkaFrames:
        client = KafkaFrames(self._broker.endpoints["kafka"])
        client.socket.settimeout(PATIENCE_S)
        stack.callback(client.close)
        return client

    def _kafka_waiting(self) -> Iterator[tuple[str, Work]]:
        place = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
        wait = {**FETCH_NOW, "max_wait_ms": 120_000, "min_bytes": 1}
        for clients_count, name in ((125, "woken by one message"), (500, "whose clients leave together")):
            # an empty topic for each of the two
            topic = f"waiting-{clients_count}"
            row = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            self._kafka.ask("CreateTopics", 4, topics=[row], timeout_ms=60_000, validate_only=False)
            frame = self._kafka.request("Fetch", 4, **wait, topics=[_fetched(topic, place)])
            with ExitStack() as stack:
                clients = [self._kafka_client(stack) for _ in range(clients_count)]
                for client in clients:
                    client.socket.sendall((struct.pack(">i", len(frame)) + frame) * REQUESTS_EACH)
                time.sleep(2)
                fields = produce(topic, one_batch(b"x"))
                wake = self._kafka_ask("Produce", 7, **fields) if clients_count == 125 else stack.close
                yield f"Kafka {clients_count * REQUESTS_EACH} fetches {name}", partial(_rest_after, wake)

    def _nsq(self) -> Iterator[tuple[str, Work]]:
        for path in ("/stats", "/stats?format=json"):
            yield f"nsqd GET {path}", self._get("nsqd_http", path)
        for path in ("/topics", "/topics?metaInfo=true", "/nodes", "/lookup?topic=t0"):
            yield f"nsqlookupd GET {path}", self._get("nsqlookupd_http", path)
        place = "/topic/create?topic=nsq-many&partition_num=250&replicator=1"
        yield "nsqlookupd POST a topic of 250", lambda: self._ask("nsqlookupd_http", "POST", place)
        delete = "/topic/delete?topic=nsq-many&partition=**"
        yield "nsqlookupd POST delete of 250", lambda: self._ask("nsqlookupd_http", "POST", delete)
        yield "nsqd HTTP POST 20 topics", self._create_by_nsqd
        pubs = b"".join(b"PUB p%d\n" % one + struct.pack(">i", 1) + b"x" for one in range(100))
        yield "nsqd 100 PUB to new topics", lambda: self._publish(pubs, 100)

    def _create_by_nsqd(self) -> None:
        for number in range(20):
            self._ask("nsqd_http", "POST", f"/topic/create?topic=h{number}")

    def _publish(self, data: bytes, count: int) -> None:
        self._nsqd.sendall(data)
        read_oks(self._nsqd, count)


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: what is asked, the longest waits beside and behind it, how long it took itself; of starts the median."""
    return measure(quick)


def measure(quick: bool, patterns: Sequence[str] = ("",), kept: Path | None = None) -> list[dict[str, Any]]:
    """The rows whose names hold one of ``patterns``, on a copy of ``kept``, which is made if it is not there."""
    wanted, rows = re.compile("|".join(patterns)), []
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        data = Path(scratch, "data")
        filled = kept or data
        if not filled.exists():
            with testing.broker(data_dir=filled, broker__stall_timeout_ms=60_000) as broker:
                fill(broker, 200 if quick else 2_000)
        if kept is not None:
            shutil.copytree(kept, data)
        if wanted.search(START):
            rows.append(_start(data, 1 if quick else 5))
        with _begin_broker(data, quick) as (broker, honest):
            # what the first second after a start and 600 new connections costs by itself
            rows.append(_row("nothing", honest, lambda: time.sleep(1)))
            with ExitStack() as stack:
                rows += [_row(name, honest, work) for name, work in Cases(broker, stack).all() if wanted.search(name)]
        for name, flood in flood_cases():
            if wanted.search(name):
                with _begin_broker(data, quick) as (broker, honest):
                    time.sleep(1)
                    rows.append(_row(name, honest, partial(flood, broker)))
        if wanted.search(LOGINS):
            for row in login_rows(Path(scratch)):
                rows.append(row)
                print(json.dumps(row), flush=True)
    return rows


@contextmanager
def _begin_broker(data: Path, quick: bool) -> Iterator[tuple[testing.BrokerProcess, HonestClients]]:
    """A broker of the topics in ``data``, with a crowd of idle clients, and the two that ask."""
    with ExitStack() as stack:
        broker = stack.enter_context(
            testing.broker(data_dir=data, broker__stall_timeout_ms=60_000, settings=ENCRYPTED_LISTENER)
        )
        kernels_loaded(broker)
        stack.enter_context(_Crowd(broker, 10 if quick else 200))
        honest = HonestClients(broker)
        stack.callback(honest.close)
        yield broker, honest


def _row(name: str, honest: HonestClients, work: Work) -> dict[str, Any]:
    began_s = time.monotonic()
    longest_ms, wall_ms, loop_ms = honest.longest_ms(work)
    took_s = time.monotonic() - began_s - 0.1
    idle_ms, *_ = honest.longest_ms(lambda: time.sleep(took_s))
    row = {
        "beside": name,
        "wait ms": round(longest_ms, 1),
        "idle ms": round(idle_ms, 1),
        "loop ms": round(loop_ms, 1),
        "wall ms": round(wall_ms, 1),
        "took s": round(took_s, 2),
    }
    print(json.dumps(row), flush=True)
    return row


def _start(data: Path, rounds: int) -> dict[str, Any]:
    """Of `lading serve` as somebody types it: a broker of ``testing`` has begun to import before it is asked."""
    command = [sys.executable, "-m", "lading.cli.main", "serve", "--data", str(data), "--free-ports"]
    ready, cpu = [], []
    for _ in range(rounds):
        began_s = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as broker:
            assert broker.stdout is not None and broker.stdout.readline().startswith(b"ready")
            ready.append(time.monotonic() - began_s)
            cpu.append(cpu_s(broker.pid))
            broker.terminate()
    row = {"beside": START, "took s": round(median(ready), 2), "CPU s": round(median(cpu), 2)}
    print(json.dumps(row), flush=True)
    return row


def fill(broker: testing.BrokerProcess, topics_count: int) -> None:
    """Topics of one and of four partitions by turns, groups with positions in each, a channel each."""
    kafka = KafkaFrames(broker.endpoints["kafka"])
    kafka.socket.settimeout(PATIENCE_S)
    names = [f"t{number}" for number in range(topics_count)]
    rows = [
        {"name": name, "num_partitions": 1 + 3 * (at % 2), "replication_factor": 1, "assignments": [], "configs": []}
        for at, name in enumerate(names)
    ]
    made = kafka.ask("CreateTopics", 4, topics=rows, timeout_ms=60_000, validate_only=False)
    assert {row.error_code for row in made.topics} == {0}
    for group in range(MANY):
        some = names if not group else names[group : group + 2]
        topics = [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 0}]} for name in some]
        commit = {"group_id": f"g{group}", "generation_id_or_member_epoch": -1, "member_id": ""}
        kafka.ask("OffsetCommit", 2, **commit, retention_time_ms=-1, topics=topics)
    kafka.close()
    with httpx.Client(base_url=f"http://{broker.endpoints['nsqd_http']}", timeout=PATIENCE_S) as nsqd:
        for name in names[: topics_count // 4]:
            nsqd.post("/channel/create", params={"topic": name, "channel": "c"}).raise_for_status()


class _Crowd(ExitStack):
    """Connections that are only there: subscribers of nsqd, Iggy clients, and a node with many registrations."""

    def __init__(self, broker: testing.BrokerProcess, count: int) -> None:
        super().__init__()
        for number in range(count):
            nsqd = self._connect(broker.endpoints["nsqd_tcp"])
            nsqd.sendall(b"  V2SUB t%d c\n" % (number % 10))
            iggy = Frames(broker.endpoints["iggy_tcp"])
            self.callback(iggy.close)
            iggy.ask(PING)
        lookup = self._connect(broker.endpoints["nsqlookupd_tcp"])
        identity = json.dumps({"version": "1", "tcp_port": 1, "http_port": 2, "broadcast_address": "127.0.0.1"})
        names = b"".join(b"REGISTER r%d c\n" % number for number in range(10 * count))
        lookup.sendall(b"  V1IDENTIFY\n" + struct.pack(">I", len(identity)) + identity.encode() + names)

    def _connect(self, address: str) -> socket.socket:
        return self.enter_context(socket.create_connection(_place(address), PATIENCE_S))


def _fetched(topic: str, partitions: list[dict[str, int]]) -> dict[str, Any]:
    return {"topic": topic, "partitions": partitions}


def _rest_after(work: Work) -> None:
    """Do what has effects that go on."""
    work()
    time.sleep(5)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.others_wait", description=QUESTION)
    parser.add_argument("patterns", nargs="+", metavar="PATTERN", help="regular expressions of names of cases")
    parser.add_argument("--data", type=Path, help="where the topics are, or are made and kept")
    parser.add_argument("--quick", action="store_true", help="a tenth of the topics")
    arguments = parser.parse_args()
    measure(arguments.quick, arguments.patterns, arguments.data)
