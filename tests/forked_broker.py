"""Brokers of tests as forks of one process that has imported everything.

A start of ``lading serve`` takes most of a second of CPU for imports, and a run of the tests starts some hundreds. Each
process of tests has one warm process instead, and ``testing.start`` has it fork: the
child runs the same command line as a process of its own, with the environment, directory and pipes that it would have
had, and is a child of the process of tests, so that ``Popen`` waits for it as for any other. ``LADING_TEST_FORK=0``
starts every broker afresh, and so does a start whose environment may change what was imported.
``tests/endpoints/test_serve.py`` starts the command itself.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from lading.testing.prepared_process import read_early

READ_BY_CHILDREN = ("SPARK", "PYSPARK", "JDK_", "XDG_STATE_HOME")
"""What differs between tests too; no broker looks at it."""
REQUEST_BYTES_MAX = 128 << 10
PR_SET_CHILD_SUBREAPER = 36
SCRYPT_LOG2_N = 4
"""Of the passwords of tests: at full strength each user and each login takes a fifth of a second of CPU."""
_first_environment: dict[str, str] = {}
"""What brokers depend on, at the first call of ``require_same_environment``."""


class ForkedBroker(subprocess.Popen[Any]):
    """A process that is forked from the warm one instead of executed."""

    module: ClassVar = "tests.forked_broker"
    """The program that the warm process runs."""
    warm: ClassVar[WarmProcess | None] = None

    def _execute_child(self, *arguments: Any) -> None:
        """See subprocess.Popen: sets ``pid``, closes the ends of pipes that are the child's."""
        given = inspect.signature(subprocess.Popen._execute_child).bind(self, *arguments).arguments  # type: ignore[attr-defined]
        cls = type(self)
        if cls.warm is None or not cls.warm.is_usable:
            cls.warm = WarmProcess(cls.module)
        ends = [given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        directory = Path.cwd() if given["cwd"] is None else Path(given["cwd"])
        environment = os.environ if given["env"] is None else given["env"]
        # a stream that is not given is that of this process
        streams = [end if end >= 0 else number for number, end in enumerate((ends[0], ends[3], ends[5]))]
        self.pid = cls.warm.fork(given["args"], environment, directory, streams)
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]


def launch(command: list[str], **streams: Any) -> subprocess.Popen[bytes]:
    """Start a broker: by a fork where that makes no difference, else by executing the command."""
    warm = ForkedBroker.warm
    imported_with = os.environ if warm is None else warm.environment
    same = _environment_of_broker(streams["env"]) == _environment_of_broker(imported_with)
    if same and os.environ.get("LADING_TEST_FORK") != "0":
        return ForkedBroker(command, **streams)
    return subprocess.Popen(command, **streams)


def require_same_environment() -> None:
    """Raise AssertionError, once, if a variable that keeps brokers from being forks is not what it was at first."""
    now = _environment_of_broker(os.environ)
    before = dict(_first_environment or now)
    _first_environment.clear()
    _first_environment.update(now)
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if changed:
        raise AssertionError(f"a test left variables of the environment changed: {', '.join(changed)}; restore them")


def _environment_of_broker(environment: Any) -> dict[str, str]:
    return {name: value for name, value in read_early(environment).items() if not name.startswith(READ_BY_CHILDREN)}


class WarmProcess:
    """The process that forks, started for the first child; it ends with this one."""

    def __init__(self, module: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self.environment = dict(os.environ)
        self.is_usable = True
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd=Path(__file__).parents[1],
            )  # fmt: skip

    def fork(self, command: list[str], environment: Mapping[str, str], directory: Path, handles: Sequence[int]) -> int:
        """Return the id of a new child of this process."""
        request = json.dumps(
            {"command": command, "environment": dict(environment), "directory": str(directory)}
        ).encode()
        # the warm process forks twice, and what loses its parent becomes a child of a subreaper above it
        prctl = ctypes.CDLL(None).prctl
        with self._lock:
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [request], handles)
                return int(self._socket.recv(64))
            except BaseException:
                # a response that comes after a test's time-out would be taken for that of the next request
                self.is_usable = False
                self._process.kill()
                raise
            finally:
                prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _import_all() -> None:
    """Import what a broker imports, as it does, and load its kernels."""
    from lading.broker.core.access import credentials
    from lading.cli.prepared_serve import import_broker
    from lading.dialects.kafka import requests, versions
    from lading.kernels import engine
    from tests import guard_pages

    guard_pages.install_if_asked()
    import_broker()
    vars(credentials)["SCRYPT_LOG2_N"] = SCRYPT_LOG2_N
    requests.prepare_codecs(versions.SERVED)
    # compiling them takes minutes, in which no test would have a broker: each compiles beside its service then
    if (engine.cache_dir() / "complete").exists():
        for home in engine.list_kernel_modules():
            engine.load(home)


def _fork_on_request(requests: socket.socket) -> list[str] | None:
    """Fork until the process of tests is gone; returns in each broker, with its arguments."""
    while True:
        request, handles, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
        if not request:
            return None
        read, write = os.pipe()
        middle = os.fork()
        if middle:
            for handle in (write, *handles):
                os.close(handle)
            os.waitpid(middle, 0)
            # not before the one between them is gone: now the broker is a child of the process of tests
            requests.send(os.read(read, 64))
            os.close(read)
            continue
        if broker := os.fork():
            os.write(write, str(broker).encode())
            os._exit(0)
        os.close(read)
        os.close(write)
        requests.close()
        for number, handle in enumerate(handles):
            os.dup2(handle, number)
            os.close(handle)
        asked = json.loads(request)
        os.chdir(asked["directory"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        return list(asked["command"])


def serve_forks(prepare: Callable[[], None]) -> list[str] | None:
    """Be a warm process; returns the command in each fork, and None at the end of the process of tests."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    # Ctrl-C reaches the whole group: the process of tests stops its children, and this one ends with it
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare()
    gc.collect()
    gc.freeze()
    # OpenBLAS and jemalloc have threads too, and handlers for forks
    if threading.active_count() > 1:
        sys.exit(f"a process with threads cannot be forked, and what was imported started {threading.enumerate()}")
    command = _fork_on_request(requests)
    signal.signal(signal.SIGINT, interrupt)
    return command


def run_and_exit(program: Callable[[], None]) -> None:
    """Run what a fork is for and end the process; returns, or raises, if there is something to say at its end.

    It ends as Python does, but takes none of the imported modules apart: that would copy all their pages first, a
    quarter of what a fork takes.
    """
    code = 0
    try:
        program()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        code = ended.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        # Python flushes again, says what is wrong, and ends with the code for that
        sys.exit(code)
    os._exit(code & 0xFF)


def main() -> None:
    """Be the warm process; in each fork, be a broker."""
    command = serve_forks(_import_all)
    if command is None:
        return
    from lading.cli.main import main as lading

    run_and_exit(lambda: lading(command[3:]))


if __name__ == "__main__":
    main()
