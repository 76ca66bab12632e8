"""Gateways, nodes of Apache Kafka and clients are killed under load: what was acknowledged is there once, in order."""

from __future__ import annotations

import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

import lading
from lading import testing
from lading.model.headers import Headers
from lading.testing import BrokerProcess
from lading.testing.held_ports import PortHolder
from tests.interop import kafka_broker, kafka_nodes
from tests.interop.gateway_clients import ClientProcess, make_headers
from tests.interop.kafka_clients import confluent

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3000)]

PARTITIONS = 3
PROGRESS_S = 90.0
SILENCE_S = 6.0
"""Twice the time after which a gateway takes a node for unreachable."""
KILLS = {"gateway": 20, "node": 20, "silence": 5, "client": 20}
KILLS_OF_THREE = {"node": 20, "gateway": 5}
Place = tuple[str, int]


class Gateway:
    """A gateway at addresses of its own, which is killed and started again."""

    def __init__(self, home: Path, ports: PortHolder, store: str) -> None:
        home.mkdir()
        self._home, self._settings = home, {**testing.hold_endpoints(ports), "store": store}
        self.running = self._start()

    def _start(self) -> BrokerProcess:
        return testing.start(self._home / "data", self._settings, self._home / "stderr.log")

    def kill(self) -> None:
        self.running.kill()

    def start(self) -> None:
        self.running = self._start()

    @property
    def endpoints(self) -> dict[str, str]:
        return self.running.endpoints


class Load:
    """Clients of all protocols at two gateways, each of which may be killed and replaced."""

    def __init__(self, gateways: list[Gateway]) -> None:
        self.legs, self.queue = "legs", "queue"
        self._gateways = gateways
        self._numbers: Counter[str] = Counter()
        self.ended: list[ClientProcess] = []
        self.running: dict[str, ClientProcess] = {}
        with lading.Admin(gateways[0].running.url) as admin:
            for topic in (self.legs, self.queue):
                admin.create_topic(topic, partitions=PARTITIONS)
        for kind in ("iggy", "native", "nsq", "nsq-reversed", "drain", "drain-many"):
            self.start(kind)

    def start(self, kind: str) -> None:
        """Start the next client of a kind; the first gateway of every second one is the other."""
        number = self._numbers[kind]
        self._numbers[kind] += 1
        ends = [one.endpoints for one in self._gateways]
        if number % 2:
            ends.reverse()
        name = f"{kind}.{number}"
        arguments: dict[str, list[object]] = {
            "iggy": ["send", name, self.legs, PARTITIONS, *(f"iggy://{one['iggy_tcp']}" for one in ends)],
            "native": ["send", name, self.legs, PARTITIONS, *(f"lading://{one['admin']}" for one in ends)],
            "nsq": ["publish", name, self.queue, *(one["nsqd_tcp"] for one in ends)],
            "nsq-reversed": ["publish", name, self.queue, *(one["nsqd_tcp"] for one in reversed(ends))],
            "drain": ["drain", self.queue, 1, *(one["nsqd_tcp"] for one in ends)],
            "drain-many": ["drain", self.queue, 20, *(one["nsqd_tcp"] for one in reversed(ends))],
        }
        self.running[kind] = ClientProcess(*arguments[kind])

    def kill(self, kind: str) -> None:
        client = self.running.pop(kind)
        client.kill()
        self.ended.append(client)

    def close(self) -> None:
        for kind in list(self.running):
            self.kill(kind)

    def list_all(self) -> list[ClientProcess]:
        return [*self.ended, *self.running.values()]

    def wait_for_progress(self, more: int) -> None:
        """Return when each client has so many more acknowledgements, or messages."""
        wanted = {one: one.count_lines("stored", "finished") + more for one in self.running.values()}
        wait_until(
            lambda: all(one.count_lines("stored", "finished") >= count for one, count in wanted.items()),
            lambda: {one.arguments[:2]: (one.count_lines("stored", "finished"), one.lines[-3:]) for one in wanted},
        )

    def list_numbers(self, topic: str, word: str) -> set[Place]:
        """Return (sender, number) of the printed ranges of a word."""
        return {
            (str(one.arguments[1]), number)
            for one in self.list_all()
            if topic in one.arguments[2:3]
            for line in one.lines
            if line[0] == word
            for number in range(int(line[1]), int(line[2]))
        }

    def count_bodies(self, word: str) -> Counter[Place]:
        """Return how often a message was printed with a word."""
        return Counter(
            (line[1], int(line[2]))
            for one in self.list_all()
            if one.arguments[0] == "drain"
            for line in one.lines
            if line[0] == word
        )


