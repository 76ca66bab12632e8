"""The published client ``apache-iggy`` 0.9.0 of the current generation, unmodified, as a process that makes calls."""

from __future__ import annotations

import base64
import json
import os
import selectors
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.interop import wheels

PROGRAM: Final = Path(__file__).parent / "iggy_current_python.py"
ANSWER_TIMEOUT_S: Final = 60.0

Header = tuple[int, bytes, int, bytes]
"""Key kind, key, kind, value."""


class CallError(Exception):
    """What the client raised, in its words."""


class CurrentClient:
    """One client, connected and logged in; wheels.Unavailable if it cannot be installed here."""

    def __init__(self, address: str) -> None:
        python = wheels.install("apache-iggy", "0.9.0", "3.11")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._process = subprocess.Popen(
            [python, PROGRAM, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self._answer()

    def call(self, name: str, *arguments: Any) -> Any:
        """What a call gave; CallError for what it raised."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def send(
        self,
        stream: str,
        topic: str,
        where: Sequence[Any],
        messages: Sequence[tuple[bytes, Sequence[Header], int | None]],
    ) -> list[list[int]]:
        """Stream, topic, partition and base offset of what was sent."""
        rows = [
            [
                _text(payload),
                [[key_kind, _text(key), kind, _text(value)] for key_kind, key, kind, value in headers],
                id_,
            ]
            for payload, headers, id_ in messages
        ]
        confirmed: list[list[int]] = self.call("send", stream, topic, where, rows)
        return confirmed

    def poll(
        self,
        stream: str,
        topic: str,
        *,
        partition: int | None = 0,
        start: Sequence[Any] = ("First",),
        count: int = 100,
        consumer: Sequence[Any] = ("Single", 1),
        commit: bool = False,
    ) -> list[dict[str, Any]]:
        """Messages, payload and headers as bytes."""
        polled = self.call("poll", stream, topic, consumer, partition, start, count, commit)
        return [decode(message) for message in polled]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._process.stdout.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(ANSWER_TIMEOUT_S), "the client does not answer"
        line = self._process.stdout.readline()
        assert line, "the client has ended"
        told = json.loads(line)
        if "error" in told:
            raise CallError(told["error"])
        return told["ok"]


def decode(message: dict[str, Any]) -> dict[str, Any]:
    """A message with payload and headers as bytes."""
    headers = [
        (key_kind, base64.b64decode(key), kind, base64.b64decode(value))
        for key_kind, key, kind, value in message["headers"]
    ]
    return {**message, "payload": base64.b64decode(message["payload"]), "headers": headers}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
