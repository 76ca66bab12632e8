"""An S3 server nobody here wrote, in front of a directory: versitygw (https://github.com/versity/versitygw)."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.interop import go_programs

VERSITYGW = ("github.com/versity/versitygw/cmd/versitygw", "v1.8.0")
KEY, SECRET, REGION = "lading", "lading-secret", "us-east-1"
START_S = 10.0


@dataclass(frozen=True)
class ObjectServer:
    """A running server, and the directory that holds its buckets."""

    url: str
    buckets: Path

    def at(self, url: str) -> ObjectServer:
        """Return the same server as it is reached through what listens at this address."""
        return replace(self, url=url)

    def create_bucket(self, name: str) -> str:
        """Create a bucket; returns its URL."""
        (self.buckets / name).mkdir()
        return f"s3://{name}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find it."""
        return {
            "AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
        }  # fmt: skip


def find_server() -> str:
    """Return the server's program, built once into the user's cache; skips the test where it cannot be."""
    try:
        return str(go_programs.program(*VERSITYGW))
    except go_programs.Unavailable as reason:
        pytest.skip(f"needs versitygw: {reason}")


@contextmanager
def run_object_server(
    directory: Path, port: int = 0, key: str = KEY, secret: str = SECRET, *, options: Sequence[str] = ("--keep-alive",)
) -> Iterator[ObjectServer]:
    """Run a server on this port, or a free one, until the block ends; the buckets are those of one before it."""
    program = find_server()
    buckets = directory / "buckets"
    buckets.mkdir(parents=True, exist_ok=True)
    with closing(socket.socket()) as tried:
        tried.bind(("127.0.0.1", 0))
        port = port or tried.getsockname()[1]
    command = [
        program, "--port", f"127.0.0.1:{port}", "--access", key, "--secret", secret, "--quiet", *options,
        "posix", str(buckets),
    ]  # fmt: skip
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "2"})
    try:
        _await_port(port, process, directory / "log")
        yield ObjectServer(f"http://127.0.0.1:{port}", buckets)
    finally:
        process.kill()
        process.wait()


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"no answer within {START_S} s: {log.read_text()}")
