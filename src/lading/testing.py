"""The broker for tests: starts on free ports with a directory of its own, ready in well under a second.

It ends with the process that started it, however that ends.

from lading import testing

with testing.broker() as broker:
    broker.endpoints["iggy_tcp"]   # "127.0.0.1:49152"
    broker.url                     # "lading://127.0.0.1:49153"
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .model.errors import LocalError

FREE_PORT = "127.0.0.1:0"
READY_TIMEOUT_S = 90.0
"""A start takes a second; of many that share a machine with other work, each may take half a minute."""
STOP_TIMEOUT_S = 60.0
"""As long, for the same reason."""
HANG_S = 4.0
"""A broker that has not heard the signal to stop after this long hangs."""
LAST_WORDS_S = 0.5
STOPPING = "stopping: requests under way are answered first"
"""What a broker logs when it has heard the signal."""


@dataclass(slots=True)
class Running:
    """A broker that runs as a child process."""

    process: subprocess.Popen[bytes]
    endpoints: dict[str, str]
    """``host:port`` by endpoint name."""
    data_dir: Path
    started_s: float
    """Seconds from start to the ready line."""
    log_file: Path
    """What the broker wrote to standard error."""

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def url(self) -> str:
        """What transports, clients and Spark take: ``lading://host:port``."""
        return f"lading://{self.endpoints['admin']}"

    def stop(self) -> int:
        """Stop gracefully and return the exit code; LocalError with its stacks where it hangs (it is killed then)."""
        if self.process.poll() is None:
            said = self.log_file.stat().st_size
            self.process.send_signal(signal.SIGTERM)
            if not self._ended_within(HANG_S) and STOPPING.encode() not in self._said_since(said):
                raise self._hang_error(f"did not hear SIGTERM within {HANG_S:g} s")
            if not self._ended_within(STOP_TIMEOUT_S):
                raise self._hang_error(f"did not stop within {STOP_TIMEOUT_S:g} s")
        self._close_pipes()
        return self.process.wait()

    def _ended_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def _said_since(self, at: int) -> bytes:
        with self.log_file.open("rb") as file:
            file.seek(at)
            return file.read()

    def _hang_error(self, what: str) -> LocalError:
        """Kill the broker; the stacks of its threads are in the error."""
        said = self.log_file.stat().st_size
        self.process.send_signal(signal.SIGABRT)
        self._ended_within(LAST_WORDS_S)
        self.kill()
        stacks = self._said_since(said).decode(errors="replace").strip()
        return LocalError(f"broker {self.pid}: {what} and was killed; its stacks: {stacks or 'none'}")

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def kill(self) -> None:
        """End it at once, as a crash would: nothing is flushed."""
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)
        self._close_pipes()


@contextmanager
def broker(
    data_dir: Path | str | None = None,
    *,
    timeout_s: float = READY_TIMEOUT_S,
    settings: Mapping[str, Any] | None = None,
    **named: Any,
) -> Iterator[Running]:
    """A broker on free ports, stopped at the end.

    ``data_dir`` is kept; without one a temporary directory is used and removed. Settings go by dotted key in
    ``settings`` or as names with ``__`` for the dot: ``broker(durability="os", endpoints__admin__token="t")``.
    LocalError with the broker's own words when it does not get ready within ``timeout_s``.
    """
    from .settings import EndpointSettings

    wanted: dict[str, Any] = {f"endpoints.{name}.address": FREE_PORT for name in EndpointSettings.model_fields}
    wanted |= settings or {}
    wanted |= {name.replace("__", "."): value for name, value in named.items()}
    with tempfile.TemporaryDirectory(prefix="lading-") as scratch:
        directory = Path(data_dir) if data_dir is not None else Path(scratch, "data")
        running = start(directory, wanted, Path(scratch, "stderr.log"), timeout_s)
        try:
            yield running
        finally:
            if running.process.poll() is None:
                running.stop()
            running._close_pipes()


def start(data_dir: Path, settings: Mapping[str, Any], log_file: Path, timeout_s: float = READY_TIMEOUT_S) -> Running:
    """Start a broker and wait for its ready line; the caller stops it."""
    from .settings import SECRETS
    from .settings_sources import ENVIRONMENT_PREFIX

    command = [sys.executable, "-m", "lading.cli.main", "serve", "--data", str(data_dir), "--output", "json"]
    command.append("--with-parent")
    # settings of the surrounding shell are not this broker's
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    for key, value in settings.items():
        if key in SECRETS:
            # the process list shows arguments to everybody
            environment[ENVIRONMENT_PREFIX + key.upper().replace(".", "__")] = str(value)
        else:
            command += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    began = time.monotonic()
    with log_file.open("wb") as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment
        )
    line = _first_line(process, began + timeout_s)
    if not line:
        if process.poll() is None:
            process.kill()
        code = process.wait(STOP_TIMEOUT_S)
        words = log_file.read_text(errors="replace").strip() or f"nothing, and left with code {code}"
        raise LocalError(f"the broker did not get ready within {timeout_s:g} s; it said: {words}")
    ready = json.loads(line)
    return Running(process, ready["endpoints"], data_dir, time.monotonic() - began, log_file)


def _first_line(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    assert process.stdout is not None
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while b"\n" not in line:
            if not selector.select(max(deadline - time.monotonic(), 0)):
                return b""
            if not (read := os.read(process.stdout.fileno(), 4096)):
                return b""
            line += read
    return line.partition(b"\n")[0]
