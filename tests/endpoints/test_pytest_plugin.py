"""The pytest plugin: found by its entry point, one broker a worker, waiting for messages, restarts, TLS and users."""

from __future__ import annotations

import asyncio
import inspect
import os
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

import lading
from lading import testing
from lading.model.errors import LocalError, Refusal, RemoteError
from lading.testing.broker_fixture import OPTIONS, LadingBroker
from tests.endpoints.nsq_client import NsqClient, pub

ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 60


@pytest.fixture(scope="module")
def shared() -> Iterator[LadingBroker]:
    with LadingBroker() as broker:
        yield broker


def send(broker: LadingBroker, topic: str, *kinds: str) -> None:
    """Send a message for each of ``kinds`` over Kafka."""
    producer = ConfluentProducer({"bootstrap.servers": broker.kafka})
    for number, kind in enumerate(kinds):
        producer.produce(topic, f"m{number}", headers={"kind": kind})
    assert producer.flush(TIMEOUT_S) == 0


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as a user's project does, with the entry points of ``pyproject.toml`` as an installer writes them."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    installed = directory / "installed" / "lading_entry-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: lading-entry\nVersion: 0\n")
    lines = "".join(f"{name} = {module}\n" for name, module in points.items())
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{lines}")
    paths = [str(installed.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=directory, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, timeout=110,
    )  # fmt: skip


USED = """
import os
from contextlib import closing
from pathlib import Path

import pytest

from lading import testing

# several processes that collect leave the cores to each other
assert testing._prepared is None


@pytest.mark.parametrize("number", range(4))
def test_each_worker_has_a_broker(lading_broker, lading_topic, number):
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    with open("seen", "a") as file:
        file.write(f"{worker} {lading_broker.process.pid} {lading_topic} {lading_broker.kafka}\\n")
    assert not lading_broker.messages(lading_topic)
"""


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.turns(2, part=0)
def test_each_worker_of_a_run_has_one_broker_which_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "test_used.py").write_text(USED)
    done = run_pytest(tmp_path, "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    assert len(rows) == 4
    brokers = {worker: pid for worker, pid, _, _ in rows}
    assert len(brokers) == len({pid for _, pid, _, _ in rows}) <= 2
    assert len({(pid, topic) for _, pid, topic, _ in rows}) == 4, "a topic for each test"
    assert not any(is_running(int(pid)) for pid in brokers.values())


@pytest.mark.turns(3, part=2)
def test_the_plugin_loads_nothing_where_it_is_not_used(tmp_path: Path) -> None:
    heavy = ("numpy", "pyarrow", "pydantic", "lading.testing", "lading.testing.broker_fixture", "lading.model.values")
    (tmp_path / "test_unused.py").write_text(
        "import sys\n\n"
        "def test_it(request):\n"
        "    assert request.config.pluginmanager.has_plugin('lading')\n"
        f"    assert not [name for name in {heavy!r} if name in sys.modules]\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


PREPARED = """
import os
from lading import testing

prepared = testing._prepared and testing._prepared.process


def is_running():
    return os.path.exists(f"/proc/{prepared.pid}/stat")


def test_without_a_broker(request):
    assert "lading_topic" not in request.fixturenames
    assert prepared is None or not is_running()


def test_with_a_broker(lading_broker):
    assert lading_broker.process.process is prepared
"""


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        (["-k", "test_with_a_broker"], "1 passed, 1 deselected"),
        (["-k", "test_without_a_broker"], "1 passed, 1 deselected"),
        (["--collect-only"], "2 tests collected"),
    ],
)
def test_a_broker_is_prepared_while_tests_are_collected(tmp_path: Path, arguments: list[str], passed: str) -> None:
    is_early = "-k" in arguments
    (tmp_path / "test_it.py").write_text(PREPARED + f"\n\nassert (prepared is not None) is {is_early}\n")
    done = run_pytest(tmp_path, *arguments)
    assert done.returncode == 0 and passed in done.stdout, done.stdout + done.stderr


