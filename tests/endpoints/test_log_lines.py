"""Lines on standard error: never waited for, each with time, level, endpoint and peer; repeats are counted."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from lading.runtime.log_lines import (
    LIKE_MAX,
    LINES_MAX,
    REPEAT_WINDOW_S,
    LineWriter,
    RepeatCounter,
    format_json,
    format_text,
    origin,
)
from lading.settings.settings import EndpointSettings
from tests import forked_broker
from tests.endpoints.connection import Connection
from tests.endpoints.current_frames import request as current_request
from tests.endpoints.kafka_frames import KafkaFrames, batch, produce

FREE = [f"--set=endpoints.{name}.address=127.0.0.1:0" for name in EndpointSettings.model_fields]
TIMEOUT_S = 30
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING|ERROR) (\S+) (\S+) \S.*")


@contextmanager
def served(data: Path, stderr: Any, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """A broker whose standard error is the caller's affair."""
    command = [sys.executable, "-m", "lading.cli.main", "serve", "--data", str(data), "--output", "json"]
    process = forked_broker.launch(
        [*command, *FREE, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, env=os.environ
    )
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())["endpoints"]
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        process.stdout.close()


def refuse_kafka_frame(address: str, length: int = -2) -> str:
    """Send a length that nobody takes, wait for the close, and return who sent it."""
    connection = Connection(address)
    host, port = connection.socket.getsockname()[:2]
    connection.socket.sendall(length.to_bytes(4, "big", signed=True))
    assert connection.closed()
    connection.close()
    return f"{host}:{port}"


def record(message: str, *values: object, peer: str = "") -> logging.LogRecord:
    made = logging.LogRecord("lading.x", logging.INFO, "", 0, message, values, None)
    made.__dict__.update(origin("kafka", peer))
    return made


def fill_pipe(handle: int) -> int:
    """Fill a pipe that nobody reads, and return how many bytes went in; who writes to it then waits."""
    size_bytes = 0
    os.set_blocking(handle, False)
    with suppress(BlockingIOError):
        while True:
            size_bytes += os.write(handle, b"x" * 65_536)
    os.set_blocking(handle, True)
    return size_bytes


@pytest.mark.parametrize("distinct", [False, True], ids=["the same line", "lines that differ"])
@pytest.mark.turns(2)
def test_a_full_pipe_that_nobody_reads_holds_up_nobody(tmp_path: Path, distinct: bool) -> None:
    """886 bad requests, one line each, hung the broker: `/health` was not answered, SIGTERM not heard."""
    unread, stderr = os.pipe()
    fill_pipe(stderr)
    with served(tmp_path, stderr) as (process, endpoints):
        for number in range(1_000 if distinct else 200):
            refuse_kafka_frame(endpoints["kafka"], -2 - number * distinct)
        with urlopen(f"http://{endpoints['admin']}/health", timeout=TIMEOUT_S) as health:
            assert health.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    os.close(stderr)
    os.close(unread)


def test_what_a_slow_reader_takes_is_whole_and_the_rest_is_counted() -> None:
    unread, full = os.pipe()
    left_bytes = fill_pipe(full)
    writer = LineWriter(handle=full)
    writer._put("line 0")
    deadline_s = time.monotonic() + TIMEOUT_S
    # a writer that takes its first line later makes room behind lines that were lost already
    while not writer._queue.empty():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)
    lines = 12_000
    for number in range(1, lines):
        writer._put(f"line {number}")
    lost = writer.lost
    assert lost == lines - 1 - LINES_MAX
    closing = threading.Thread(target=writer.close)
    closing.start()
    while left_bytes:
        left_bytes -= len(os.read(unread, left_bytes))
    said = b""
    while not said.endswith(b"in time\n"):
        said += os.read(unread, 65_536)
    closing.join(TIMEOUT_S)
    os.close(full)
    os.close(unread)
    *whole, note = said.decode().splitlines()
    assert whole == [f"line {number}" for number in range(lines - lost)]
    assert f"{lost} log lines were lost" in note


def test_an_end_does_not_wait_for_who_reads_nothing() -> None:
    unread, full = os.pipe()
    writer = LineWriter(handle=full)
    for number in range(5_000):
        writer._put(f"line {number} " + 100 * "x")
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < TIMEOUT_S
    os.close(unread)
    # the number of a closed file is given to the next one that is opened: nothing may still be written to it
    writer._thread.join(TIMEOUT_S)
    assert not writer._thread.is_alive()
    os.close(full)


