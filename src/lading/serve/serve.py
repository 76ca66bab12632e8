"""``lading serve``: assembles the rooms, owns the data directory's lock, the ready line and the signals (design.md
Process).
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import json
import logging
import os
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final

from ..dialects.protocols import ENDPOINTS
from ..endpoints.base.admission import set_keepalive
from ..endpoints.base.services import AddressInUse, Endpoint, Services, format_bound_address, listen
from ..endpoints.base.trimming import trimming
from ..endpoints.base.watchdog import watch_loop
from ..endpoints.encryption.renewal import CertificateRenewal
from ..kernels import engine
from ..model.errors import LocalError
from ..model.protocol import EndpointSpec
from ..model.version import __version__
from ..runtime.clock import now_us
from ..runtime.log_lines import logging_to_stderr, quiet_uvicorn
from ..runtime.metrics import Histogram, Metrics
from ..runtime.open_files import raise_open_files_limit
from ..runtime.owned_directory import lock_data_directory
from ..settings.settings import Settings
from ..settings.sources import ENVIRONMENT_PREFIX
from .forked_call import calling_in_fork
from .lean_imports import install_lean_imports
from .service_manager import ServiceManager
from .stores import get_opener, log_store, prepare_store

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.core.access.access import AccessControl
    from ..broker.core.change import Change
    from ..broker.core.injected_faults import InjectedFaults
    from ..log.disk import Disk
    from ..log.found_files import FoundFiles
    from ..log.interface import Commit, Syncable

log = logging.getLogger("lading")

Beside = Callable[[Mapping[str, str]], contextlib.AbstractContextManager[Mapping[str, str]]]
"""Starts a companion of the broker at these addresses; returns the addresses to be added to the ready line."""
WORKERS_TURN_S: Final = 0.0005
"""How long the loop waits for a worker that holds the interpreter; Python's default of 5 ms is longer than a whole
response takes.
"""
TOPICS_MIN: Final = 200
"""Number of topics below which the check takes less time than creating a process."""
DURABILITY_WORDS: Final = {
    "fsync": "durability fsync: a message is on disk before it is acknowledged",
    "os": "durability os: a message is in the page cache when it is acknowledged; a power cut may lose it",
    "none": "durability none: nothing is synced, which is for tests; a power cut may lose the data directory",
}


def run(
    settings: Settings,
    *,
    output: str = "text",
    exposed_secrets: Sequence[str] = (),
    load: Callable[[], Settings] | None = None,
    beside: Beside | None = None,
    test_faults: bool = False,
) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code 0.

    ``load`` reads the settings again at SIGHUP; without it they stay as they are. ``beside`` starts the companion that
    runs with the broker. With ``test_faults``, tests may make the broker fail by requests to ``/faults`` of the admin
    endpoint. ``exposed_secrets`` are keys of settings that were given as arguments although arguments are visible to
    others. Raises LocalError, one sentence long, if the broker cannot start: directory in use or unwritable, port
    taken.
    """
    quiet_uvicorn()
    # the stacks of a process that crashes, or that is ended with SIGABRT because it hangs
    faulthandler.enable()
    raise_open_files_limit()
    # SQLite and libraries create files too: other users may read none of them
    os.umask(0o077)
    sys.setswitchinterval(WORKERS_TURN_S)
    install_lean_imports()
    with (
        logging_to_stderr(settings.log_format),
        prepare_store(settings) as fit,
        lock_data_directory(fit(settings).data),
        _checking_files(fit(settings).data) as find_files,
        _runner() as runner,
    ):
        settings, load_settings = fit(settings), load
        for key in exposed_secrets:
            log.warning(
                "setting %s: arguments are visible to every user of this machine; "
                "put the token into a file (%s_file) or the environment (%s)",
                key, key, ENVIRONMENT_PREFIX + key.upper().replace(".", "__"),
            )  # fmt: skip
        logging.getLogger().setLevel(settings.log_level.upper())
        runner.run(
            serve(
                settings,
                output=output,
                load=None if load_settings is None else lambda: fit(load_settings()),
                beside=beside,
                test_faults=test_faults,
                find_files=find_files,
            )
        )
    return 0


