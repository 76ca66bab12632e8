"""Metrics of clients (KIP-714): the set of metrics that clients push, and their last values in ``/metrics``, by client.

* GetTelemetrySubscriptions 0 and PushTelemetry 0 (KIP-714).

Here: the subscription is a setting, ``client_metrics``, the same for all clients; nothing is pushed while it is empty,
as in Apache Kafka without a subscription.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID, uuid4

import google_crc32c

from ...dialects.kafka.client_metrics import ClientMetric, parse_client_metrics
from ...dialects.kafka.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress
from ...dialects.kafka.errors import (
    INVALID_RECORD,
    INVALID_REQUEST,
    TELEMETRY_TOO_LARGE,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_SUBSCRIPTION_ID,
    UNSUPPORTED_COMPRESSION,
)
from ...dialects.kafka.errors import NONE as NO_ERROR
from ...dialects.kafka.versions import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from ...model.errors import MalformedMessage, Reason, Refusal
from ...runtime.metrics import Gauge, GaugeRow
from ..base.fair_runner import FairLimits, FairRunner, call_once
from ..base.login_throttle import network_of
from ..base.services import now_us
from .handling import Answer, Context, Fields, Handler, Request, Session

PUSH_BYTES_MAX: Final = 1 << 20
"""Size limit of a push, both as sent and decompressed: the default of ``telemetry.max.bytes``."""
CLIENTS_MAX: Final = 1_000
"""The values of this many clients are shown, those that pushed last; each has at most ``VALUES_MAX``."""
VALUES_MAX: Final = 500
TEXT_SIZE_MAX: Final = 32 << 20
"""Limit of the characters of all labels in ``/metrics``; beyond it the clients that were silent for longest are
forgotten.
"""
CLIENT_ID_CHARACTERS_MAX: Final = 200
"""Characters of a client id that are shown, as each row repeats it; Kafka's ids have up to 32,767 bytes."""
PUSHES: Final = FairLimits(
    threads=1,
    waiting_max=256,
    client_waiting_max=64,
    reason=Reason.STOPPING,
    sentence="too many pushes of metrics wait; push again later",
)
"""Limits how many pushes are decoded at a time: each takes up to 0.1 s, and a client may use any number of
instance ids.
"""
CODECS: Final = (ZSTD, LZ4, GZIP, SNAPPY)
"""Compressions in the order in which clients should try them; NONE is always accepted."""
EARLY_SHARE: Final = 2
"""A client may push again after half of the interval: its clock may run faster than ours."""
_NOBODY: Final = UUID(int=0)
_OTHER_TEXT: Final = 140
"""Characters of a row in addition to its labels: the names, an instance id, the value."""


@dataclass(slots=True, eq=False)
class MeasuredClient:
    """One client, and the last values that it pushed by name and attributes."""

    client_id: str
    pushed_us: int = 0
    is_ending: bool = False
    values: dict[tuple[str, str], float] = field(default_factory=dict)
    text_size: int = 0
    """Characters of the labels of all values."""

    def add(self, metrics: Iterable[ClientMetric]) -> None:
        """Keep the values of a push; values beyond ``VALUES_MAX`` are left out."""
        for metric in metrics:
            key = metric.name, metric.attributes
            if key not in self.values:
                if len(self.values) == VALUES_MAX:
                    continue
                self.text_size += len(self.client_id) + len(metric.name) + len(metric.attributes) + _OTHER_TEXT
            self.values[key] = metric.value + (self.values.get(key, 0.0) if metric.is_delta else 0.0)


