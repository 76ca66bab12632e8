"""Sending the messages of each check to a server, as its protocol's own clients write them, and reading them back."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Final

import pyarrow as pa

from ..client.admin import Admin
from ..client.consumer import Consumer
from ..model.batch import SCHEMA
from ..model.errors import LadingError, LocalError, SettingError
from ..model.kinds import Kind
from ..model.message import Message
from ..model.printable import shorten_bytes
from ..model.protocol import Capabilities
from ..transports.fitting import fill_missing_columns, fit_to_target
from ..transports.interface import HeaderAwareTransport, Transport
from ..transports.open import is_queue, open_transport, without_options
from .checks import CHECKS, PLAIN, Check, HeaderRow, ProbeMessage

TOPIC: Final = "lading-conformance"
RECEIVE_S: Final = 10.0
"""Timeout for reading the messages of a check."""
RANDOM_MESSAGES: Final = 200
"""Number of random messages that are sent together."""
VALUE_BYTES_SHOWN: Final = 40
"""Bytes of a key, value or payload that a sentence about a changed message shows."""
_shorten = partial(shorten_bytes, bytes_max=VALUE_BYTES_SHOWN)
PLAIN_KINDS: Final = (Kind.RAW, Kind.STRING)
PROPERTIES: Final = ("order", "duplicates", "null", "empty", "bytes", "names", "sizes", "batches", "message", "kinds")


class Verdict(StrEnum):
    """The verdict on a check."""

    KEPT = "kept"
    CHANGED = "changed"
    REFUSED = "refused"
    """The server refused a message by an error; nothing changed in silence."""
    NO_FORM = "no form"
    """The protocol has no form for the messages, so that no client can send them."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check; ``sent`` and ``received`` are the smallest message that changed, as texts."""

    name: str
    about: str
    verdict: Verdict
    detail: str = ""
    sent: str = ""
    received: str = ""

    def as_document(self) -> dict[str, str]:
        """Return the result as a JSON document, without empty fields."""
        row = {
            "check": self.name, "about": self.about, "verdict": self.verdict.value, "detail": self.detail,
            "sent": self.sent, "received": self.received,
        }  # fmt: skip
        return {name: text for name, text in row.items() if text}


@dataclass(slots=True)
class ConformanceReport:
    """Results of all checks, and of the random messages: how many were sent, and how many of them changed."""

    server: str
    results: list[CheckResult] = field(default_factory=list)
    random_messages: int = 0
    random_changed: int = 0
    seed: int = 0
    seconds: float = 0.0

    @property
    def is_kept(self) -> bool:
        """Whether all messages that the protocol has a form for came back unchanged."""
        return not self.random_changed and all(one.verdict is not Verdict.CHANGED for one in self.results)

    def count(self, verdict: Verdict) -> int:
        """Return how many checks have a verdict."""
        return sum(one.verdict is verdict for one in self.results)

    def as_document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "event": "conformance", "server": self.server, "kept": self.is_kept,
            "counts": {verdict.value: self.count(verdict) for verdict in Verdict},
            "random_messages": self.random_messages, "random_changed": self.random_changed, "seed": self.seed,
            "seconds": round(self.seconds, 3), "checks": [one.as_document() for one in self.results],
        }  # fmt: skip


