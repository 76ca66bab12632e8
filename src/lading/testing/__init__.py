"""The broker for tests: starts on free ports with a directory of its own, ready in well under a second.

It ends with the process that started it, however that ends.

from lading import testing

with testing.broker() as broker:
    broker.endpoints["iggy_tcp"]   # "127.0.0.1:49152"
    broker.url                     # "lading://127.0.0.1:49153"
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import SOCK_DGRAM
from typing import Any

from ..model.errors import LocalError
from .held_ports import PortHolder, choose_datagram_address
from .prepared_process import PreparedProcess

FREE_PORT = "127.0.0.1:0"
READY_TIMEOUT_S = 90.0
"""A start takes a second; of many that share a machine with other work, each may take half a minute."""
HANG_S = 4.0
"""A broker counts as hung if its event loop does not run for this long, if it has not heard the signal to stop within
it, or if it has not ended this long after the time that it grants its connections. On a busy machine the limit is twice
the time of its start, if that is more."""
DRAIN_S = 5.0
"""Time that a stopping broker gives its connections to finish: ``DRAIN_TIMEOUT_S`` of its endpoints."""
END_TIMEOUT_S = 60.0
"""A killed process has ended by then, even if its memory was swapped out."""
LAST_WORDS_S = 0.5
LAST_WORDS_MAX = 16 << 10
"""Size limit of the end of a log that goes into an error."""
STALLED_EXIT_CODES = (70, -signal.SIGALRM)
"""Exit codes of a broker that its own watchdog ended."""
STOPPING = "stopping after the requests in flight"
"""Log line of a broker that has received the signal."""
launch: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
"""Starts a process."""
_prepared: PreparedProcess | None = None
_preparing = threading.Lock()


@dataclass(slots=True)
class BrokerProcess:
    """A broker that runs as a child process."""

    process: subprocess.Popen[bytes]
    endpoints: dict[str, str]
    """``host:port`` by endpoint name."""
    data_dir: Path
    started_s: float
    """Seconds from start to the ready line."""
    log_file: Path
    """The broker's standard error."""
    _is_told: bool = False
    """Whether a hang was raised to the caller."""

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def url(self) -> str:
        """Address for transports, clients and Spark: ``lading://host:port``."""
        return f"lading://{self.endpoints['admin']}"

    def stop(self) -> int:
        """Stop gracefully and return the exit code; raises LocalError with the stacks of a broker that hangs or hung.

        One that hangs is killed. Its log is kept, and the error names it.
        """
        if self.process.poll() is None:
            patience_s = max(HANG_S, 2 * self.started_s)
            said = self.log_file.stat().st_size
            self.process.send_signal(signal.SIGTERM)
            if not self._has_ended_within(patience_s) and STOPPING.encode() not in self._read_log_from(said):
                raise self._hang_error(f"did not react to SIGTERM within {patience_s:.3g} s")
            if not self._has_ended_within(DRAIN_S):
                raise self._hang_error(f"did not stop within {DRAIN_S + patience_s:.3g} s")
        self._close_pipes()
        self._require_not_stalled()
        return self.process.wait()

    def _require_not_stalled(self) -> None:
        """Raise LocalError, once, if the broker's event loop stood still, so that its watchdog ended it."""
        if self.process.poll() in STALLED_EXIT_CODES and not self._is_told:
            raise self._hung_broker_error("its event loop stood still, which ended it", self._read_log_from(0))

    def _has_ended_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def _read_log_from(self, at: int) -> bytes:
        with self.log_file.open("rb") as file:
            file.seek(at)
            return file.read()

    def _hang_error(self, what: str) -> LocalError:
        """Kill the broker; the stacks of its threads are in the error."""
        said = self.log_file.stat().st_size
        self.process.send_signal(signal.SIGABRT)
        self._has_ended_within(LAST_WORDS_S)
        self.kill()
        return self._hung_broker_error(f"{what} and was killed", self._read_log_from(said))

    def _hung_broker_error(self, what: str, words: bytes) -> LocalError:
        """Return the error that says how the broker hung, with a copy of its log that outlives this directory."""
        self._is_told = True
        handle, kept = tempfile.mkstemp(prefix=f"lading-{self.pid}-", suffix=".log")
        with open(handle, "wb") as file:
            file.write(self._read_log_from(0))
        stacks = words[-LAST_WORDS_MAX:].decode(errors="replace").strip()
        return LocalError(f"broker {self.pid}: {what}; its log is kept in {kept}, its stacks: {stacks or 'none'}")

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def kill(self) -> None:
        """End it at once, as a crash would: nothing is flushed."""
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(END_TIMEOUT_S)
        self._close_pipes()


def prepare() -> None:
    """Begin a process that imports what a broker needs; the next broker that is started here is that process.

    Returns at once: what the caller does meanwhile, such as importing clients, no longer adds to the start. Further
    calls do nothing until then. ``forget_prepared`` ends a process that is not wanted after all.
    """
    global _prepared
    with _preparing:
        # another launcher may have the imports already
        if _prepared is None and launch is subprocess.Popen:
            _prepared = PreparedProcess()