class ClientMetrics:
    """The clients of one endpoint by their instance ids, in the order of their last requests."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._clients: OrderedDict[UUID, MeasuredClient] = OrderedDict()
        self._text_size = 0

    def find(self, instance: UUID, client_id: str) -> MeasuredClient:
        """Return a client; a new one is added, and the one that was silent for longest is forgotten then."""
        client = self._clients.get(instance)
        if client is None:
            client = self._clients[instance] = MeasuredClient(client_id[:CLIENT_ID_CHARACTERS_MAX])
            if len(self._clients) > CLIENTS_MAX:
                self.forget(next(iter(self._clients)))
        self._clients.move_to_end(instance)
        return client

    def add(self, instance: UUID, metrics: Iterable[ClientMetric]) -> None:
        """Keep the values of a push, unless the client was forgotten while they were decoded."""
        client = self._clients.get(instance)
        if client is None:
            return
        before = client.text_size
        client.add(metrics)
        self._text_size += client.text_size - before
        while self._text_size > TEXT_SIZE_MAX:
            self.forget(next(iter(self._clients)))

    def forget(self, instance: UUID) -> None:
        """Drop the values of a client that has ended."""
        client = self._clients.pop(instance, None)
        if client is not None:
            self._text_size -= client.text_size

    def read(self) -> Iterable[GaugeRow]:
        """Return all values as rows of the gauge."""
        for instance, client in list(self._clients.items()):
            for (name, attributes), value in list(client.values.items()):
                yield (self._endpoint, client.client_id, str(instance), name, attributes), value
            yield None


def handlers(context: Context) -> Mapping[int, Handler]:
    """Return the handlers of this module: none if no metrics are set, as Kafka has these APIs only with a plugin.

    librdkafka 2.16 logs a line in each client to which these requests are offered.
    """
    answers = ClientMetricsHandlers(context)
    found = {GET_TELEMETRY_SUBSCRIPTIONS: answers.subscribe, PUSH_TELEMETRY: answers.push}
    return found if context.settings.client_metrics else {}


class ClientMetricsHandlers:
    """Handlers of one endpoint."""

    def __init__(self, context: Context, clock: Callable[[], int] = now_us) -> None:
        self._services = context.services
        self._now_us = clock
        settings = context.settings
        self._names = ["" if name == "*" else name for name in settings.client_metrics]
        self._interval_ms = settings.client_metrics_interval_ms
        told = ",".join([str(self._interval_ms), *self._names])
        self._subscription = google_crc32c.value(told.encode()) & 0x7FFF_FFFF
        self._clients = ClientMetrics(context.name)
        self._decoding = FairRunner("lading-telemetry", PUSHES)
        context.services.add_stop_callback(self._decoding.close)
        context.services.metrics.add(
            Gauge(
                "lading_kafka_client_metric",
                "Last value of a metric that a Kafka client pushed (KIP-714); sums since it began to push.",
                ("endpoint", "client_id", "instance", "metric", "attributes"),
                self._clients.read,
            )
        )

    def subscribe(self, session: Session, request: Request) -> Fields:
        """Return the metrics that a client should push; a client without an instance id gets one."""
        instance = request.body.client_instance_id or _NOBODY
        return {
            "error_code": NO_ERROR,
            "client_instance_id": uuid4() if instance == _NOBODY else instance,
            "subscription_id": self._subscription,
            "accepted_compression_types": list(CODECS),
            "push_interval_ms": self._interval_ms,
            "telemetry_max_bytes": PUSH_BYTES_MAX,
            "delta_temporality": True,
            "requested_metrics": self._names,
        }

    def push(self, session: Session, request: Request) -> Answer:
        """Keep the pushed values of one client; a worker decodes them."""
        body = request.body
        instance, data = body.client_instance_id or _NOBODY, body.metrics or b""
        if (code := self._find_error(instance, request)) != NO_ERROR:
            return {"error_code": code}
        client = self._clients.find(instance, request.client_id or "")
        now = self._now_us()
        if client.is_ending:
            return {"error_code": INVALID_REQUEST}
        if client.pushed_us + self._interval_ms * 1_000 // EARLY_SHARE > now and not body.terminating:
            return {"error_code": THROTTLING_QUOTA_EXCEEDED}
        client.pushed_us, client.is_ending = now, bool(body.terminating)
        # limited by user, or by address: the client chooses its instance ids itself
        user = (session.principal and session.principal.name) or network_of(session.host)
        return self._take(client, user, instance, int(body.compression_type), memoryview(data))

    def _find_error(self, instance: UUID, request: Request) -> int:
        body = request.body
        if instance == _NOBODY:
            return INVALID_REQUEST
        if body.subscription_id != self._subscription or not self._names:
            return UNKNOWN_SUBSCRIPTION_ID
        if body.compression_type not in (NONE, *CODECS):
            return UNSUPPORTED_COMPRESSION
        return TELEMETRY_TOO_LARGE if len(body.metrics or b"") > PUSH_BYTES_MAX else NO_ERROR

    async def _take(self, client: MeasuredClient, user: str, instance: UUID, codec: int, data: memoryview) -> Fields:
        try:
            metrics = await self._decoding.run(user, call_once(partial(_decode, codec, data)))
        except MalformedMessage:
            return {"error_code": INVALID_RECORD}
        except Refusal:
            return {"error_code": THROTTLING_QUOTA_EXCEEDED}
        else:
            self._clients.add(instance, metrics)
            return {"error_code": NO_ERROR}
        finally:
            if client.is_ending:
                self._clients.forget(instance)


def _decode(codec: int, data: memoryview) -> list[ClientMetric]:
    """Return the values of a push. Raises MalformedMessage if the codec cannot read the bytes, or they are too many."""
    if codec != NONE:
        plain, size_bytes = decompress(codec, data, bytes_max=PUSH_BYTES_MAX)
        data = plain[:size_bytes].data
    return parse_client_metrics(data)