def run_conformance(
    url: str,
    *,
    random_messages: int = 1000,
    seed: int | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> ConformanceReport:
    """Run all checks and random messages in a topic that is created for them, and deleted afterwards.

    ``on_progress`` is called with the number of checked messages and of all messages. Raises LocalError if the topic
    cannot be created, Unreachable if the server does not respond.
    """
    begun = time.monotonic()
    seed = secrets.randbits(32) if seed is None else seed
    report = ConformanceReport(without_options(url), seed=seed)
    transport = open_transport(url, **options)
    topic = f"{TOPIC}-{secrets.token_hex(4)}"
    try:
        transport.create_topic(topic)
        try:
            _check_all(transport, url, topic, report, random_messages, is_stopped, on_progress, options)
        finally:
            with suppress(SettingError):
                # Lading's client cannot delete topics over some protocols
                Admin(transport).delete_topic(topic)
    finally:
        transport.close()
    report.seconds = time.monotonic() - begun
    return report


def _check_all(
    transport: Transport,
    url: str,
    topic: str,
    report: ConformanceReport,
    random_messages: int,
    is_stopped: Callable[[], bool],
    on_progress: Callable[[int, int], None],
    options: dict[str, Any],
) -> None:
    total = sum(len(check.messages) for check in CHECKS) + random_messages
    done = 0
    probe = _Probe(transport, url, topic, options)
    try:
        for check in CHECKS:
            if is_stopped():
                return
            report.results.append(_run_check(probe, check))
            done += len(check.messages)
            on_progress(done, total)
        smallest: tuple[int, CheckResult] | None = None
        generator = random.Random(report.seed)
        while probe.takes_headers and report.random_messages < random_messages and not is_stopped():
            count = min(RANDOM_MESSAGES, random_messages - report.random_messages)
            messages = probe.fit(list(_iter_random(generator, count, transport.capabilities)))
            try:
                changed = probe.send_and_compare(messages)
            except LocalError as error:
                report.results.append(CheckResult("random headers", "random", Verdict.REFUSED, str(error)))
                break
            report.random_messages += count
            report.random_changed += len(changed)
            for message, received in changed:
                size = sum(len(key) + len(value or b"") + 9 for key, _, value in message.headers)
                if smallest is None or size < smallest[0]:
                    smallest = (size, _describe_change("random headers", "random", message, received))
            on_progress(done + report.random_messages, total)
        if smallest is not None:
            report.results.append(smallest[1])
    finally:
        probe.close()


def _run_check(probe: _Probe, check: Check) -> CheckResult:
    sent = probe.fit(check.messages)
    if len(sent) < len(check.messages):
        return CheckResult(check.name, check.about, Verdict.NO_FORM, "the protocol has no form for it")
    try:
        changed = probe.send_and_compare(sent)
    except LocalError as error:
        return CheckResult(check.name, check.about, Verdict.REFUSED, str(error))
    if changed:
        return _describe_change(check.name, check.about, *changed[0])
    return CheckResult(check.name, check.about, Verdict.KEPT)


class _Probe:
    """The topic of a run: messages are sent by one connection and read by another."""

    def __init__(self, transport: Transport, url: str, topic: str, options: dict[str, Any]) -> None:
        self._transport, self._topic = transport, topic
        channel = "conformance" if is_queue(url) else None
        self._keeps_order = channel is None
        self.takes_headers = not isinstance(transport, HeaderAwareTransport) or transport.takes_headers(topic)
        """Whether messages of the topic may have headers and a key: those of nsq.io's nsqd have only a payload."""
        self._consumer = Consumer(url, topic, channel=channel, verify_checksum=False, **options)

    def close(self) -> None:
        """Close the reading connection."""
        self._consumer.close()

    def fit(self, messages: Sequence[ProbeMessage]) -> list[ProbeMessage]:
        """Return the messages with kinds that the protocol keeps, without those that it has no form for."""
        capabilities = self._transport.capabilities
        for plain in PLAIN_KINDS:
            fitted = [_with_kind(message, plain) for message in messages]
            if self._has_form(fitted, capabilities):
                return fitted
        if len(messages) == 1:
            return []
        return [fitted for message in messages for fitted in self.fit([message])]

    def _has_form(self, messages: Sequence[ProbeMessage], capabilities: Capabilities) -> bool:
        if not self.takes_headers and any(message.headers or message.key is not None for message in messages):
            return False
        try:
            fit_to_target(fill_missing_columns(_to_batch(messages)), capabilities, "", strict=True)
        except LocalError:
            return False
        return True

    def send_and_compare(self, messages: Sequence[ProbeMessage]) -> list[tuple[ProbeMessage, Message | None]]:
        """Send messages; return those that came back changed, each with the received message, None if none came.

        Raises LocalError or another LadingError if the server refuses them.
        """
        if not messages:
            return []
        try:
            self._transport.send(self._topic, 0, fill_missing_columns(_to_batch(messages)), strict=True)
        except LocalError:
            raise
        except LadingError as error:
            raise LocalError(str(error)) from error
        received = self._receive(len(messages))
        if not self._keeps_order:
            by_payload = {message.payload: message for message in received}
            received = [by_payload[one.payload] for one in messages if one.payload in by_payload]
        pairs: list[tuple[ProbeMessage, Message | None]] = [
            (message, received[number] if number < len(received) else None) for number, message in enumerate(messages)
        ]
        return [(message, came) for message, came in pairs if came is None or not _is_same(message, came)]

    def _receive(self, count: int) -> list[Message]:
        received: list[Message] = []
        until = time.monotonic() + RECEIVE_S
        while len(received) < count and time.monotonic() < until:
            received += self._consumer.poll(count - len(received), 1.0)
        return received


def _to_batch(messages: Sequence[ProbeMessage]) -> pa.RecordBatch:
    rows = [
        {
            "key": message.key,
            "headers": [{"key": key, "kind": kind, "value": value} for key, kind, value in message.headers],
            "payload": message.payload,
        }
        for message in messages
    ]
    fields = [SCHEMA.field(name) for name in ("key", "headers", "payload")]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(fields))


