"""Errors of the disk during a request, for the client that sent it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...log.disk import find_remedy
from ...model.errors import Reason, Refusal

_REASONS: Final = {
    errno.ENOSPC: Reason.DISK_FULL,
    errno.EDQUOT: Reason.DISK_FULL,
    errno.EMFILE: Reason.DISK_FULL,
    errno.ENFILE: Reason.DISK_FULL,
    errno.ENOMEM: Reason.DISK_FULL,
}


@contextmanager
def refuse_disk_errors(what: str) -> Iterator[None]:
    """Raise what the disk refuses as a Refusal that begins with ``what``: the request fails, and nothing else."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, Reason.READ_ONLY)
        raise Refusal(
            reason,
            f"{what} cannot be changed on the disk: {error.strerror or type(error).__name__}; {find_remedy(error)}",
        ) from None