def test_a_line_that_comes_again_is_counted() -> None:
    counter = RepeatCounter()
    written = [counter.is_new(record("bad %s", "x", peer=f"h:{port}"), "bad x", port / 100) for port in range(886)]
    assert written == [True] + 885 * [False]
    assert list(counter.take_due(REPEAT_WINDOW_S - 0.1)) == []
    ((counted, count),) = counter.take_due(REPEAT_WINDOW_S)
    assert re.search(
        r"Z INFO kafka h:885 bad x \(repeated 885 times since 20[-0-9]+T[0-9:.]+Z\)$", format_text(counted, count)
    )
    fields = json.loads(format_json(counted, count))
    assert fields["repeated"] == 885 and fields["since"] == fields["time"]
    assert counter.is_new(record("bad %s", "x"), "bad x", REPEAT_WINDOW_S)


def test_a_count_has_the_time_at_which_it_is_written() -> None:
    """Sorted by time, lines with the time of their first occurrence were before those that were written before them."""
    read_end, write_end = os.pipe()
    writer = LineWriter(handle=write_end)
    for created_s in (1_000.0, 1_001.0, 1_002.0):
        line = record("bad %s", "x")
        line.created = created_s
        writer.handle(line)
    writer.close()
    os.close(write_end)
    with os.fdopen(read_end) as file:
        first, count = file.read().splitlines()
    assert first.startswith("1970-01-01T00:16:40.000Z ")
    assert not count.startswith("1970-") and count.endswith("(repeated 2 times since 1970-01-01T00:16:40.000Z)")


def test_lines_that_differ_in_a_number_are_counted_after_the_first_hundred() -> None:
    counter = RepeatCounter()
    written = [counter.is_new(record("bad %d", number), f"bad {number}", 0.0) for number in range(1_000)]
    assert sum(written) == LIKE_MAX
    assert sum(count for _, count in counter.take_due(REPEAT_WINDOW_S)) == 1_000 - LIKE_MAX
    assert counter.is_new(record("another"), "another", 0.0)


def test_a_counted_line_keeps_nothing_of_a_failed_request_alive() -> None:
    counter = RepeatCounter()
    failed = record("failed")
    failed.exc_info = (ValueError, ValueError(), None)
    counter.is_new(failed, "failed", 0.0)
    counter.is_new(failed, "failed", 0.0)
    ((kept, _),) = counter.take_due(REPEAT_WINDOW_S)
    assert kept.exc_info is None


@pytest.mark.parametrize("log_format", [format_text, format_json])
def test_what_a_client_sent_makes_no_line_and_moves_hides_or_reorders_nothing(
    log_format: Callable[[logging.LogRecord], str],
) -> None:
    """Text after U+202E is shown backwards, zero-width characters are not shown: a line read as another one."""
    sent = "a\nb\x1b[2J\x7f\x9b\u202eresol\u200b\u2066\ufeff\U000e0041\ud800"
    line = log_format(record("no topic %s", sent))
    assert line.isascii() and line.isprintable()
    if log_format is format_text:
        assert line.endswith(r"no topic a\nb\x1b[2J\x7f\x9b\u202eresol\u200b\u2066\ufeff\U000e0041\ud800")
    else:
        assert json.loads(line)["message"] == f"no topic {sent}"


def test_a_traceback_keeps_its_lines_and_nothing_else() -> None:
    try:
        raise ValueError("topic \u202eresol\x1b[2J")
    except ValueError:
        told = logging.makeLogRecord({"msg": "failed", "levelname": "ERROR", "exc_info": sys.exc_info()})
    lines = format_text(told).split("\n")
    assert lines[-1] == r"ValueError: topic \u202eresol\x1b[2J" and len(lines) > 3


