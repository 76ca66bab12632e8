"""Shares of the process' limit of open files: the log first, then connections, and some for everything else."""

from __future__ import annotations

import contextlib
import resource
from typing import Final, NamedTuple

SPARE_MAX: Final = 128
"""Files kept for the catalog, listeners, kernels, and an operator's tools."""
FILES_MIN: Final = 16
"""The minimum for logs and for connections, even if the limit is lower."""


class OpenFileShares(NamedTuple):
    """Files that logs may hold open, and connections that all endpoints together may have."""

    log_files: int
    connections: int


def share_open_files(limit: int, log_files_max: int | None) -> OpenFileShares:
    """Divide ``limit``: the log gets the number of the setting, or else half; connections get the rest."""
    spare = min(SPARE_MAX, limit // 8)
    log_files = limit // 2 if log_files_max is None else min(log_files_max, limit - spare - FILES_MIN)
    return OpenFileShares(max(log_files, FILES_MIN), max(limit - spare - log_files, FILES_MIN))


def open_files_limit() -> int:
    """Return how many files this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files_limit() -> None:
    """Let this process have as many files open as it may: every connection and every partition takes some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