@pytest.mark.turns(2, part=1)
def test_a_broker_is_prepared_for_fixtures_that_use_it_and_a_failure_shows_the_line_of_the_test(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef orders(lading_broker):\n    return lading_broker.create_topic()\n"
    )
    (tmp_path / "test_a.py").write_text("def test_it(orders):\n    assert orders\n")
    (tmp_path / "test_b.py").write_text(
        "from lading import testing\n\nassert testing._prepared\n\ndef test_it():\n    pass\n"
    )
    (tmp_path / "test_c.py").write_text(
        "def test_it(lading_broker, lading_topic):\n"
        "    lading_broker.wait_for(lading_topic, {'kind': 'order'}, timeout_s=0)\n"
    )
    done = run_pytest(tmp_path, "-rN")
    assert done.returncode == 1 and "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "test_c.py:2: AssertionError" in done.stdout and "has 0 of 1 messages with kind = 'order'" in done.stdout
    assert "broker_fixture.py" not in done.stdout, done.stdout


@pytest.mark.turns(2, part=1)
def test_a_broken_configuration_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n"
        "@pytest.fixture(scope='session')\n"
        "def lading_broker_options():\n"
        "    return {'settings': {'broker.stal_timeout_ms': 1}}\n"
    )
    (tmp_path / "test_it.py").write_text("def test_it(lading_broker):\n    pass\n")
    # without the summary, which says the sentence again, whole where CI is set and cut elsewhere
    done = run_pytest(tmp_path, "-rN")
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert [line for line in done.stdout.splitlines() if "stal_timeout_ms" in line] == [
        "lading_broker_options: the broker did not start: unknown setting broker.stal_timeout_ms (--set); "
        "did you mean broker.stall_timeout_ms?"
    ], done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (None, "it has to return a dict of arguments of LadingBroker, not None"),
        ({"user": {"ann": "x"}}, "unknown argument 'user'; did you mean 'users'?"),
        ({1: 2}, "unknown argument 1; LadingBroker takes settings, tls, users, faults, timeout_s"),
        ({"settings": "x"}, "argument 'settings' has to be a dict of settings of the broker by dotted key, not 'x'"),
        ({"users": ["ann"]}, "argument 'users' has to be a dict of passwords by name, not ['ann']"),
        ({"tls": "yes"}, "argument 'tls' has to be True or False, not 'yes'"),
        ({"timeout_s": "1"}, "argument 'timeout_s' has to be a number of seconds, not '1'"),
    ],
)
def test_a_wrong_argument_is_named(options: Any, said: str) -> None:
    with pytest.raises(LocalError) as refused:
        LadingBroker.of(options)
    assert str(refused.value) == said


def test_the_arguments_that_are_checked_are_those_there_are() -> None:
    assert list(inspect.signature(LadingBroker).parameters) == list(OPTIONS)


@pytest.mark.turns(3, part=0)
def test_a_taken_port_is_one_sentence_without_the_log(shared: LadingBroker) -> None:
    with (
        pytest.raises(LocalError, match=r"^the broker did not start: 127\.0\.0\.1:\d+ is in use by another program"),
        LadingBroker(settings={"endpoints.kafka.address": shared.kafka}),
    ):
        pass


def test_messages_are_waited_for_by_header(shared: LadingBroker) -> None:
    topic = shared.create_topic()
    send(shared, topic, "order", "refund", "order")
    found = shared.wait_for(topic, {"kind": "order"}, count=2)
    assert [message.payload for message in found] == [b"m0", b"m2"]
    assert [message.payload for message in shared.messages(topic, {"kind": b"refund"})] == [b"m1"]
    shared.assert_no_message(topic, {"kind": "loss"})
    with pytest.raises(AssertionError, match=r"has messages with kind = 'order': 2\n  partition 0, offset 0: .*b'm0'"):
        shared.assert_no_message(topic, {"kind": "order"})


def test_kinds_are_told_apart(shared: LadingBroker) -> None:
    topic = shared.create_topic()
    with lading.Producer(shared.url) as producer:
        producer.send(topic, b"a", headers={"n": lading.u16(1), "yes": True})
    assert shared.wait_for(topic, {"n": 1, "yes": True})
    assert shared.wait_for(topic, {"n": lading.u16(1)})
    shared.assert_no_message(topic, {"n": lading.u32(1)})
    shared.assert_no_message(topic, {"n": True})
    shared.assert_no_message(topic, {"yes": 1})


