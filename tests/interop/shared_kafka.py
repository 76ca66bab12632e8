"""One real Kafka broker for all processes of a test run: who needs it first starts it, the run ends it.

A start takes ten seconds of CPU. Topics, groups and transactions of two tests therefore need two names.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.interop import kafka_broker
from tests.interop.kafka_broker import RunningKafka

RUN = "LADING_TEST_RUN"
"""Names the directory of this run to the processes it starts."""
PROCESS = os.environ.get("PYTEST_XDIST_WORKER", "")
"""Of several test processes each has a name; it makes names of topics differ."""
LAST_LINES = 20


def begin() -> None:
    """By the first process of a run."""
    os.environ[RUN] = tempfile.mkdtemp(prefix="lading-tests-")


def running() -> RunningKafka:
    """The broker of this run; kafka_broker.Unavailable where there can be none."""
    place = Path(os.environ[RUN])
    told = place / "kafka.json"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            _, made = kafka_broker.launched(place / "kafka")
            told.write_text(json.dumps([made.address, made.pid, made.secure, str(made.ca_file)]))
        address, pid, secure, ca_file = json.loads(told.read_text())
    return RunningKafka(address, pid, secure, Path(ca_file))


def end() -> None:
    """By the first process, when all others have ended; it says so if the broker ended before them."""
    place = Path(os.environ.pop(RUN))
    with suppress(FileNotFoundError):
        pid = json.loads((place / "kafka.json").read_text())[1]
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            words = (place / "kafka" / "server.log").read_text(errors="replace").splitlines()[-LAST_LINES:]
            print(
                f"Apache Kafka ({pid}) ended before the tests did; its last words:", *words, sep="\n", file=sys.stderr
            )
    shutil.rmtree(place, ignore_errors=True)
