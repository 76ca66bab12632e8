"""How soon the broker is ready, and how much memory it takes: empty, with a long log, with slow readers."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from bench.measure import anonymous_mb, kernels_loaded, median
from lading import Consumer, Producer, testing

QUESTION = "Ready after start and anonymous memory: empty log, long log, 100 slow readers"
PAYLOAD_BYTES = 1000
SLOW_READERS = 100
ENDPOINT_OF = {"iggy": "iggy_tcp", "kafka": "kafka", "nsq": "nsqd_tcp"}


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: case, seconds and CPU to the ready line (medians of 5), CPU with kernels, anonymous MB settled.

    Where a protocol's first message is sent and read behind the ready line, also when its kernels were loaded.
    """
    rounds = 2 if quick else 5
    log_gb = 0.05 if quick else 10.0
    rows = []
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        empty = Path(scratch, "empty")
        rows.append(_started("empty log", empty, rounds))
        rows += [_first_used(scheme, empty, rounds) for scheme in ("iggy", "kafka", "nsq")]
        long = Path(scratch, "long")
        with testing.broker(data_dir=long, durability="os") as broker:
            _fill(broker.url, log_gb)
        rows.append(_started(f"{log_gb:g} GB log", long, rounds))
        with testing.broker(data_dir=long) as broker:
            time.sleep(3)  # kernels load in the background after the ready line; memory is read when they are in
            idle = anonymous_mb(broker.pid)
            rows.append({"case": f"{log_gb:g} GB log, {SLOW_READERS} slow readers", **_slow_readers(broker, idle)})
    return rows


def _started(case: str, data: Path, rounds: int) -> dict[str, Any]:
    ready, cpu_ready, cpu_all, memory = [], [], [], []
    for _ in range(rounds):
        with testing.broker(data_dir=data) as broker:
            cpu_ready.append(_cpu_s(broker.pid))
            ready.append(broker.started_s)
            time.sleep(3)
            cpu_all.append(_cpu_s(broker.pid))
            memory.append(anonymous_mb(broker.pid))
    return {
        "case": case,
        "ready s": round(median(ready), 2),
        "CPU s to ready": round(median(cpu_ready), 2),
        "CPU s in all": round(median(cpu_all), 2),
        "anonymous MB": round(median(memory)),
    }


def _first_used(scheme: str, data: Path, rounds: int) -> dict[str, Any]:
    """One message is sent and read over a protocol at once, as the clients of a test do."""
    loaded, cpu_all = [], []
    for number in range(rounds):
        with testing.broker(data_dir=data) as broker:
            started = time.perf_counter()
            url, topic = f"{scheme}://{broker.endpoints[ENDPOINT_OF[scheme]]}", f"{scheme}-{number}"
            with Producer(url) as producer:
                producer.send(topic, b"first", headers={"carrier": "UA"})
            channel = "bench" if scheme == "nsq" else None
            with Consumer(url, topic, channel=channel, timeout_s=10) as consumer:
                assert next(consumer).headers["carrier"] == "UA"
            kernels_loaded(broker, look_s=0.005)
            loaded.append(time.perf_counter() - started)
            time.sleep(1)
            cpu_all.append(_cpu_s(broker.pid))
    return {
        "case": f"first message over {scheme}",
        "kernels loaded, s after ready": round(median(loaded), 2),
        "CPU s in all": round(median(cpu_all), 2),
    }


def _cpu_s(pid: int) -> float:
    """Return the time that a process and its threads have used, from ``/proc/PID/stat`` (fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _fill(url: str, gigabytes: float) -> None:
    rows = 10_000
    batch = pa.record_batch({"payload": pa.array([b"x" * PAYLOAD_BYTES] * rows, pa.binary())})
    from lading.client.bulk import write_arrow

    with Producer(url) as producer:
        producer.transport.create_topic("long", 4)
    for _ in range(int(gigabytes * 1e9 / (rows * PAYLOAD_BYTES))):
        write_arrow(pa.Table.from_batches([batch]), url, "long", payload="payload")


def _slow_readers(broker: testing.BrokerProcess, idle_mb: float) -> dict[str, Any]:
    """Readers that ask for 8 MB each and take 1 kB of it: what the broker holds for them meanwhile."""
    with Producer(broker.url) as producer:
        partitions = [part.number for part in producer.transport.topic("long").partitions if part.end_offset]
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(limits=httpx.Limits(max_connections=None), timeout=60))
        for number in range(SLOW_READERS):
            address = (
                f"http://{broker.endpoints['admin']}/topics/default/long/{partitions[number % len(partitions)]}/chunks"
            )
            answer = stack.enter_context(client.stream("GET", address, params={"offset": 0, "max_bytes": 8 << 20}))
            next(answer.iter_raw(1024))
        time.sleep(2)
        return {"anonymous MB": round(anonymous_mb(broker.pid)), "idle MB": round(idle_mb)}
