"""What a worker of Spark has loaded is not searched for garbage after every task, and nobody else's process changes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from lading.spark.connect_executor import ConnectExecutor, make_executor
from lading.spark.daemon import acknowledging, ending_with_reader
from lading.spark.tasks import SparkExecutor

FORKED = """
import gc, runpy, sys
from importlib.machinery import ModuleSpec
from lading.spark.workers import freeze_modules
main = sys.modules["__main__"]
main.__spec__ = ModuleSpec(sys.argv[1], None) if sys.argv[1] else None
before = gc.get_freeze_count()
freeze_modules()
once = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
freeze_modules()
again = gc.get_freeze_count()
import sqlite3
freeze_modules()
print(once - before > 5000, again - once, gc.get_freeze_count() - again > 1000)
"""


def run(started_as: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, started_as], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def test_a_worker_settles_when_modules_were_loaded_and_not_again() -> None:
    assert run("pyspark.daemon") == "True 0 True"
    assert run("lading.spark.daemon") == "True 0 True"


def test_other_processes_are_left_alone() -> None:
    assert run("") == "False 0 False"
    assert run("somebody.program") == "False 0 False"


def test_the_daemon_has_loaded_what_tasks_need_before_it_forks() -> None:
    code = """
import sys
from lading.spark.daemon import load
load()
names = ("lading.spark.source", "lading.transports.kafka.transport", "pyarrow.parquet", "wave")
print([name in sys.modules for name in names])
"""
    env = os.environ | {"LADING_TASKS": "wave"}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120, env=env
    )
    assert done.stdout.strip() == "[True, True, True, True]"


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux can be told to acknowledge at once")
def test_every_task_is_acknowledged_at_once() -> None:
    seen: list[tuple[int, bool]] = []

    def worker(connection: socket.socket, authenticated: bool) -> int:
        seen.append((connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK), authenticated))
        # as Linux does when something was answered
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        return 0

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        accepted, _ = server.accept()
        with accepted:
            work = acknowledging(worker)
            assert [work(accepted, False), work(accepted, True)] == [0, 0]
    assert seen == [(1, False), (1, True)]
    left, right = socket.socketpair()
    with left, right:
        assert acknowledging(lambda connection: 7)(left) == 7


def test_a_worker_whose_reader_leaves_ends_in_silence() -> None:
    def write(connection: socket.socket, authenticated: bool) -> int:
        connection.sendall(b"rows" * (1 << 20))
        return 0

    ours, spark = socket.socketpair()
    spark.close()
    with ours:
        assert ending_with_reader(write)(ours, True) == 1


DAEMON = """
import sys, traceback
from importlib.machinery import ModuleSpec
from lading.spark.workers import end_with_reader
main = sys.modules["__main__"]
main.__spec__ = ModuleSpec(sys.argv[1], None)
end_with_reader()
for error in (BrokenPipeError, ConnectionResetError, ValueError):
    try:
        raise error("it is " + error.__name__)
    except BaseException:
        traceback.print_exc()
print(traceback.format_exc())
"""


@pytest.mark.parametrize(("started_as", "printed"), [("pyspark.daemon", 1), ("another", 3)])
def test_a_worker_of_pysparks_own_daemon_ends_in_silence_too(started_as: str, printed: int) -> None:
    """A session that was created before ``register`` has PySpark's daemon, which prints what ends a worker."""
    done = subprocess.run(
        [sys.executable, "-c", DAEMON, started_as], check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stderr.count("Error: it is ") == printed
    assert "ValueError: it is ValueError" in done.stderr and done.stdout.strip() == "NoneType: None"


def test_a_session_of_spark_connect_has_an_executor_of_its_own() -> None:
    """A real one needs gRPC, which the tests do not install: see test_connect."""
    session: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    assert isinstance(make_executor(session, "lading ingest", "the table t"), ConnectExecutor)
    assert isinstance(make_executor(object(), "lading ingest", "the table t"), SparkExecutor)  # type: ignore[arg-type]
