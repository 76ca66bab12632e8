"""What went wrong in a worker, told as it was raised there: Spark wraps it into pages of stack traces."""

from __future__ import annotations

import re
from importlib import import_module

from ..model.errors import LadingError, LocalError

_RAISED = re.compile(
    r"^\W*(lading(?:\.\w+)+)\.(\w+): (.+?)(?=\n\s*\n|\n\s*at |\nDriver stacktrace|\s+SQLSTATE: |\n=== |\Z)",
    re.DOTALL | re.MULTILINE,
)


def cause(error: BaseException) -> LadingError | None:
    """The error of ours inside an exception of Spark, as its own class with its own sentence, or None."""
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