def forget_prepared() -> None:
    """End the process that ``prepare`` started, unless it became a broker."""
    prepared = _take_prepared()
    if prepared is not None:
        prepared.end()


def _take_prepared() -> PreparedProcess | None:
    global _prepared
    with _preparing:
        prepared, _prepared = _prepared, None
    # a fork of this process has a copy of it, but is not its parent
    return prepared if prepared is not None and prepared.owner == os.getpid() else None


atexit.register(forget_prepared)


@contextmanager
def broker(
    data_dir: Path | str | None = None,
    *,
    timeout_s: float = READY_TIMEOUT_S,
    settings: Mapping[str, Any] | None = None,
    **named: Any,
) -> Iterator[BrokerProcess]:
    """A broker on free ports, stopped at the end.

    ``data_dir`` is kept; without one a temporary directory is used and removed. Settings go by dotted key in
    ``settings`` or as names with ``__`` for the dot: ``broker(durability="os", endpoints__admin__token="t")``.
    LocalError with the broker's own words when it does not get ready within ``timeout_s``, or hangs: its watchdog ends
    it after HANG_S, in place of the minute that ``broker.stall_timeout_ms`` is otherwise.
    """
    prepare()
    from ..settings.settings import EndpointSettings

    wanted: dict[str, Any] = {f"endpoints.{name}.address": FREE_PORT for name in EndpointSettings.model_fields}
    wanted["broker.stall_timeout_ms"] = int(HANG_S * 1_000)
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
            running._require_not_stalled()


def hold_endpoints(ports: PortHolder) -> dict[str, str]:
    """Return settings that give each endpoint an address of its own, for a broker that is started more than once."""
    from ..dialects.protocols import ENDPOINTS

    return {
        f"endpoints.{name}.address": choose_datagram_address() if spec.socket_kind is SOCK_DGRAM else ports.hold()
        for name, spec in ENDPOINTS.items()
    }


def start(
    data_dir: Path,
    settings: Mapping[str, Any],
    log_file: Path,
    timeout_s: float = READY_TIMEOUT_S,
    options: Sequence[str] = (),
) -> BrokerProcess:
    """Start a broker, with more ``options`` of ``lading serve``, and wait for its ready line; the caller stops it."""
    from ..settings.settings import is_secret
    from ..settings.sources import ENVIRONMENT_PREFIX

    # with another store, the messages are in that store
    place = [] if settings.get("store") else ["--data", str(data_dir)]
    arguments = ["serve", *place, "--output", "json", "--with-parent", *options]
    # settings of the surrounding shell are not this broker's
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    for key, value in settings.items():
        if is_secret(key):
            # the process list shows arguments to everybody
            environment[ENVIRONMENT_PREFIX + key.upper().replace(".", "__")] = str(value)
        else:
            arguments += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    began = time.monotonic()
    log_file.unlink(missing_ok=True)
    begun = _start_prepared(arguments, environment, log_file, began + timeout_s)
    if begun is None:
        command = [sys.executable, "-m", "lading.cli.main", *arguments]
        with log_file.open("wb") as stderr:
            process = launch(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment)
        begun = process, _first_line(process, began + timeout_s)
    process, line = begun
    if not line:
        raise _start_error(process, log_file, timeout_s)
    ready = json.loads(line)
    return BrokerProcess(process, ready["endpoints"], data_dir, time.monotonic() - began, log_file)


def _start_prepared(
    arguments: Sequence[str], environment: Mapping[str, str], log_file: Path, deadline: float
) -> tuple[subprocess.Popen[bytes], bytes] | None:
    """Return the prepared process as this broker, and its first line; None if no prepared process fits."""
    prepare()
    prepared = _take_prepared()
    if prepared is None:
        return None
    if prepared.hand_over(arguments, environment, log_file):
        line = _first_line(prepared.process, deadline)
        if line or log_file.exists():
            return prepared.process, line
    # a process that ends in the middle of its imports prints nothing: a fresh one that runs the same imports shows the
    # error
    prepared.end()
    return None


def _start_error(process: subprocess.Popen[bytes], log_file: Path, timeout_s: float) -> LocalError:
    """Return why a broker did not start, in its own words; end it if it is still starting."""
    # the process closes its pipes a moment before it ends
    with suppress(subprocess.TimeoutExpired):
        process.wait(LAST_WORDS_S)
    is_late = process.poll() is None
    if is_late:
        process.kill()
    code = process.wait(END_TIMEOUT_S)
    said = log_file.read_text(errors="replace").strip()
    # the error message of the command line comes after the lines of its log
    words = f"\n{said}".rpartition("\nlading: ")[2].strip()
    if is_late:
        return LocalError(f"the broker did not get ready within {timeout_s:g} s; it said: {words or 'nothing'}")
    return LocalError(f"the broker did not start: {words or f'it left with code {code} and said nothing'}")


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