def wait_until(holds: Callable[[], Any], describe: Callable[[], object] = str, wait_s: float = PROGRESS_S) -> None:
    deadline = time.monotonic() + wait_s
    while not holds():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.05)


@pytest.fixture
def nodes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, full: bool
) -> Iterator[kafka_nodes.Nodes]:
    """As many nodes as the parameter says, each of them controller and broker in one."""
    if not full:
        pytest.skip("a Kafka of its own that is killed takes minutes; LADING_TEST_FULL=1 starts it")
    try:
        count = request.param
        with kafka_nodes.running(tmp_path_factory.mktemp("nodes"), count, controllers=count) as started:
            yield started
    except kafka_broker.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("nodes", [1], indirect=True)
def test_kills_of_gateways_a_node_and_clients_lose_nothing(
    nodes: kafka_nodes.Nodes, tmp_path: Path, ports: PortHolder, record_figures: Callable[..., None]
) -> None:
    with run_load(nodes.url, tmp_path, ports) as (gateways, load):
        kill_and_check(gateways, load, nodes, KILLS, record_figures)


@pytest.mark.parametrize("nodes", [3], indirect=True)
def test_kills_of_three_nodes_lose_nothing(
    nodes: kafka_nodes.Nodes, tmp_path: Path, ports: PortHolder, record_figures: Callable[..., None]
) -> None:
    with run_load(nodes.url, tmp_path, ports) as (gateways, load):
        kill_and_check(gateways, load, nodes, KILLS_OF_THREE, record_figures)


@contextmanager
def run_load(store: str, tmp_path: Path, ports: PortHolder) -> Iterator[tuple[list[Gateway], Load]]:
    """Two gateways, and clients at them."""
    with ExitStack() as stack:
        gateways = [Gateway(tmp_path / str(number), ports, store) for number in range(2)]
        for one in gateways:
            stack.callback(one.kill)
        load = Load(gateways)
        stack.callback(load.close)
        load.wait_for_progress(5)
        yield gateways, load


def kill_and_check(
    gateways: list[Gateway],
    load: Load,
    nodes: kafka_nodes.Nodes,
    kills: dict[str, int],
    record_figures: Callable[..., None],
) -> None:
    """Kill so many of each; compare, and note figures, after each kind."""
    random = Random(45)
    finished_twice = 0
    for what, count in kills.items():
        recovery_s = []
        for number in range(count):
            kill_one(what, number, gateways, load, nodes, random)
            began_s = time.monotonic()
            load.wait_for_progress(1)
            recovery_s.append(time.monotonic() - began_s)
            load.wait_for_progress(random.randint(1, 20))
        compared = check(load, nodes.address, gateways)
        taken_back, finished = load.count_bodies("refused"), load.count_bodies("finished")
        twice = sum(max(finished[body] - taken_back[body] - 1, 0) for body in finished)
        record_figures(
            f"{what} of Apache Kafka and gateways, under clients of all protocols",
            kills=count,
            iggy_and_native_acknowledged=len(load.list_numbers(load.legs, "stored")),
            nsq_acknowledged=len(load.list_numbers(load.queue, "stored")),
            sends_refused=sum(one.count_lines("failed") for one in load.list_all()),
            compared=compared, lost=0, doubled=0, out_of_order=0, headers_changed=0,
            nsq_finished_twice=twice - finished_twice,
            all_go_on_after_s=round(max(recovery_s), 1),
        )  # fmt: skip
        finished_twice = twice


