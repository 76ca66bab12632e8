"""Metrics that clients push (KIP-714): names and values from OpenTelemetry's ``MetricsData``, a protobuf message."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from lading.model.errors import MalformedMessage

from .requests import read_uvarint

POINTS_MAX: Final = 2_000
"""Limit of the values of one push; a Java client with all its metrics has some hundred."""
FIELDS_MAX: Final = 100_000
"""Limit of the protobuf fields of one push: each takes Python time. A Java client's push has some thousand."""
NAME_BYTES_MAX: Final = 200
VARINT_BYTES_MAX: Final = 10
"""Size limit of a varint of 64 bits."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE, _INTEGER = struct.Struct("<d"), struct.Struct("<q")

# field numbers of opentelemetry/proto/metrics/v1/metrics.proto
_RESOURCE_METRICS, _SCOPE_METRICS, _METRICS = 1, 2, 2
_NAME, _GAUGE, _SUM, _POINTS = 1, 5, 7, 1
_TEMPORALITY, _DELTA = 2, 1
_AS_DOUBLE, _AS_INTEGER, _ATTRIBUTES = 4, 6, 7
_KEY, _VALUE, _TEXT = 1, 2, 1


class ClientMetric(NamedTuple):
    """One value of a client; ``is_delta``: it is added to the one before."""

    name: str
    attributes: str
    """The attributes, such as ``node-id=1,topic=t``, in alphabetical order."""
    value: float
    is_delta: bool


def parse_client_metrics(data: memoryview) -> list[ClientMetric]:
    """Return the gauges and sums of a push, at most ``POINTS_MAX``.

    Raises MalformedMessage if it is not a valid message, or has more than ``FIELDS_MAX`` fields.
    """
    return _MetricsReader().read(data)


class _MetricsReader:
    """Reads one push, and counts its fields."""

    def __init__(self) -> None:
        self._fields_left = FIELDS_MAX

    def read(self, data: memoryview) -> list[ClientMetric]:
        found: list[ClientMetric] = []
        for resource in self._iter_messages(data, _RESOURCE_METRICS):
            for scope in self._iter_messages(resource, _SCOPE_METRICS):
                for metric in self._iter_messages(scope, _METRICS):
                    for point in self._iter_points(metric):
                        if len(found) == POINTS_MAX:
                            return found
                        found.append(point)
        return found

    def _iter_points(self, metric: memoryview) -> Iterator[ClientMetric]:
        name = ""
        values: list[tuple[memoryview, bool]] = []
        for number, kind, value in self._iter_fields(metric):
            if number == _NAME and kind == _BYTES:
                name = _to_text(value)
            elif number in (_GAUGE, _SUM) and kind == _BYTES:
                values.append((value, number == _SUM and self._has_number(value, _TEMPORALITY, _DELTA)))
        for points, is_delta in values:
            for point in self._iter_messages(points, _POINTS):
                yield self._parse_point(name, point, is_delta)

    def _parse_point(self, name: str, point: memoryview, is_delta: bool) -> ClientMetric:
        amount, attributes = 0.0, []
        for number, kind, value in self._iter_fields(point):
            if number == _AS_DOUBLE and kind == _FIXED64:
                amount = _DOUBLE.unpack(value)[0]
            elif number == _AS_INTEGER and kind == _FIXED64:
                amount = float(_INTEGER.unpack(value)[0])
            elif number == _ATTRIBUTES and kind == _BYTES:
                key = next(map(_to_text, self._iter_messages(value, _KEY)), "")
                texts = (
                    _to_text(text)
                    for held in self._iter_messages(value, _VALUE)
                    for text in self._iter_messages(held, _TEXT)
                )
                attributes.append(f"{key}={next(texts, '')}")
        return ClientMetric(name, ",".join(sorted(attributes))[:NAME_BYTES_MAX], amount, is_delta)

    def _has_number(self, data: memoryview, wanted: int, expected: int) -> bool:
        return any(
            number == wanted and kind == _VARINT and bytes(value) == bytes([expected])
            for number, kind, value in self._iter_fields(data)
        )

    def _iter_messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        return (value for number, kind, value in self._iter_fields(data) if number == wanted and kind == _BYTES)

    def _iter_fields(self, data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
        """Yield number, wire type and bytes of each field of a protobuf message."""
        at = 0
        while at < len(data):
            self._fields_left -= 1
            if self._fields_left < 0:
                raise MalformedMessage(f"metrics: a push has at most {FIELDS_MAX} fields; push fewer metrics", at=at)
            key, at = read_uvarint(data, at)
            kind, start = key & 7, at
            if kind == _VARINT:
                end = min(len(data), at + VARINT_BYTES_MAX)
                while at < end and data[at] & 0x80:
                    at += 1
                at += 1
                if at - start > VARINT_BYTES_MAX:
                    raise MalformedMessage("metrics: a number has more than 64 bits", at=start)
            elif kind == _BYTES:
                size_bytes, start = read_uvarint(data, at)
                at = start + size_bytes
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
            else:
                raise MalformedMessage(f"metrics: a field has the invalid type {kind}", at=start)
            if at > len(data) or not key >> 3:
                raise MalformedMessage("metrics: a field is truncated", at=start)
            yield key >> 3, kind, data[start:at]


def _to_text(data: memoryview) -> str:
    return str(data[:NAME_BYTES_MAX], "utf-8", "replace")
