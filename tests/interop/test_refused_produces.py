"""Clients nobody here wrote, whose produces are refused: each tells its error, and what is sent again arrives."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lading.testing.broker_fixture import LadingBroker
from tests.interop import wheels

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

IGGY_PROGRAM = Path(__file__).parent / "iggy_python.py"
NSQ_PROGRAM = """
import sys
import nsq, tornado.ioloop

loop = tornado.ioloop.IOLoop.current()

def publish():
    if writer.conns:
        writer.pub(sys.argv[2], b"nsq", callback=finish)
    else:
        loop.call_later(0.02, publish)

def finish(connection, answer):
    print(answer.decode() if isinstance(answer, bytes) else f"{type(answer).__name__}: {answer}", flush=True)
    if isinstance(answer, nsq.Error):
        loop.call_later(0.02, publish)
    else:
        loop.stop()

writer = nsq.Writer([sys.argv[1]])
loop.call_later(0.02, publish)
loop.call_later(20, loop.stop)
loop.start()
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[LadingBroker]:
    with LadingBroker() as running:
        yield running


def test_iggys_package(broker: LadingBroker) -> None:
    try:
        python = wheels.install("iggy-py", "0.4.0", "3.11")
    except wheels.Unavailable as error:
        pytest.skip(str(error))
    topic = broker.create_topic()
    broker.refuse_produces(2)
    calls = [["send", "default", topic, 1, ["iggy"]]] * 3
    told = wheels.run(python, IGGY_PROGRAM, broker.iggy_tcp, json.dumps(calls))
    assert [one.get("error") for one in told] == ["CannotSaveMessagesToSegment"] * 2 + [None], told
    assert len(broker.messages(topic)) == 1


def test_nsqs_package(broker: LadingBroker) -> None:
    pytest.importorskip("nsq", reason="pynsq is not installed (pip install pynsq)")
    topic = broker.create_topic()
    broker.refuse_produces(2)
    program = [sys.executable, "-c", NSQ_PROGRAM, broker.nsqd_tcp, topic]
    done = subprocess.run(program, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *refused, last = done.stdout.splitlines()
    assert len(refused) == 2 and all("a test has this refused" in line for line in refused), done.stdout
    assert last == "OK"
    assert len(broker.messages(topic)) == 1
