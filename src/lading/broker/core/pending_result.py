"""A result that the broker may have later."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from ...model.errors import Refusal
from ...runtime.turns import CALLBACKS_AT_ONCE, CallbackQueue

LOG: Final = logging.getLogger("lading.broker")
T = TypeVar("T")


class PendingResult(Generic[T]):
    """A result: ``done`` when it has its ``value``, or an ``error`` instead."""

    __slots__ = ("_callbacks", "_value", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: Refusal | None = None
        self._value: T | None = None
        self._callbacks: list[Callable[[PendingResult[T]], None]] = []

    @classmethod
    def of(cls, value: T) -> PendingResult[T]:
        """Return a result that is there at once."""
        answer = cls()
        answer.finish(value)
        return answer

    @property
    def value(self) -> T:
        """The value; raises the refusal. Ask only when it is done."""
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    def add_done_callback(self, callback: Callable[[PendingResult[T]], None]) -> None:
        """Call back once when it is done, which may be at once."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def finish(self, value: T, completions: CallbackQueue | None = None) -> None:
        """Complete with ``value``.

        If many wait for it, ``completions`` calls a few of them in each pass of the loop.
        """
        self._value = value
        self._finish(completions)

    def refuse(self, error: Refusal, completions: CallbackQueue | None = None) -> None:
        """Complete with ``error`` instead of a value, as ``finish`` does.

        The error is kept without the frames that it passed: they keep this response alive, which keeps the error, and
        with them whatever a request had in hand, until the garbage is collected.
        """
        error.__context__ = None
        self.error = error.with_traceback(None)
        self._finish(completions)

    def _finish(self, completions: CallbackQueue | None) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        if completions is not None and (callbacks[CALLBACKS_AT_ONCE:] or completions.waiting):
            completions.call(partial(callback, self) for callback in callbacks)
            return
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                LOG.exception("a callback of a pending result failed")
