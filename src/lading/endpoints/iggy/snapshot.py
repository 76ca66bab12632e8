"""Snapshots of the broker for its operator: a ZIP archive with a text file for each requested part.

As with Iggy's servers, a user who may see the server's statistics may see all of a snapshot. So no part contains
secrets: settings come without their tokens, processes are this one only and without its arguments, files have names and
sizes but no contents. Every part is bounded, and so is the archive.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import shutil
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...dialects.iggy.classic.snapshots import SnapshotCompression, SnapshotPart, choose_parts
from ...model.version import __version__
from ...runtime.log_lines import recent_lines
from ...settings.listing import setting_rows, toml_lines
from ..base.process import PROC, machine
from ..base.services import Services

if TYPE_CHECKING:
    from ...settings.settings import Settings
    from ..base.process import ProcessFigures

log = logging.getLogger(__name__)

FILES_MAX: Final = 10_000
"""At most this many files of the data directory are listed."""

_METHODS: Final[Mapping[SnapshotCompression, int]] = {
    SnapshotCompression.STORED: zipfile.ZIP_STORED,
    SnapshotCompression.BZIP2: zipfile.ZIP_BZIP2,
    SnapshotCompression.LZMA: zipfile.ZIP_LZMA,
    # available since Python 3.14
    SnapshotCompression.ZSTD: getattr(zipfile, "ZIP_ZSTANDARD", zipfile.ZIP_DEFLATED),
}
"""Compression of archives; methods that the library lacks are replaced by deflate, which every reader supports."""


class SnapshotMaker:
    """Makes snapshots, one after another; one for all listeners."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turn = asyncio.Lock()
        """Snapshots take turns: each occupies a worker, and the others are left to requests for messages."""

    async def make(self, compression: SnapshotCompression, parts: Sequence[SnapshotPart]) -> bytes:
        """Return an archive of these parts. Raises Refusal if ALL is combined with other parts."""
        chosen = choose_parts(parts)
        async with self._turn:
            services = self._services
            # the processor's share since the previous reading: readings come from one thread
            figures = services.process.figures()
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                services.workers, make_archive, services.settings, figures, compression, chosen
            )


def snapshots_of(services: Services) -> SnapshotMaker:
    """Return the maker that all listeners share."""
    maker: SnapshotMaker = services.shared.setdefault(SnapshotMaker, SnapshotMaker(services))
    return maker


def name_attachment() -> dict[str, str]:
    """Return the header by which browsers and HTTP clients store an archive under the name that Iggy gives it."""
    made = datetime.now(UTC).strftime("%Y%m%d_%H%M%S")
    return {"content-disposition": f'attachment; filename="iggy_snapshot_{made}.zip"'}


def make_archive(
    settings: Settings, figures: ProcessFigures, compression: SnapshotCompression, parts: Sequence[SnapshotPart]
) -> bytes:
    """Return the archive. A part that the system cannot provide is left out, and the log names it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", _METHODS.get(compression, zipfile.ZIP_DEFLATED)) as archive:
        for part in parts:
            try:
                text = "".join(f"{line}\n" for line in _PARTS[part](settings, figures))
            except OSError as error:
                log.warning("a snapshot is without %s: %s", part.name.lower(), error)
            else:
                archive.writestr(f"{part.name.lower()}.txt", text.encode(errors="backslashreplace"))
    return packed.getvalue()


def _list_files(settings: Settings, figures: ProcessFigures) -> Iterator[str]:
    disk = shutil.disk_usage(settings.data)
    yield f"data directory {settings.data}: its disk has {disk.total} bytes, {disk.free} of them free"
    yield ""
    found = _walk(settings.data)
    for path in islice(found, FILES_MAX):
        try:
            size_bytes, changed_s = path.stat().st_size, path.stat().st_mtime
        except OSError:
            # deleted meanwhile, as old segments are deleted
            continue
        changed = datetime.fromtimestamp(changed_s, UTC).isoformat(timespec="seconds")
        yield f"{size_bytes:>15}  {changed}  {path.relative_to(settings.data)}"
    if next(found, None) is not None:
        yield f"there are more; the first {FILES_MAX} are listed"


def _walk(directory: Path) -> Iterator[Path]:
    for parent, directories, names in os.walk(directory):
        directories.sort()
        yield from (Path(parent, name) for name in sorted(names))


def _describe_process(settings: Settings, figures: ProcessFigures) -> Iterator[str]:
    yield "=== this process"
    yield from (PROC / "self/status").read_text().splitlines()
    yield ""
    yield f"=== threads: {threading.active_count()}"
    yield from sorted(thread.name for thread in threading.enumerate())
    yield ""
    yield f"=== open files: {sum(1 for _ in (PROC / 'self/fd').iterdir())}"
    yield ""
    yield "=== limits"
    yield from (PROC / "self/limits").read_text().splitlines()


def _describe_usage(settings: Settings, figures: ProcessFigures) -> Iterator[str]:
    one = machine()
    yield f"Lading {__version__} on {one.hostname}, {one.os_version}, kernel {one.kernel_version}"
    yield f"processors: {os.cpu_count()}, load: {' '.join(f'{load:.2f}' for load in os.getloadavg())}"
    for name in figures.__slots__:
        yield f"{name}: {getattr(figures, name)}"
    yield ""
    yield "=== memory of the machine"
    yield from (PROC / "meminfo").read_text().splitlines()


def _report_test(settings: Settings, figures: ProcessFigures) -> Iterator[str]:
    yield "test"


def _list_log_lines(settings: Settings, figures: ProcessFigures) -> Iterator[str]:
    yield from recent_lines()


def _list_settings(settings: Settings, figures: ProcessFigures) -> Iterator[str]:
    yield from toml_lines(setting_rows(settings, {}), origin=False)


_PARTS: Final[Mapping[SnapshotPart, Callable[[Settings, ProcessFigures], Iterator[str]]]] = {
    SnapshotPart.FILESYSTEM_OVERVIEW: _list_files,
    SnapshotPart.PROCESS_LIST: _describe_process,
    SnapshotPart.RESOURCE_USAGE: _describe_usage,
    SnapshotPart.TEST: _report_test,
    SnapshotPart.SERVER_LOGS: _list_log_lines,
    SnapshotPart.SERVER_CONFIG: _list_settings,
}
"""The function that yields the lines of each part."""
