"""Programs built from Go modules: clients of NSQ and Kafka, upstream's nsqd and nsqlookupd, and object stores.

Each is built once into the user's cache. Unavailable says in one sentence why it cannot be.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).with_name("nsq_go")
BUILD_TIMEOUT_S = 600
READY_TIMEOUT_S = 15.0
NSQ_VERSION = "v1.3.0"
SERVICE_FORK = "github.com/judwhite/go-svc => github.com/mreiferson/go-svc v1.2.2-0.20210815184239-7a96e00010f6"
"""nsqd's module replaces this dependency, and a module that requires nsqd must repeat the replacement."""


class Unavailable(Exception):
    """The program cannot be built here; the sentence says what is missing."""


def _go() -> str:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise Unavailable("Go is not installed")
    return go


def _cache(name: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lading" / f"go-{name}"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _run(directory: Path, *arguments: str, **environment: str) -> None:
    done = subprocess.run(
        ["nice", _go(), *arguments], cwd=directory, env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=BUILD_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"go {arguments[0]} fails here: {done.stderr.strip().splitlines()[-1:]}")


def client(name: str, sources: Path = SOURCES) -> Path:
    """The client program of ``sources``/NAME; those of NSQ are ``upstream`` and ``youzan``."""
    cache = _cache(name)
    source = (sources / name / "main.go").read_text()
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = cache / "client"
        if not built.exists() or (cache / "main.go").read_text() != source:
            shutil.copytree(sources / name, cache, dirs_exist_ok=True)
            _run(cache, "mod", "tidy")
            _run(cache, "build", "-o", "client", ".")
    return built


def server(name: str) -> Path:
    """Upstream's ``nsqd`` or ``nsqlookupd``."""
    cache = _cache("nsq-servers")
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / name).exists():
            (cache / "go.mod").write_text(f"module lading.test/servers\n\ngo 1.21\n\nreplace {SERVICE_FORK}\n")
            module = "github.com/nsqio/nsq"
            _run(cache, "get", f"{module}/apps/nsqd@{NSQ_VERSION}", f"{module}/apps/nsqlookupd@{NSQ_VERSION}")
            _run(cache, "build", "-o", ".", f"{module}/apps/nsqd", f"{module}/apps/nsqlookupd")
    return cache / name


def find_program(package: str, version: str) -> Path | None:
    """The program of a package, if it was built before."""
    name = package.rpartition("/")[2]
    built = _cache(f"{name}-{version}") / name
    return built if built.exists() else None


def program(package: str, version: str) -> Path:
    """The program of a package as its module has it, such as ``github.com/versity/versitygw/cmd/versitygw``."""
    name = package.rpartition("/")[2]
    cache = _cache(f"{name}-{version}")
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / name).exists():
            _run(cache, "install", f"{package}@{version}", GOBIN=str(cache))
    return cache / name


def compile_tests(module: str, version: str, package: str = ".") -> tuple[Path, Path]:
    """The tests of a module's package, compiled to a program, and the directory in which they run."""
    cache = _cache(f"tests-{module.rpartition('/')[2]}-{version}")
    tests, source = cache / "tests", cache / "source"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tests.exists():
            shutil.rmtree(source, ignore_errors=True)
            shutil.copytree(_download(cache, f"{module}@{version}"), source)
            # the module cache is read-only, and so would be its copy
            for path in (source, *source.rglob("*")):
                path.chmod(path.stat().st_mode | 0o200)
            # some modules, kafka-go for one, lack lines of go.mod that their tests need
            _run(source / package, "test", "-mod=mod", "-c", "-o", str(tests), ".")
    return tests, source / package


def _download(cache: Path, module: str) -> Path:
    """Where Go's cache has the source of a module, which is fetched if need be."""
    done = subprocess.run(
        [_go(), "mod", "download", "-json", module], cwd=cache, capture_output=True, text=True, check=False,
        timeout=BUILD_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"{module} cannot be fetched: {(done.stdout + done.stderr).strip()[-200:]}")
    return Path(json.loads(done.stdout)["Dir"])


@dataclass(frozen=True, slots=True)
class RunningNsq:
    """Upstream's nsqd and nsqlookupd, as ``host:port``."""

    nsqd_tcp: str
    nsqd_http: str
    nsqlookupd_tcp: str
    nsqlookupd_http: str
    nsqd_pid: int


@contextmanager
def running(directory: Path, *options: str) -> Iterator[RunningNsq]:
    """One nsqd, with more options, that registers at one nsqlookupd, on free ports of loopback; both end with it."""
    lookupd, nsqd = server("nsqlookupd"), server("nsqd")
    ports = [f"127.0.0.1:{port}" for port in _free_ports(4)]
    (directory / "data").mkdir(parents=True, exist_ok=True)
    commands = [
        [str(lookupd), f"-tcp-address={ports[2]}", f"-http-address={ports[3]}", "-broadcast-address=127.0.0.1"],
        [
            str(nsqd),
            f"-tcp-address={ports[0]}",
            f"-http-address={ports[1]}",
            f"-lookupd-tcp-address={ports[2]}",
            "-broadcast-address=127.0.0.1",
            f"-data-path={directory / 'data'}",
            *options,
        ],
    ]
    children: list[subprocess.Popen[bytes]] = []
    try:
        with (directory / "servers.log").open("wb") as log:
            for command, address in zip(commands, (ports[3], ports[1]), strict=True):
                children.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
                wait_until_open(children[-1], address)
        yield RunningNsq(ports[0], ports[1], ports[2], ports[3], children[-1].pid)
    finally:
        for child in reversed(children):
            child.terminate()
        for child in children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


def wait_until_open(child: subprocess.Popen[bytes], address: str, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Return when a server answers at ``host:port``. Raises Unavailable if it ends instead, or takes too long."""
    host, port = address.split(":")
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            if child.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"nothing listens on {address}") from None
            time.sleep(0.05)
        else:
            return


class Conversation:
    """A running client program: each request is one line of JSON, and so is its answer."""

    def __init__(self, program: Path) -> None:
        self._child = subprocess.Popen(
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer; bytes among the values travel as base64, as Go's encoding/json has it."""
        child = self._child
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(json.dumps(request, default=_encoded) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        assert line, f"the client ended with {child.wait(10)}"
        answer: dict[str, Any] = json.loads(line)
        for message in answer.get("messages") or ():
            message["body"] = base64.b64decode(message["body"] or "")
        return answer

    def close(self) -> None:
        """Let the program end, or end it."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def _encoded(value: Any) -> str:
    return base64.b64encode(value).decode()
