"""How figures are taken: medians of rounds, CPU seconds and memory of other processes from /proc."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable
from http.client import HTTPConnection
from pathlib import Path

from lading import testing

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def median(values: Iterable[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def rounds(work: Callable[[], None], count: int) -> float:
    """Median wall seconds of ``count`` runs after one that warms up."""
    work()
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return median(took)


def tree_environment(tree: Path) -> dict[str, str]:
    """Return the environment of a process that runs the sources, benches and tests of a work tree."""
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(tree / "src"), str(tree)))}


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used so far, all threads, user and system; in steps of a clock tick, mostly 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def threads_cpu_s(pid: int) -> float:
    """CPU seconds of the threads a process has now, to the nanosecond; of threads that ended nothing."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def anonymous_mb(pid: int) -> float:
    """Anonymous resident memory of a process in MB: what it took for itself, maps of files left out."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(f"no RssAnon in the status of process {pid}")


def kernels_loaded(broker: testing.BrokerProcess, look_s: float = 0.2) -> None:
    """Return when the kernels are loaded that were needed so far; before that the twins serve.

    Those of a protocol are loaded when it is first used: what measures only kernels uses it before.
    """
    # a client of httpx takes 40 ms to make, which would count as the broker's
    connection = HTTPConnection(broker.endpoints["admin"], timeout=30)
    deadline = time.monotonic() + 120
    while b"lading_kernels_ready 1.0" not in _get(connection, "/metrics"):
        if time.monotonic() > deadline:
            raise TimeoutError("the kernels were not loaded within 2 minutes")
        time.sleep(look_s)
    connection.close()


def _get(connection: HTTPConnection, path: str) -> bytes:
    connection.request("GET", path)
    return connection.getresponse().read()