async def serve(
    settings: Settings,
    *,
    output: str = "text",
    announce: Callable[[str], None] | None = None,
    disk: Disk | None = None,
    commit: Commit | None = None,
    load: Callable[[], Settings] | None = None,
    beside: Beside | None = None,
    test_faults: bool = False,
    find_files: Callable[[], FoundFiles | None] | None = None,
) -> None:
    """Start everything, announce the ready line, wait for SIGTERM or SIGINT, drain and close.

    The caller holds the lock of the data directory. ``disk`` and ``commit`` replace the real disk, for example by one
    that fails when a test wants it to. ``find_files`` returns what the format gate has found on a real one, or None.
    """
    loop = asyncio.get_running_loop()
    stopped, reload, manager = asyncio.Event(), asyncio.Event(), ServiceManager()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    reloads: list[Callable[[], None]] = [reload.set]
    loop.add_signal_handler(signal.SIGHUP, _on_hangup(stopped, reloads, manager))
    log_store(settings)
    if settings.store is None:
        log.info("%s; data in %s", DURABILITY_WORDS[settings.durability], settings.data.resolve())
    metrics = Metrics()
    with contextlib.ExitStack() as closing:
        listeners = {name: closing.enter_context(listener) for name, listener in _bind_listeners(settings)}
        workers = closing.enter_context(running_workers(settings.workers))
        faults = _make_faults(settings) if test_faults else None
        # imported before the files are asked for, which are looked through meanwhile
        factories = {name: resolve_name(_spec_of(name).factory) for name in listeners}
        broker = closing.enter_context(
            _open_broker(settings, metrics, disk if faults is None else faults.disk, commit, find_files)
        )
        from .duties import copy_dead_letters, make_duty_timer

        _log_recoveries(broker)
        services = Services(broker, settings, metrics, workers)
        if faults is not None:
            services.faults = faults
            faults.install(broker.appender, broker.catalog)
        if load is not None:
            from ..endpoints.base.broker_settings import SettingsReload, report_access_file

            reloads.insert(0, partial(report_access_file, broker.access))
            services.limits_callbacks += [partial(_set_keepalive, listener) for listener in listeners.values()]
            reloads.insert(0, SettingsReload(services, load).reload)
        # all of them before one starts: what is wrong in the settings is found while the loop has nothing to undo
        endpoints: list[Endpoint] = [factory(services, name) for name, factory in factories.items()]
        for endpoint, listener in zip(endpoints, listeners.values(), strict=True):
            await endpoint.start(listener)
        services.authenticator.start()
        closing.enter_context(make_duty_timer(services).running())
        closing.enter_context(watch_loop(loop, settings.broker.stall_timeout_ms))
        closing.enter_context(trimming(services))
        letters = loop.create_task(copy_dead_letters(services))
        certificates = loop.create_task(CertificateRenewal.of(services).watch(services, reload, manager.tell_ready))
        addresses = {name: format_bound_address(listener) for name, listener in listeners.items()}
        if beside is not None:
            addresses |= closing.enter_context(beside(addresses))
        (announce or _print)(_ready_line(settings, addresses, output))
        manager.tell_ready()
        closing.enter_context(manager.signs_of_life(loop))
        _warm_up()
        await stopped.wait()
        log.info("stopping after the requests in flight")
        manager.tell_stopping()
        services.begin_stop()
        await asyncio.gather(*(endpoint.stop() for endpoint in endpoints))
        letters.cancel()
        certificates.cancel()
    log.info("stopped")


