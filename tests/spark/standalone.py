"""A standalone Spark cluster of processes: a master, and workers with directories and environments of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.interop.kafka_broker import free_ports

HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 120
DAEMON_MEMORY = "256m"


@dataclass
class Machine:
    """A process that sees nothing of ours but what Spark sends it: master, worker or driver, with all it starts."""

    directory: Path
    command: list[str]
    told: dict[str, str] = field(default_factory=dict)
    child: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.directory / "log"

    def start(self, ready: str = "") -> None:
        """Start it, and wait until it printed ``ready``."""
        for name in ("home", "tmp", "local"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory / "home"),
            "TMPDIR": str(self.directory / "tmp"),
            "SPARK_LOCAL_DIRS": str(self.directory / "local"),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "JDK_JAVA_OPTIONS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={self.directory / 'tmp'}",
            **self.told,
        }
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as out:
            self.child = subprocess.Popen(
                self.command, cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT_S
        while ready not in self.log.read_bytes()[before:].decode(errors="replace"):
            assert self.child.poll() is None and time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.1)

    def kill(self) -> None:
        """End it and all that it started, without a warning, as a machine that loses its power."""
        assert self.child is not None
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait(30)


@dataclass
class Cluster:
    """The running cluster; ``url`` is what ``spark-submit --master`` takes."""

    url: str
    machines: list[Machine]

    def driver(self, directory: Path, arguments: list[str], told: dict[str, str]) -> Machine:
        """Return a driver, to be started, which ends with the cluster."""
        submit = [str(HOME / "bin" / "spark-submit"), "--master", self.url, *arguments]
        self.machines.append(Machine(directory, submit, told))
        return self.machines[-1]

    @property
    def workers(self) -> list[Machine]:
        """The workers."""
        return [one for one in self.machines if one.directory.name.startswith("worker")]


@contextmanager
def running(directory: Path, workers: int = 2) -> Iterator[Cluster]:
    """A master and ``workers`` with a core each, ended with the block."""
    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    start = str(HOME / "bin" / "spark-class")
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    master = Machine(directory / "master", [start, "org.apache.spark.deploy.master.Master", *here, "--port", str(port)])
    cluster = Cluster(url, [master])
    for number in range(workers):
        place = directory / f"worker-{number}"
        limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(place / "work")]
        cluster.machines.append(Machine(place, [start, "org.apache.spark.deploy.worker.Worker", *here, *limits, url]))
    try:
        master.start("I have been elected leader")
        for worker in cluster.workers:
            worker.start("Successfully registered with master")
        yield cluster
    finally:
        for machine in reversed(cluster.machines):
            if machine.child is not None:
                machine.kill()
