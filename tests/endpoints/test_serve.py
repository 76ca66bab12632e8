"""``lading serve`` as other programs see it: ready line, signals, lock, taken port, durability (design.md Process)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from lading import Consumer, Producer, testing
from lading.model.address import Address
from lading.model.errors import LocalError
from lading.serve.serve import _bind_listeners, running_workers
from lading.settings.endpoints import SchemaRegistrySettings
from lading.settings.settings import EndpointSettings, Settings
from tests import forked_command
from tests.endpoints.frames import Frames, message, payloads, poll, to_partition
from tests.listeners import ADMIN_ONLY

FREE = ["--free-ports"]
STREAM, TOPIC = b"\1\4\1\0\0\0", b"\1\4\1\0\0\0"
TIMEOUT_S = 30


def command(data: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "lading.cli.main", "serve", "--data", str(data), *FREE, *options]


def failed(arguments: Sequence[str]) -> str:
    """What a command says that must end with exit code 2, on one line, without a traceback."""
    done = forked_command.run(arguments, timeout=TIMEOUT_S)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.turns(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_line_as_text_and_a_graceful_end(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(command(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    word, *pairs = process.stdout.readline().split()
    assert word == "ready"
    addresses = dict(pair.split("=") for pair in pairs)
    assert list(addresses) == list(EndpointSettings.model_fields)
    assert Frames(addresses["iggy_tcp"]).ask(1) == (0, b"")
    process.send_signal(number)
    _, words = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert "durability fsync" in words.splitlines()[0]
    assert "Traceback" not in words


@pytest.mark.turns(3, part=2)
def test_ready_line_as_json() -> None:
    with testing.broker(durability="os") as broker:
        assert set(broker.endpoints) == set(EndpointSettings.model_fields)
        assert broker.url == f"lading://{broker.endpoints['admin']}"
        assert "durability os" in broker.log_file.read_text().partition("\n")[0]
    process = subprocess.Popen(
        command(broker.data_dir, "--output", "json"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    process.terminate()
    assert process.wait(TIMEOUT_S) == 0
    assert (ready["event"], ready["pid"], ready["durability"]) == ("ready", process.pid, "fsync")


@pytest.mark.turns(3, part=0)
def test_endpoints_can_be_switched_off() -> None:
    with testing.broker(settings=ADMIN_ONLY) as broker:
        assert set(broker.endpoints) == {"admin"}


@pytest.mark.turns(3, part=1)
def test_a_second_broker_is_told_who_has_the_directory() -> None:
    with testing.broker() as broker:
        sentence = failed(command(broker.data_dir))
    assert str(broker.data_dir) in sentence
    assert f"process id {broker.pid}" in sentence


@pytest.mark.turns(3, part=2)
def test_a_killed_broker_leaves_no_lock_and_what_it_acknowledged(tmp_path: Path) -> None:
    with testing.broker(tmp_path) as broker:
        frames = Frames(broker.endpoints["iggy_tcp"])
        assert frames.ask(202, b"\1\0\0\0s") == (0, b"")
        assert frames.ask(302, STREAM + b"\1\0\0\0\1\0\0\0t") == (0, b"")
        for number in range(20):
            assert frames.ask(101, STREAM + TOPIC + to_partition(1) + message(b"%d" % number)) == (0, b"")
        broker.kill()
        assert (tmp_path / "lock").read_text().strip() == str(broker.pid)
    with testing.broker(tmp_path) as broker:
        frames = Frames(broker.endpoints["iggy_tcp"])
        found = payloads(frames.ask(100, poll(STREAM + TOPIC))[1])
        assert found == [b"%d" % number for number in range(20)]


@pytest.mark.turns(3, part=0)
def test_what_is_under_way_at_the_end_is_answered(tmp_path: Path) -> None:
    with testing.broker(tmp_path) as broker:
        frames = Frames(broker.endpoints["iggy_tcp"])
        assert frames.ask(202, b"\1\0\0\0s") == (0, b"")
        assert frames.ask(302, STREAM + b"\1\0\0\0\1\0\0\0t") == (0, b"")
        for number in range(500):
            frames.send(101, STREAM + TOPIC + to_partition(1) + message(b"%d" % number))
        os.kill(broker.pid, signal.SIGTERM)
        answered = 0
        try:
            while frames.answer() == (0, b""):
                answered += 1
        except ConnectionError:
            pass
        assert broker.process.wait(TIMEOUT_S) == 0
    with testing.broker(tmp_path) as broker:
        found = payloads(Frames(broker.endpoints["iggy_tcp"]).ask(100, poll(STREAM + TOPIC))[1])
    assert len(found) >= answered
    assert found == [b"%d" % number for number in range(len(found))]


def test_a_taken_port_is_named_with_its_setting(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sentence = failed(command(tmp_path, f"--set=endpoints.admin.address=127.0.0.1:{port}"))
    assert f"127.0.0.1:{port}" in sentence
    assert "endpoints.admin.address" in sentence


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("--set=endpoints.mqtt.address=127.0.0.1:0", "unknown setting endpoints.mqtt.address"),
        ("--set=endpoints.iggy_tcp.address=0.0.0.0:0", "allow_unauthenticated"),
        ("--set=endpoints.admin.address=no-such-host.invalid:0", "endpoints.admin.token"),
        ("--set=durability=never", "durability"),
        ("--config=/no/such/file.toml", "/no/such/file.toml"),
    ],
)
def test_settings_that_cannot_hold(tmp_path: Path, option: str, word: str) -> None:
    assert word.lower() in failed(command(tmp_path, option)).lower()


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    assert str(path) in failed(command(path))


def test_testing_tells_why_a_broker_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="unknown setting endpoints"), testing.broker(endpoints__nsqd__x=1):
        pass


@pytest.mark.turns(3, part=1)
def test_ready_in_well_under_a_second_again(tmp_path: Path) -> None:
    """Not timed to the millisecond: a hundred topics must not make it seconds."""
    with testing.broker(tmp_path) as broker:
        frames = Frames(broker.endpoints["iggy_tcp"])
        assert frames.ask(202, b"\1\0\0\0s") == (0, b"")
        for number in range(1, 51):
            payload = STREAM + number.to_bytes(4, "little") + b"\2\0\0\0t%d" % number
            assert frames.ask(302, payload) == (0, b"")
    began = time.monotonic()
    with testing.broker(tmp_path) as broker:
        print(f"ready after {broker.started_s:.2f} s with 100 partitions")
        assert time.monotonic() - began < TIMEOUT_S


@pytest.mark.turns(3, part=2)
def test_the_first_message_across_dialects_brings_no_pandas_along(tmp_path: Path) -> None:
    with testing.broker(tmp_path) as broker:
        with Producer(f"kafka://{broker.endpoints['kafka']}") as producer:
            producer.send("t", b"one", headers={"a": b"b"})
        with Consumer(f"iggy://{broker.endpoints['iggy_tcp']}", "t", start="earliest", timeout_s=TIMEOUT_S) as consumer:
            assert next(iter(consumer)).payload == b"one"
        loaded = Path(f"/proc/{broker.pid}/maps").read_text()
        assert "libarrow" in loaded and "/pandas/" not in loaded


@pytest.mark.turns(3, part=0)
def test_a_token_in_an_argument_is_warned_of_and_one_in_a_file_is_not(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret")
    for options, is_warned in (
        (["--set", "endpoints.admin.token=s3cret"], True),
        (["--token-file", str(token)], False),
    ):
        arguments = command(tmp_path / "data", "--output", "json", *options)
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["endpoints"]["admin"]
        assert httpx.get(f"http://{address}/topics").status_code == 401
        headers = {"authorization": "Bearer s3cret"}
        assert httpx.get(f"http://{address}/topics", headers=headers).status_code == 200
        process.terminate()
        _, words = process.communicate(timeout=TIMEOUT_S)
        assert ("setting endpoints.admin.token: arguments are visible to every user" in words) is is_warned
        assert "s3cret" not in words


def test_a_second_broker_runs_without_a_registry_that_no_setting_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two brokers whose addresses are all set, but for that of the registry, ended each other's start."""
    endpoints = EndpointSettings.model_validate(
        {name: {"address": "127.0.0.1:0"} for name in EndpointSettings.model_fields}
    )

    def listen(named: set[str]) -> set[str]:
        registry = SchemaRegistrySettings.model_construct(_fields_set=named, address=address)
        changed = endpoints.model_copy(update={"schema_registry": registry})
        names = set()
        for name, listener in _bind_listeners(Settings(data=tmp_path).model_copy(update={"endpoints": changed})):
            names.add(name)
            listener.close()
        return names

    with socket.create_server(("127.0.0.1", 0)) as other:
        address = Address(*other.getsockname())
        assert listen(set()) == set(EndpointSettings.model_fields) - {"schema_registry"}
        assert "endpoints.schema_registry.address" in caplog.text and "this broker runs without it" in caplog.text
        with pytest.raises(LocalError, match="is in use by another program"):
            listen({"address"})


def test_work_that_waits_for_a_worker_does_not_keep_the_end_waiting() -> None:
    """The connections that had sent it are closed by then."""
    begun, released, results = threading.Event(), threading.Event(), list[str]()

    def begin() -> None:
        begun.set()
        released.wait(20)
        results.append("begun")

    with running_workers(1) as workers:
        workers.submit(begin)
        waiting = [workers.submit(results.append, "waiting") for _ in range(100)]
        assert begun.wait(20)
        # the end has to come before the work that has begun is done
        waiting[-1].add_done_callback(lambda _: released.set())
    assert results == ["begun"]
    assert all(one.cancelled() for one in waiting)