@contextlib.contextmanager
def running_workers(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for long work. At the end work in progress is finished; waiting work is dropped with its requests."""
    workers = ThreadPoolExecutor(count, "lading-worker")
    try:
        yield workers
    finally:
        workers.shutdown(cancel_futures=True)


def _checking_files(
    data: Path, topics_min: int = TOPICS_MIN
) -> contextlib.AbstractContextManager[Callable[[], FoundFiles | None]]:
    """Let the format gate check a large data directory in a process beside the rest of the start.

    With thousands of partitions it takes as long as the imports that are still to come, and neither needs what the
    other finds. Yields a function that waits for the result: the files found, or None if the gate still has to check,
    as in a small directory and after any error. The caller holds the lock of the directory, so that what was found
    stays true.
    """
    topics = data / "topics"
    if not topics.is_dir() or len(os.listdir(topics)) < topics_min:  # noqa: PTH208
        return contextlib.nullcontext(lambda: None)
    return calling_in_fork(partial(_check_files, data))


def _check_files(data: Path) -> FoundFiles:
    # here, so that the process is made before NumPy is imported, which takes half as long as the check
    from ..log.formats import GATE

    return GATE.check_directory(data)


def _make_faults(settings: Settings) -> InjectedFaults:
    from ..broker.core.injected_faults import InjectedFaults
    from ..log.disk import DISKS

    log.warning("tests may have this broker fail, by requests to /faults of the admin endpoint: it is for tests alone")
    return InjectedFaults(DISKS[settings.durability]())


def _on_hangup(
    stopped: asyncio.Event, reloads: Sequence[Callable[[], None]], manager: ServiceManager
) -> Callable[[], None]:
    """Return the handler of SIGHUP: it reads the settings again, but ends a broker whose terminal was closed."""
    is_in_terminal = os.isatty(0)

    def on_hangup() -> None:
        if is_in_terminal and not os.isatty(0):
            stopped.set()
        else:
            log.info("SIGHUP: reading settings and certificates again")
            manager.tell_reloading()
            for reload in reloads:
                reload()

    return on_hangup


def _bind_listeners(settings: Settings) -> Iterator[tuple[str, socket.socket]]:
    """Bound sockets of all endpoints that are on; binding comes first, so that a taken port costs no recovery."""
    taken: list[AddressInUse] = []
    for name, endpoint in settings.endpoints.sections():
        if endpoint.enabled:
            try:
                listener = listen(name, endpoint.address, _spec_of(name).socket_kind)
            except AddressInUse as error:
                # try the other endpoints as well: one error names them all
                if endpoint.is_left_out_if_taken and endpoint.model_fields_set.isdisjoint({"address", "enabled"}):
                    log.warning("%s; this broker runs without it", error)
                else:
                    taken.append(error)
                continue
            set_keepalive(listener, settings.connections)
            yield name, listener
    if len(taken) > 1:
        raise LocalError(
            f"{len(taken)} addresses are in use by other programs: {', '.join(error.place for error in taken)}; set "
            "other ports (port 0 chooses a free one), or name the protocols that you need with --only, such as "
            "--only kafka"
        )
    if taken:
        raise taken[0]


def _set_keepalive(listener: socket.socket, settings: Settings) -> None:
    set_keepalive(listener, settings.connections)


def _spec_of(name: str) -> EndpointSpec:
    """Return the spec of an endpoint, ``kafka``, or of the endpoint of a listener, ``kafka.external``."""
    return ENDPOINTS[name.partition(".")[0]]


@contextlib.contextmanager
def _open_broker(
    settings: Settings,
    metrics: Metrics,
    disk: Disk | None,
    commit: Commit | None,
    find_files: Callable[[], FoundFiles | None] | None,
) -> Iterator[Broker]:
    """The broker on its store, wired to the running event loop; flushed, synced and closed at the end."""
    open_broker = get_opener(settings)
    if open_broker is not None:
        from ..endpoints.base.broker_settings import to_broker_settings

        with open_broker(str(settings.store), settings.data, to_broker_settings(settings)) as broker:
            _connect_to_loop(broker)
            yield broker
        return
    from ..broker.broker import Broker
    from ..endpoints.base.broker_settings import to_broker_settings
    from ..log.group_commit import GroupCommit, WriteOnly

    loop = asyncio.get_running_loop()
    if commit is None:
        waits = settings.durability == "fsync"
        write_only = WriteOnly(GroupCommit(threads=1) if settings.durability == "os" else None)
        commit = _TimedCommit(GroupCommit(), metrics.sync_seconds) if waits else write_only
    # thousands of partitions are objects that stay: looking through them again and again takes half of the start
    gc.disable()
    try:
        found = None if find_files is None else find_files()
        broker = Broker.open(
            settings.data, to_broker_settings(settings), now_us=now_us(), disk=disk, commit=commit, found=found
        )
        # else the first object made after this starts a search through all of them, before the ready line
        gc.freeze()
    finally:
        gc.enable()

    _connect_to_loop(broker)
    broker.compaction.executor = ThreadPoolExecutor(1, "lading-compaction")
    handle = broker.commit.fileno()
    if handle is not None:
        loop.add_reader(handle, broker.commit.complete)
    try:
        yield broker
    finally:
        if handle is not None:
            loop.remove_reader(handle)
        broker.stop()
        broker.compaction.executor.shutdown()


def _connect_to_loop(broker: Broker) -> None:
    """Have the event loop call the callbacks that the broker schedules."""
    loop = asyncio.get_running_loop()

    def flush_soon() -> None:
        # what arrives within one pass of the loop shares a chunk, a write and a sync
        loop.call_soon(broker.appender.flush)

    broker.appender.on_pending = flush_soon
    for queue in (broker.topology.wakeups, broker.appender.completions):
        queue.call_soon = loop.call_soon


class _TimedCommit:
    """A commit that reports to the metrics how long each sync took."""

    def __init__(self, commit: Commit, seconds: Histogram) -> None:
        self._commit = commit
        self.instant = commit.instant
        self._seconds = seconds
        self.fileno = commit.fileno
        self.complete = commit.complete
        self.drain = commit.drain
        self.close = commit.close

    def submit(self, log: Syncable, done: Callable[[OSError | None], None] | None = None) -> None:
        began_s = time.perf_counter()

        def finished(error: OSError | None) -> None:
            self._seconds.observe(time.perf_counter() - began_s)
            if done is not None:
                done(error)

        self._commit.submit(log, finished)


def _ready_line(settings: Settings, addresses: Mapping[str, str], output: str) -> str:
    if output == "text":
        return " ".join(("ready", *(f"{name}={address}" for name, address in addresses.items())))
    return json.dumps(
        {
            "event": "ready",
            "pid": os.getpid(),
            "endpoints": addresses,
            "durability": settings.durability,
            "data": str(settings.data.resolve()),
            "version": __version__,
        }
    )


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _warm_up() -> None:
    """Load the first kernels while the broker serves, and freeze the objects of the start; neither delays the ready
    line.
    """
    engine.load_in_background()
    gc.collect()
    gc.freeze()


def _log_recoveries(broker: Broker) -> None:
    """Log the changes and damage that opening found."""
    for note in broker.notes:
        log.warning("%s", note)
    for partition, report in broker.recoveries():
        for what in (*report.cuts, *report.damage, *report.notes):
            log.warning("%s: %s", partition, what)


@contextlib.contextmanager
def open_access(data: Path) -> Iterator[AccessControl]:
    """Open users and rules of a data directory that no broker has; LocalError if one does.

    Raises NewerFormat for a directory of a newer version of Lading.
    """
    from ..broker.core.access.access import AccessControl
    from ..log.access_file import AccessFile
    from ..runtime.clock import Dates

    with _lock_access(data) as recorded_serial:
        yield AccessControl(AccessFile(data), Dates(), recorded_serial)


@contextlib.contextmanager
def _lock_access(data: Path) -> Iterator[int]:
    """Lock a data directory; yield the number of the last change of users and rights that its catalog knows."""
    from ..log.access_record import read_recorded_serial
    from ..log.catalog import FILE_NAME
    from ..log.catalog_copy import require_known_catalog
    from ..log.formats import GATE

    with lock_data_directory(data):
        # in a newer version of Lading the same rights may mean something else
        GATE.check_directory(data)
        with contextlib.suppress(sqlite3.DatabaseError):
            # the broker sets a damaged file aside
            require_known_catalog(data / FILE_NAME)
        yield read_recorded_serial(data / FILE_NAME)


def change_access(data: Path, make: Callable[[AccessControl], Change[object]]) -> None:
    """Change users or rules of a data directory that no broker has."""
    from ..broker.core.change import complete

    with open_access(data) as access:
        complete(make(access))


def reset_access(data: Path, source: Path | None, aside: str) -> int:
    """Replace users and rights of a data directory that no broker has by those of the file ``source``, or by none.

    The file that was there is kept under the name ``aside``. Returns the number of users. Raises LocalError if the
    directory or ``source`` does not exist, CorruptLog if ``source`` is damaged.
    """
    from ..broker.core.access.users import AccessTable
    from ..log.access_file import AccessFile

    if not data.is_dir():
        raise LocalError(f"data directory {data}: does not exist; name the one that `lading serve --data` has")
    table = AccessTable()
    if source is not None:
        document = AccessFile.read(source)
        if document is None:
            raise LocalError(f"file {source}: does not exist; name an access.json, such as that of a restored backup")
        table = AccessTable.parse(document)
    with _lock_access(data) as recorded_serial:
        AccessFile(data).start_anew(table.document(), recorded_serial, aside)
    return len(table.users)


def _runner() -> asyncio.Runner:
    """Return a runner of uvloop if it is installed, else of asyncio's own loop (within a quarter of its speed)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