def kill_one(
    what: str, number: int, gateways: list[Gateway], load: Load, nodes: kafka_nodes.Nodes, random: Random
) -> None:
    if what == "gateway":
        gateways[number % 2].kill()
        gateways[number % 2].start()
    elif what == "client":
        kind = random.choice(list(load.running))
        load.kill(kind)
        load.start(kind)
    else:
        node = nodes.nodes[random.choice(list(nodes.nodes))]
        if what == "node":
            node.kill()
            node.start()
        else:
            assert node.child is not None
            # its machine still takes connections, as behind a cut cable
            node.child.send_signal(signal.SIGSTOP)
            time.sleep(SILENCE_S)
            node.child.send_signal(signal.SIGCONT)


def check(load: Load, address: str, gateways: list[Gateway]) -> int:
    """Compare what clients know with what a plain Kafka consumer and a reader of each gateway get."""
    acknowledged = {topic: load.list_numbers(topic, "stored") for topic in (load.legs, load.queue)}
    found = {topic: read_plain(address, topic) for topic in (load.legs, load.queue)}
    tried = {topic: load.list_numbers(topic, "tried") for topic in (load.legs, load.queue)}
    for topic, records in found.items():
        order: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for (partition, _), (name, number, _) in sorted(records.items()):
            order[name, partition].append(number)
        counts = Counter((name, number) for name, number, _ in records.values())
        lost = acknowledged[topic] - counts.keys()
        doubled = [place for place, count in counts.items() if count > 1]
        assert not lost, (topic, len(lost), sorted(lost)[:10])
        assert not doubled, (topic, len(doubled), doubled[:10])
        assert counts.keys() <= tried[topic] | load.list_numbers(topic, "tried")
        for (name, partition), numbers in order.items():
            assert all(one < other for one, other in pairwise(numbers)), (topic, name, partition)
    for gateway in gateways:
        table = lading.read_arrow(
            gateway.running.url, load.legs, columns="partition, offset, headers, payload"
        ).to_pylist()
        read = {(row["partition"], row["offset"]): row for row in table}
        for place, (name, number, _) in found[load.legs].items():
            row = read[place]
            assert row["payload"] == f"{name} {number}".encode()
            wanted = [(one.key, one.kind, one.value) for one in Headers(make_headers(name, number))]
            got = [(one["key"], one["kind"], one["value"]) for one in row["headers"]]
            assert got == wanted, (name, number)
    for name, _, headers in found[load.legs].values():
        assert headers[0] == ("sender", name.encode())
    wait_until_drained(load, acknowledged[load.queue])
    return sum(map(len, found.values()))


def wait_until_drained(load: Load, acknowledged: set[Place]) -> None:
    """Return when channels have delivered what was acknowledged; consumers may be behind as long as they get on."""
    deadline = time.monotonic() + PROGRESS_S
    while left := acknowledged - load.count_bodies("got").keys():
        before = len(left)
        while len(acknowledged - load.count_bodies("got").keys()) == before:
            assert time.monotonic() < deadline, (before, sorted(left)[:10])
            time.sleep(0.2)
        deadline = time.monotonic() + PROGRESS_S


def read_plain(address: str, topic: str) -> dict[tuple[int, int], tuple[str, int, list[tuple[str, bytes]]]]:
    """Return sender, number and headers of each record by partition and offset, as librdkafka reads them."""
    consumer = confluent.Consumer(
        {"bootstrap.servers": address, "group.id": "check", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    consumer.assign([confluent.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found = {}
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, 0.5):
            if message.error():
                ended.add(message.partition())
            else:
                name, number = message.value().decode().split()
                found[message.partition(), message.offset()] = name, int(number), message.headers() or []
    consumer.close()
    return found
