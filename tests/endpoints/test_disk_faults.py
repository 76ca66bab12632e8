"""What clients of every face are told when the disk fails or is full, and that nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from lading import testing
from lading.dialects.native.messages import encode_block
from lading.log.group_commit import SyncNow
from lading.serve.serve import serve
from lading.settings.loading import load
from lading.settings.settings import EndpointSettings
from tests.endpoints.frames import Frames, message, payloads, poll, to_partition
from tests.endpoints.nsq_client import NsqClient, mpub, pub, sized
from tests.endpoints.test_admin import batch
from tests.faults.faulty import FaultyDisk, failing

TOPIC = b"\1\4\1\0\0\0" * 2
FREE = [f"endpoints.{name}.address=127.0.0.1:0" for name in EndpointSettings.model_fields]
TIMEOUT_S = 60
HTTP = ("nsqd_http", "nsqlookupd_http")


def served(data: Path, disk: FaultyDisk, ask: Callable[[dict[str, str]], None], *given: str) -> None:
    """Serve on ``disk`` in this process, on asyncio's own loop, while ``ask`` runs in a thread."""

    async def run() -> None:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        settings = load(None, [*FREE, f"data={data}", *given]).settings
        data.mkdir(exist_ok=True)
        server = asyncio.create_task(
            serve(settings, output="json", announce=ready.set_result, disk=disk, commit=SyncNow())
        )
        either: set[asyncio.Future[Any]] = {server, ready}
        done, _ = await asyncio.wait(either, timeout=TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if server in done:
            server.result()
        try:
            await asyncio.to_thread(ask, json.loads(await ready)["endpoints"])
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(server, TIMEOUT_S)

    asyncio.run(run())


def made(endpoints: dict[str, str]) -> Frames:
    """A connection, with stream 1 and its topic 1 of one partition."""
    frames = Frames(endpoints["iggy_tcp"])
    assert frames.ask(202, b"\1\0\0\0s") == (0, b"")
    assert frames.ask(302, TOPIC[:6] + b"\1\0\0\0\1\0\0\0t") == (0, b"")
    return frames


def sent_over_http(endpoints: dict[str, str]) -> tuple[int, Any]:
    document = {"partitioning": {"kind": "balanced"}, "messages": [{"payload": "eA=="}]}
    answer = httpx.post(f"http://{endpoints['iggy_http']}/streams/1/topics/1/messages", json=document)
    return answer.status_code, answer.json()["id"] if answer.content else None


def sent_natively(endpoints: dict[str, str]) -> tuple[int, Any]:
    body = encode_block(batch([(b"native", [])]))
    answer = httpx.post(f"http://{endpoints['admin']}/topics/s/t/0/chunks", content=body)
    return answer.status_code, answer.json().get("reason")


def test_a_failed_sync_is_told_by_every_face_and_reads_go_on(tmp_path: Path) -> None:
    disk = FaultyDisk()

    def ask(endpoints: dict[str, str]) -> None:
        frames = made(endpoints)
        assert frames.ask(101, TOPIC + to_partition(1) + message(b"before")) == (0, b"")
        disk.fault = failing("sync", 0, at="0.log")
        assert frames.ask(101, TOPIC + to_partition(1) + message(b"lost")) == (4010, b"")
        assert frames.ask(101, TOPIC + to_partition(1) + message(b"refused")) == (4010, b"")
        assert sent_over_http(endpoints) == (500, 4010)
        assert sent_natively(endpoints) == (503, "read_only")
        assert payloads(frames.ask(100, poll(TOPIC))[1]) == [b"before"]
        answer = httpx.get(f"http://{endpoints['admin']}/health")
        health = answer.json()
        assert health["status"] == "degraded"
        assert list(health["refusing"]) == ["s.t/0"]
        # nobody is told where the directory lies
        refused = httpx.post(
            f"http://{endpoints['admin']}/topics/s/t/0/chunks", content=encode_block(batch([(b"x", [])]))
        )
        topic = httpx.get(f"http://{endpoints['admin']}/topics/s/t")
        for told in (answer.text, refused.text, topic.text):
            assert "read-only until" in told
            assert str(tmp_path) not in told

    served(tmp_path / "data", disk, ask)


def test_a_full_disk_refuses_and_resumes_by_itself(tmp_path: Path) -> None:
    disk = FaultyDisk()

    def full(operation: str, path: Path, data: Any) -> Any:
        if operation == "write" and path.suffix == ".log":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return data

    def ask(endpoints: dict[str, str]) -> None:
        frames = made(endpoints)
        assert frames.ask(101, TOPIC + to_partition(1) + message(b"before")) == (0, b"")
        healthy, disk.fault = disk.fault, full
        assert frames.ask(101, TOPIC + to_partition(1) + message(b"refused")) == (4006, b"")
        assert sent_over_http(endpoints) == (500, 4006)
        assert sent_natively(endpoints) == (503, "disk_full")
        assert payloads(frames.ask(100, poll(TOPIC))[1]) == [b"before"]
        disk.fault = healthy
        assert frames.ask(101, TOPIC + to_partition(1) + message(b"after")) == (0, b"")
        assert payloads(frames.ask(100, poll(TOPIC))[1]) == [b"before", b"after"]

    served(tmp_path / "data", disk, ask)


def test_a_client_that_fills_the_disk_and_all_memory_for_it_is_served_on(tmp_path: Path) -> None:
    """What it sent stops it until the disk has caught up; that the disk refuses it must let it go on as well."""
    disk = FaultyDisk()

    def ask(endpoints: dict[str, str]) -> None:
        frames = made(endpoints)
        healthy, disk.fault = disk.fault, failing("write", 0, at=".log", error=errno.ENOSPC)
        assert frames.ask(101, TOPIC + to_partition(1) + message(bytes(2 << 20))) == (4006, b"")
        disk.fault = healthy
        assert payloads(frames.ask(100, poll(TOPIC))[1]) == []
        assert frames.ask(101, TOPIC + to_partition(1) + message(b"after")) == (0, b"")

    served(tmp_path / "data", disk, ask, "broker.unsynced_bytes_max=1MiB")


def test_nsq_is_told_that_a_topic_cannot_be_created_and_goes_on(tmp_path: Path) -> None:
    """Publishing and subscribing create topics: what the disk refuses then is an answer, and nothing is cut."""
    with testing.broker(tmp_path / "data", durability="os") as broker:
        topics, aside = tmp_path / "data/topics", tmp_path / "aside"
        client = NsqClient(broker.endpoints["nsqd_tcp"])
        nsqd, lookup = (httpx.Client(base_url=f"http://{broker.endpoints[name]}") for name in HTTP)
        assert client.ask(pub("there", b"x")) == b"OK"
        topics.rename(aside)
        # nothing can be created in it (ELOOP), and the watch of the data directory takes it for a disk that fails
        topics.symlink_to(topics)
        dpub = sized(b"DPUB new 10\n", b"x")
        for said, code in (
            (pub("new", b"x"), b"E_PUB_FAILED"),
            (pub("new", b"x", b'{"a":1}'), b"E_PUB_FAILED"),
            (mpub("new", b"a", b"b"), b"E_MPUB_FAILED"),
            (dpub, b"E_DPUB_FAILED"),
            (b"INTERNAL_CREATE_TOPIC new 0 true\n", b"E_CREATE_TOPIC_FAILED"),
        ):
            assert client.ask(said).startswith(code)
        # not whole when it is refused: the rest of its body is no command
        large = pub("new", b"FOO\n" * 10_000)
        client.send(large[:9_000])
        assert client.quiet()
        assert client.ask(large[9_000:]).startswith(b"E_PUB_FAILED")
        assert client.ask(pub("there", b"x")) == b"OK"
        reader = NsqClient(broker.endpoints["nsqd_tcp"])
        assert reader.ask(b"SUB new ch\n").startswith(b"E_SUB_FAILED")
        assert reader.closed()
        for path, code_text in (
            ("/pub?topic=new", "E_PUB_FAILED"),
            ("/pub?topic=new&defer=5", "E_DPUB_FAILED"),
            ("/pub_ext?topic=new&ext={}", "E_PUB_FAILED"),
            ("/mpub?topic=new", "E_MPUB_FAILED"),
            ("/topic/create?topic=new", "READ_ONLY"),
        ):
            answer = nsqd.post(path, content=b"x")
            assert (answer.status_code, answer.json()) == (503, {"message": code_text})
        for path in ("/topic/create?topic=new", "/channel/create?topic=new&channel=ch"):
            assert lookup.post(path).status_code == 503
        topics.unlink()
        aside.rename(topics)
        assert client.ask(pub("new", b"x")) == b"OK"
        assert nsqd.post("/mpub?topic=new", content=b"a\nb").text == "OK"
        for each in (client, reader, nsqd, lookup):
            each.close()
        assert "Traceback" not in broker.log_file.read_text()