def hello() -> bytes:
    """What a TLS client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="broker.example")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.turns(3, part=1)
def test_each_line_tells_time_level_endpoint_and_peer(tmp_path: Path) -> None:
    with served(tmp_path / "data", subprocess.PIPE) as (process, endpoints):
        peer = refuse_kafka_frame(endpoints["kafka"])
        process.terminate()
        words = process.communicate(timeout=TIMEOUT_S)[1].decode()
    lines = words.splitlines()
    assert all(LINE.fullmatch(line) for line in lines), words
    assert any(f" INFO kafka {peer} closing the connection: a request claims -2 bytes" in line for line in lines)


@pytest.mark.turns(3, part=0)
def test_lines_as_json(tmp_path: Path) -> None:
    with served(tmp_path / "data", subprocess.PIPE, "--log", "json") as (process, endpoints):
        peer = refuse_kafka_frame(endpoints["kafka"])
        process.terminate()
        lines = [json.loads(line) for line in process.communicate(timeout=TIMEOUT_S)[1].splitlines()]
    (found,) = [line for line in lines if line["peer"] == peer]
    assert (found["level"], found["endpoint"]) == ("INFO", "kafka")
    assert all(set(line) >= {"time", "level", "endpoint", "peer", "message"} for line in lines)


@pytest.mark.turns(3, part=1)
def test_a_client_before_headers_is_told_of_once(tmp_path: Path) -> None:
    """Kafka clients before 0.11 saw errors that say nothing of headers, and the log of the broker nothing at all."""
    with served(tmp_path / "data", subprocess.PIPE) as (process, endpoints):
        old = KafkaFrames(endpoints["kafka"])
        old.ask("Metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        for _ in range(3):
            old.ask("Produce", 3, **produce("t", batch(b"", 1, magic=1)))
        reader = KafkaFrames(endpoints["kafka"])
        reader.send(b"\0\1\0\2" + bytes(4) + b"\xff\xff" + bytes(100))
        assert reader.closed()
        process.terminate()
        words = process.communicate(timeout=TIMEOUT_S)[1].decode()
    told = [line for line in words.splitlines() if "before message format 2" in line]
    assert len(told) == 2 and "repeated" not in words, words
    assert "only format 2, which has headers" in told[0] and "version 2 of Fetch" in told[1]


@pytest.mark.turns(3, part=2)
def test_a_tls_hello_is_told_as_such(tmp_path: Path) -> None:
    """Somebody set `security.protocol=SSL`, `https://` or the like, and saw a connection that only closes."""
    with served(tmp_path / "data", subprocess.PIPE) as (process, endpoints):
        # QUIC is TLS itself, over UDP
        plain = [name for name in endpoints if name != "iggy_quic"]
        for name in plain:
            connection = Connection(endpoints[name])
            connection.socket.sendall(hello())
            with suppress(ConnectionError):
                while connection.socket.recv(4096):
                    pass
            connection.close()
        process.terminate()
        words = process.communicate(timeout=TIMEOUT_S)[1].decode()
    told = {line.split()[2] for line in words.splitlines() if "a TLS hello came to a plain port" in line}
    assert told == set(plain), words


KAFKA_FIRST = struct.pack(">ihhih", 18, 18, 3, 1, 6) + b"client"
KAFKA_LONGER = struct.pack(">ihhih", 256 + 2, 18, 3, 1, 6) + b"client"
"""Of a size that Iggy allows, read from its low byte on."""
IGGY_FIRST = struct.pack("<II", 45, 38)
IGGY_SHORT = struct.pack("<IIH", 6, 20, 3)
"""Of a size that Kafka allows, read from its high byte on."""
HTTP_PORTS = ("admin", "iggy_http", "iggy_websocket", "nsqd_http", "nsqlookupd_http")
NSQ_PORTS = ("nsqd_tcp", "nsqlookupd_tcp")
WRONG_PORTS = {
    "an HTTP request": ("kafka", "iggy_tcp", *NSQ_PORTS),
    "a client of nsqd": ("kafka", "iggy_tcp", "nsqlookupd_tcp", *HTTP_PORTS),
    "a client of nsqlookupd": ("kafka", "iggy_tcp", "nsqd_tcp", *HTTP_PORTS),
    "a Kafka request": ("iggy_tcp", *NSQ_PORTS, *HTTP_PORTS),
    "an Iggy request": ("kafka", *NSQ_PORTS, *HTTP_PORTS),
}
USUAL = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a client of nsqd": b"  V2IDENTIFY\n",
    "a client of nsqlookupd": b"  V1PING\n", "a Kafka request": KAFKA_FIRST, "an Iggy request": IGGY_FIRST,
}  # fmt: skip
FIRST_BYTES = {
    "usual": USUAL,
    "short": {"a Kafka request": KAFKA_LONGER, "an Iggy request": IGGY_SHORT},
    "ping": {"an Iggy request": struct.pack("<II", 4, 1)},
    "current": {"an Iggy request": current_request(1, code=1)},
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("form", FIRST_BYTES)
def test_a_client_of_another_protocol_is_told_as_such(form: str, tmp_path: Path) -> None:
    """`curl` at the port of Kafka was "a request claims 1195725856 bytes", which is "GET "; others were nothing."""
    expected = {(name, what) for what in FIRST_BYTES[form] for name in WRONG_PORTS[what]}
    with served(tmp_path / "data", subprocess.PIPE) as (process, endpoints):
        for what, data in FIRST_BYTES[form].items():
            for name in WRONG_PORTS[what]:
                connection = Connection(endpoints[name])
                connection.socket.sendall(data)
                with suppress(ConnectionError):
                    while connection.socket.recv(4096):
                        pass
                connection.close()
        process.terminate()
        words = process.communicate(timeout=TIMEOUT_S)[1].decode()
    told = {
        (line.split()[2], line.split("closing the connection: ")[1].split(" came to a port of another protocol")[0])
        for line in words.splitlines()
        if "came to a port of another protocol; name the port of " in line
    }
    assert told == expected, words
