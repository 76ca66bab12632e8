"""What went wrong in a worker, told as it was raised there: Spark wraps it into pages of stack traces."""

from __future__ import annotations

import re

from ..model import errors
from ..model.errors import LadingError, LocalError

_RAISED = re.compile(
    r"lading\.model\.errors\.(\w+): (.+?)(?=\n\s*\n|\n\s*at |\nDriver stacktrace|\s+SQLSTATE: |\n=== |\Z)", re.DOTALL
)


def cause(error: BaseException) -> LadingError | None:
    """The error of ours inside an exception of Spark, as its own class with its own sentence, or None."""
    found = list(_RAISED.finditer(str(error)))
    if not found:
        return None
    name, sentence = found[-1][1], " ".join(line.strip() for line in found[-1][2].splitlines())
    kind = getattr(errors, name, LocalError)
    try:
        made: LadingError = kind(sentence)
    except TypeError:
        made = LocalError(sentence)
    return made