def _is_same(sent: ProbeMessage, came: Message) -> bool:
    return (sent.key, list(sent.headers), sent.payload) == (came.key, _list_headers(came), came.payload)


def _list_headers(message: Message) -> list[HeaderRow]:
    return [(header.key, int(header.kind), header.value) for header in message.headers]


def _describe_change(name: str, about: str, sent: ProbeMessage, came: Message | None) -> CheckResult:
    if came is None:
        return CheckResult(name, about, Verdict.CHANGED, "the message did not come back", _to_text(sent))
    received = ProbeMessage(_list_headers(came), came.key, came.payload)
    return CheckResult(name, about, Verdict.CHANGED, "", _to_text(sent), _to_text(received))


def _to_text(message: ProbeMessage) -> str:
    shown = message.headers[:8]
    headers = ", ".join(f"{key!r}:{Kind(kind).word}={_shorten(value)}" for key, kind, value in shown)
    more = f", and {len(message.headers) - len(shown)} more" if len(message.headers) > len(shown) else ""
    return f"key {_shorten(message.key)}, headers [{headers}{more}], payload {_shorten(message.payload)}"


def _with_kind(message: ProbeMessage, plain: Kind) -> ProbeMessage:
    headers = [(key, kind if kind != PLAIN else int(plain), value) for key, kind, value in message.headers]
    return message._replace(headers=headers)


def _iter_random(generator: random.Random, count: int, kept: Capabilities) -> Iterator[ProbeMessage]:
    """Yield messages with random lists of headers, short ones more often; most have a form in the protocol."""
    for _ in range(count):
        headers: list[HeaderRow] = []
        for _ in range(int(generator.expovariate(0.3))):
            key, value = _random_key(generator), _random_value(generator)
            if len(key.encode()) < kept.name_bytes_min or (value is None and not kept.nulls):
                continue
            if value == b"" and not kept.empties:
                continue
            if kept.form is not None and value is not None:
                value = value.hex().encode()
            headers.append((key, PLAIN, value if value is None else value[: kept.value_bytes_max]))
        if not kept.duplicate_keys or not kept.order:
            headers = list({row[0]: row for row in headers}.values())
        key_bytes = _random_value(generator) if kept.key else None
        yield ProbeMessage(headers, key_bytes, b"%016x" % generator.getrandbits(64))


def _random_key(generator: random.Random) -> str:
    letters = generator.choice(("ab", "abCDefGh", '\u00e4\u00f6\u6f22\u0301\U0001f642 "=\t'))
    return "".join(generator.choice(letters) for _ in range(generator.choice((0, 1, 1, 1, 2, 5, 40))))


def _random_value(generator: random.Random) -> bytes | None:
    length = generator.choice((None, 0, 1, 1, 4, 8, 30, 300))
    if length is None:
        return None
    return generator.choice((generator.randbytes(length), (b"%030d" % generator.getrandbits(90))[:length]))
