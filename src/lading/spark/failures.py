"""What went wrong in a worker, told as it was raised there: Spark wraps it into pages of stack traces."""

from __future__ import annotations

import os
import re
from importlib import import_module

from ..model.errors import LadingError, LocalError
from ..tables.failures import ADVICE, DISK

_RAISED = re.compile(
    r"^\W*(lading(?:\.\w+)+)\.(\w+): (.+?)(?=\n\s*\n|\n\s*at |\nDriver stacktrace|\s+SQLSTATE: |\n=== |\Z)",
    re.DOTALL | re.MULTILINE,
)


_DISK_WORDS = re.compile("|".join(re.escape(os.strerror(number)) for number in sorted(DISK)))


def disk_refused(error: BaseException, who: str) -> LocalError | None:
    """What a disk refused to Spark itself, for what it spills and shuffles; None for another error."""
    found = None if isinstance(error, OSError) else _DISK_WORDS.search(str(error))
    return (
        None
        if found is None
        else LocalError(
            f"{who}: Spark cannot write to its own directory (spark.local.dir, /tmp unless set): {found[0]}. {ADVICE}"
        )
    )


def cause(error: BaseException) -> LadingError | None:
    """The error of ours that this is, or that is inside an exception of Spark, as its own class; None without one."""
    if isinstance(error, LadingError):
        return error
    found = list(_RAISED.finditer(str(error)))
    if not found:
        return None
    home, name, words = found[-1].groups()
    sentence = " ".join(line.strip() for line in words.splitlines())
    kind = getattr(import_module(home), name, None)
    if not (isinstance(kind, type) and issubclass(kind, LadingError)):
        return None
    try:
        return kind(sentence)
    except TypeError:
        return LocalError(sentence)
