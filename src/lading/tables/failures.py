"""Errors of a disk as messages to people: nothing is lost, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..model.errors import LocalError

DISK: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOTDIR}
)
"""Errors of a disk that is full or that we may not write to."""
ADVICE: Final = (
    "Nothing is lost: files in a manifest count, all others are written again. Run it again after fixing that"
)


@contextmanager
def translate_disk_errors(who: str) -> Iterator[None]:
    """Raise LocalError for what a disk refused; every other OSError passes unchanged."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK:
            raise
        place = error.filename or "a file"
        raise LocalError(f"{who}: {place} cannot be written: {error.strerror}. {ADVICE}") from None