def test_a_wait_in_vain_shows_what_came_instead(shared: LadingBroker) -> None:
    topic = shared.create_topic()
    send(shared, topic, "refund")
    sentence = (
        r"has 0 of 1 messages with kind = 'order' after 0\.2 s; others came:\n"
        r"  partition 0, offset 0: kind = raw: refund, payload b'"
    )
    with pytest.raises(AssertionError, match=sentence):
        shared.wait_for(topic, {"kind": "order"}, timeout_s=0.2)
    with pytest.raises(AssertionError, match=r"no message came within 0 s: topic 'never' does not exist"):
        shared.wait_for("never", timeout_s=0)


def test_a_topic_that_nothing_created_has_no_message(shared: LadingBroker) -> None:
    shared.assert_no_message("never", {"kind": "refund"})
    with closing(shared.connect()) as admin:
        assert "never" not in [topic.name for topic in admin.topics()]


def test_a_reset_leaves_no_topic(shared: LadingBroker) -> None:
    shared.create_topic("orders", partitions=2)
    send(shared, "orders", "order")
    shared.reset()
    with closing(shared.connect()) as admin:
        assert admin.topics() == []
    shared.create_topic("orders")
    assert shared.messages("orders") == []


@pytest.mark.turns(2)
@pytest.mark.parametrize("crash", [False, True])
def test_a_broker_comes_back_where_it_was_with_its_messages(shared: LadingBroker, crash: bool) -> None:
    topic = shared.create_topic()
    send(shared, topic, "order")
    before = shared.process
    with shared.outage(crash=crash):
        assert not is_running(before.pid)
        with pytest.raises(RemoteError):
            lading.Consumer(shared.url, topic, retries=0)
    assert shared.process.endpoints == before.endpoints
    assert shared.process.pid != before.pid
    assert [message.payload for message in shared.messages(topic, {"kind": "order"})] == [b"m0"]


@pytest.mark.parametrize("idempotent", [False, True])
def test_librdkafka_sends_again_what_was_refused(shared: LadingBroker, idempotent: bool) -> None:
    topic = shared.create_topic()
    settings = {"bootstrap.servers": shared.kafka, "enable.idempotence": idempotent, "linger.ms": 0}
    producer = ConfluentProducer(settings | {"retry.backoff.ms": 10, "retry.backoff.max.ms": 50})
    shared.refuse_produces(2)
    for number in range(3):
        producer.produce(topic, b"%d" % number)
        producer.poll(0.005)
    assert producer.flush(TIMEOUT_S) == 0
    assert_nothing_is_refused(shared)
    with shared.full_disk():
        producer.produce(topic, b"3")
        assert producer.flush(0.15) == 1
    assert producer.flush(TIMEOUT_S) == 0
    assert sorted(message.payload or b"" for message in shared.messages(topic)) == [b"0", b"1", b"2", b"3"]


def test_aiokafka_sends_again_what_was_refused(shared: LadingBroker) -> None:
    topic = shared.create_topic()

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=shared.kafka, retry_backoff_ms=10) as producer:
            await producer.client.force_metadata_update()
            shared.refuse_produces(2)
            await producer.send_and_wait(topic, b"refused")
            assert_nothing_is_refused(shared)
            with shared.full_disk():
                sent = await producer.send(topic, b"full")
                done, _ = await asyncio.wait([sent], timeout=0.1)
                assert not done
            await asyncio.wait_for(sent, TIMEOUT_S)

    asyncio.run(send())
    assert [message.payload for message in shared.messages(topic)] == [b"refused", b"full"]


def test_a_full_disk_takes_no_topic_and_no_position(shared: LadingBroker) -> None:
    """As ``test_start_on_full_disk`` and ``test_disk_faults`` have it of a disk that is full."""
    topic = shared.create_topic()
    consumer = ConfluentConsumer({"bootstrap.servers": shared.kafka, "group.id": topic, "enable.auto.commit": False})
    place = [TopicPartition(topic, 0, 7)]
    with closing(consumer), lading.Admin(shared.url) as admin:
        assert consumer.commit(offsets=place, asynchronous=False)[0].error is None
        with shared.full_disk():
            with pytest.raises(Refusal, match="No space left"):
                admin.create_topic(f"{topic}-other")
            with pytest.raises(KafkaException):
                consumer.commit(offsets=[TopicPartition(topic, 0, 9)], asynchronous=False)
            health = httpx.get(f"http://{shared.admin}/health").json()
            assert health["status"] == "degraded" and "catalog.sqlite" in str(health)
        admin.create_topic(f"{topic}-other")
        assert consumer.commit(offsets=place, asynchronous=False)[0].error is None
        assert httpx.get(f"http://{shared.admin}/health").json()["status"] == "ok"


