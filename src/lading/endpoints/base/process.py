"""Facts of the operating system about this process and machine, from /proc."""

from __future__ import annotations

import os
import platform
import shutil
import time
from pathlib import Path

from ...model.lazy_dataclass import lazy_dataclass

PROC = Path("/proc")
CPU_WINDOW_S = 0.2
"""Two readings closer than this give the CPU share of the one before."""


@lazy_dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Memory and I/O in bytes, times in seconds, ``cpu_percent`` of one core."""

    pid: int
    cpu_percent: float
    memory_bytes: int
    total_memory_bytes: int
    available_memory_bytes: int
    run_time_s: int
    start_time_s: int
    read_bytes: int
    written_bytes: int


@lazy_dataclass(frozen=True, slots=True)
class Machine:
    """Names of the machine, as Iggy's response to ``stats`` shows them."""

    hostname: str
    os_name: str
    os_version: str
    kernel_version: str


@lazy_dataclass(frozen=True, slots=True)
class DiskFigures:
    """Size of the disk that holds a directory, and what of it is free."""

    total_bytes: int
    free_bytes: int


class Process:
    """Figures of the running process; the CPU share is that since the reading before."""

    def __init__(self) -> None:
        self._started_s = time.time()
        self._begun_s = time.monotonic()
        self._last = (self._begun_s, time.process_time())
        self._cpu_percent = 0.0

    def figures(self) -> ProcessFigures:
        """Return what the process uses now; 0 if the system does not say."""
        wall_s, cpu_s = time.monotonic(), time.process_time()
        if wall_s - self._last[0] >= CPU_WINDOW_S:
            self._cpu_percent = 100.0 * (cpu_s - self._last[1]) / (wall_s - self._last[0])
            self._last = (wall_s, cpu_s)
        memory = _read_table(PROC / "meminfo", unit_bytes=1024)
        own = _read_table(PROC / "self/status", unit_bytes=1024)
        moved = _read_table(PROC / "self/io", unit_bytes=1)
        return ProcessFigures(
            pid=os.getpid(),
            cpu_percent=self._cpu_percent,
            memory_bytes=own.get("VmRSS", 0),
            total_memory_bytes=memory.get("MemTotal", 0),
            available_memory_bytes=memory.get("MemAvailable", 0),
            run_time_s=int(wall_s - self._begun_s),
            start_time_s=int(self._started_s),
            read_bytes=moved.get("read_bytes", 0),
            written_bytes=moved.get("write_bytes", 0),
        )


def measure_disk(directory: Path) -> DiskFigures | None:
    """Return the figures of the disk that holds ``directory``; None if the directory is not there."""
    try:
        disk = shutil.disk_usage(directory)
    except OSError:
        return None
    return DiskFigures(disk.total, disk.free)


def machine() -> Machine:
    """Host, operating system and kernel names."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    name = release.get("NAME", platform.system())
    version = f"{platform.system()} {release.get('VERSION_ID', '')} {name}".replace("  ", " ")
    return Machine(platform.node(), name, version, platform.release())


def _read_table(path: Path, unit_bytes: int) -> dict[str, int]:
    """Return the ``Name: number [kB]`` lines of a file; empty if it cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) * (unit_bytes if words[1:] == ["kB"] else 1)
    return found
