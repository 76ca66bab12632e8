"""NSQ's own Python client against ours: publishing, lookup, reading, requeueing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from lading import testing

PROGRAM = """
import json, sys
import nsq, tornado.ioloop

tcp, http = sys.argv[1:]
seen = []
loop = tornado.ioloop.IOLoop.current()

def handler(message):
    seen.append([message.body.decode(), message.attempts])
    if len(seen) == 1:
        message.requeue(delay=0, backoff=False)
        return True
    if len(seen) == 6:
        loop.add_callback(loop.stop)
    return True

def publish():
    if not writer.conns:
        loop.call_later(0.05, publish)
        return
    writer.pub("pynsq", b"one", callback=lambda conn, data: seen_answers.append(data.decode()))
    writer.mpub("pynsq", [b"two", b"three", b"four"], callback=lambda conn, data: seen_answers.append(data.decode()))
    writer.dpub("pynsq", 100, b"late", callback=lambda conn, data: seen_answers.append(data.decode()))

seen_answers = []
writer = nsq.Writer([tcp])
reader = nsq.Reader(
    message_handler=handler, lookupd_http_addresses=["http://" + http], topic="pynsq", channel="ch", max_in_flight=1,
    lookupd_poll_interval=1, lookupd_poll_jitter=0.0, requeue_delay=0,
)
loop.call_later(0.05, publish)
loop.call_later(20, loop.stop)
loop.start()
print(json.dumps({"seen": seen, "answers": seen_answers}))
"""


@pytest.mark.interop
def test_the_official_python_client_works_unmodified() -> None:
    pytest.importorskip("nsq", reason="pynsq is not installed (pip install pynsq)")
    with testing.broker(durability="os") as broker:
        program = [sys.executable, "-c", PROGRAM, broker.endpoints["nsqd_tcp"], broker.endpoints["nsqlookupd_http"]]
        done = subprocess.run(program, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["answers"] == ["OK", "OK", "OK"]
    first, *rest = told["seen"]
    others = [[body, 1] for body in ("one", "two", "three", "four", "late") if body != first[0]]
    assert sorted([first, *rest]) == sorted([[first[0], 1], [first[0], 2], *others])