@pytest.mark.turns(3, part=2)
def test_a_topic_whose_removal_was_refused_gives_its_name_away(shared: LadingBroker) -> None:
    """Its row is still in the catalog when the next topic takes name and id."""
    topic = shared.create_topic()
    with lading.Admin(shared.url) as admin:
        before = [one.name for one in admin.list_topics() if one.name != topic]
        with shared.full_disk(), pytest.raises(Refusal, match="disk is full"):
            admin.delete_topic(topic)
        assert [one.name for one in admin.list_topics()] == before
        admin.create_topic(topic)
        with lading.Producer(shared.url) as producer:
            producer.send(topic, b"new")
        shared.restart()
        assert [one.name for one in admin.list_topics()] == [*before, topic]
        assert [message.payload for message in shared.messages(topic)] == [b"new"]


def test_each_protocol_has_its_own_error(shared: LadingBroker) -> None:
    """As ``test_disk_faults`` has them of a disk that is full."""
    topic = shared.create_topic()
    with closing(NsqClient(shared.nsqd_tcp)) as nsq:
        shared.refuse_produces(1)
        assert nsq.ask(pub(topic, b"nsq")).startswith(b"E_PUB_FAILED a test has this refused")
        assert nsq.ask(pub(topic, b"nsq")) == b"OK"
        with shared.full_disk():
            assert nsq.ask(pub(topic, b"full")).startswith(b"E_PUB_FAILED the disk is full")
            assert [message.payload for message in shared.messages(topic)] == [b"nsq"]
        assert nsq.ask(pub(topic, b"nsq")) == b"OK"
    shared.refuse_produces(1)
    # no thread sends before the end of the block, which then would send once more
    producer = lading.Producer(shared.url, retries=0, linger_ms=60_000)
    producer.send(topic, b"native")
    with pytest.raises(Refusal, match="a test has this refused"):
        producer.flush()
    assert producer.unsent == 1
    producer.close()
    assert [message.payload for message in shared.messages(topic)] == [b"nsq", b"nsq", b"native"]
    with closing(NsqClient(shared.nsqd_tcp)) as nsq:
        shared.refuse_produces(5)
        shared.reset()
        assert nsq.ask(pub("after", b"a reset")) == b"OK"


def assert_nothing_is_refused(broker: LadingBroker) -> None:
    """All that were to be refused were."""
    assert httpx.get(f"http://{broker.admin}/faults").json() == {"appends_to_refuse": 0, "disk_is_full": False}


@pytest.mark.turns(3, part=0)
def test_only_a_broker_for_tests_fails_on_request() -> None:
    with testing.broker() as broker:
        answer = httpx.put(f"http://{broker.endpoints['admin']}/faults", json={"disk_is_full": True})
        assert answer.status_code == 404


@pytest.mark.turns(3, part=1)
def test_tls_and_users_on_demand() -> None:
    with LadingBroker(tls=True, users={"root": "long enough 1", "ann": "long enough 2"}) as broker:
        assert ssl.create_default_context(cafile=broker.ca_file)
        assert "PRIVATE" not in broker.ca_file.read_text()
        with closing(broker.connect()) as admin:
            users = {row["name"]: row["administrator"] for row in admin.users()}
        assert users == {"root": True, "ann": False}
        topic = broker.create_topic()
        with lading.Producer(broker.connect()) as producer:
            producer.send(topic, b"a", headers={"kind": "order"})
        assert broker.wait_for(topic, {"kind": "order"})
        with pytest.raises(Refusal, match="needs a login"):
            lading.Consumer(broker.url, topic, tls=True, ca_file=str(broker.ca_file), retries=0)
