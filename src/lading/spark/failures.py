"""Errors of workers as they were raised there, without the pages of stack traces that Spark wraps them in."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from ..model.errors import CorruptError, LadingError, LocalError, Refusal, RemoteError
from ..tables.failures import ADVICE, DISK

_RAISED = re.compile(
    r"^\W*(lading(?:\.\w+)+)\.(\w+): (.+?)(?=\n\s*\n|\n\s*at |\nDriver stacktrace|\s+SQLSTATE: |\n=== |\Z)",
    re.DOTALL | re.MULTILINE,
)


_DISK_WORDS = re.compile("|".join(re.escape(os.strerror(number)) for number in sorted(DISK)))


def disk_refused(error: BaseException, who: str) -> LocalError | None:
    """Return the error for a disk that Spark itself cannot spill or shuffle to; None for another error."""
    found = None if isinstance(error, OSError) else _DISK_WORDS.search(str(error))
    return (
        None
        if found is None
        else LocalError(
            f"{who}: Spark cannot write to its own directory (spark.local.dir, /tmp unless set): {found[0]}. {ADVICE}"
        )
    )


def lead_with_own_errors() -> None:
    """Reduce the text of Spark's exceptions to our error that caused them, if there is one.

    They keep their classes, and their stack traces if ``spark.sql.pyspark.jvmStacktrace.enabled`` is set. PySpark has
    no hook for this; its own text has ours between frames of a worker and of the JVM. Idempotent.
    """
    from pyspark.errors.exceptions import captured

    if isinstance(captured.convert_exception, _OwnFirst):
        return
    patched: Any = captured
    patched.convert_exception = _OwnFirst(captured.convert_exception)
    for kind in (captured.CapturedException, captured.PythonException):
        kind.__str__ = _own_text(kind.__str__)  # type: ignore[method-assign]


def lead_with_own_errors_of_connect() -> None:
    """Do as ``lead_with_own_errors`` for Spark Connect, whose clients get an error's text and the server's stack.

    Idempotent.
    """
    from pyspark.errors.exceptions import connect

    kind: Any = connect.SparkConnectGrpcException
    if not isinstance(kind.getMessage, _OwnMessage):
        kind.getMessage = _OwnMessage(kind.getMessage)


class _OwnMessage:
    """The message of an exception of Spark Connect; an error of ours is shown alone."""

    def __init__(self, read: Callable[[Any], str]) -> None:
        self._read = read

    def __get__(self, error: Any, owner: type | None = None) -> Any:
        return self if error is None else lambda: self._show(error)

    def _show(self, error: Any) -> str:
        return _find_own_error(f"{error._message}\n\n{error.getStackTrace() or ''}") or self._read(error)


class _OwnFirst:
    """PySpark's conversion of a JVM exception; an error of ours is shown without the frames around it."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert

    def __call__(self, thrown: Any) -> Any:
        from pyspark.errors.exceptions.captured import PythonException, UnknownException

        converted = self._convert(thrown)
        desc, stack_trace = _read_parts(converted)
        if _find_own_error(f"{desc}\n\n{stack_trace}") is None:
            return converted
        if isinstance(converted, UnknownException):
            # of those PySpark would show the JVM's exception instead
            converted = PythonException(desc=desc, stackTrace=stack_trace)
        return converted.with_traceback(None)


def _own_text(text: Callable[[Any], str]) -> Callable[[Any], str]:
    def own(error: Any) -> str:
        return _find_own_error("\n\n".join(map(str, _read_parts(error)))) or text(error)

    return own


def _read_parts(error: Any) -> tuple[Any, Any]:
    """Return what happened and the stack trace; Spark 3.5 names both without an underscore."""
    if hasattr(error, "_desc"):
        return error._desc, error._stackTrace
    return error.desc, error.stackTrace


def _find_own_error(text: str) -> str | None:
    """Return the last error of ours in ``text``, with its class, else None."""
    found = list(_RAISED.finditer(text))
    return "{}.{}: {}".format(*found[-1].groups()) if found else None


def cause(error: BaseException) -> LadingError | None:
    """Return ``error`` if it is ours, or our error inside an exception of Spark, with its own class; else None."""
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
    return _rebuild(kind, sentence)


def _rebuild(kind: type[LadingError], sentence: str) -> LadingError:
    """Return an error of class ``kind``, or of its nearest base class that takes only a message, with ``sentence``."""
    # a class may expect a reason or a code, and fail with any error, or make another sentence of this one
    with suppress(Exception):
        made = kind(sentence)
        if str(made) == sentence:
            return made
    if issubclass(kind, RemoteError | Refusal):
        return RemoteError(sentence)
    return CorruptError(sentence) if issubclass(kind, CorruptError) else LocalError(sentence)
