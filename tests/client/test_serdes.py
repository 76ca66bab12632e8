"""The forms in which producers take serialisers, and consumers deserialisers."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from lading import Consumer, Producer
from lading.client.serdes import accept_deserializer, accept_serializer, to_json
from lading.model.errors import SettingError
from lading.model.headers import Headers


class WithSerialize:
    """As ``kafka.serializer.Serializer``, which kafka-python's users derive from."""

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        return f"{topic}:{data}".encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


def add_a_header(topic: str, headers: Headers, value: Any) -> bytes:
    headers.add("kind", "text")
    return str(value).encode()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (lambda value: json.dumps(value).encode(), b'"v"'),
        (str.encode, b"v"),
        (partial(bytes, encoding="utf-16-le"), b"v\0"),
        (lambda topic, value: f"{topic}={value}".encode(), b"t=v"),
        (lambda topic, headers, value, strict=False: value.encode(), b"v"),
        (lambda *arguments: repr(len(arguments)).encode(), b"3"),
        (WithSerialize(), b"t:v"),
        (to_json, b'"v"'),
    ],
)
def test_a_serializer_may_take_one_two_or_three_values(given: Any, expected: bytes) -> None:
    assert accept_serializer("value_serializer", given)("t", Headers(), "v") == expected


def test_three_values_are_for_those_who_add_headers() -> None:
    headers = Headers()
    assert accept_serializer("value_serializer", add_a_header)("t", headers, 7) == b"7"
    assert headers.get("kind") == "text"


def test_deserializers_too() -> None:
    def call(given: Any, data: bytes) -> Any:
        deserializer = accept_deserializer("value_deserializer", given)
        assert deserializer is not None
        return deserializer("t", Headers(), data)

    assert call(json.loads, b"[1]") == [1]
    assert call(int, b"12") == 12
    assert call(WithSerialize(), b"v") == "v"
    assert accept_deserializer("value_deserializer", None) is None


@pytest.mark.parametrize("given", [lambda: b"", lambda a, b, c, d: b"", lambda a, *, codec: b"", "json", 7, object()])
def test_a_wrong_form_is_told_with_the_option_when_the_client_is_made(given: Any) -> None:
    makers: list[Callable[[str, Any], Any]] = [accept_serializer, accept_deserializer]
    for accept in makers:
        with pytest.raises(SettingError, match=r"key_codec .* cannot be called with \(value\), \(topic, value\) or"):
            accept("key_codec", given)


def test_the_clients_take_what_kafka_python_takes() -> None:
    clients: list[Callable[..., Any]] = [
        Producer,
        Producer,
        partial(Consumer, topics="t"),
        partial(Consumer, topics="t"),
    ]
    options = ("key_serializer", "value_serializer", "key_deserializer", "value_deserializer")
    for client, option in zip(clients, options, strict=True):
        with pytest.raises(SettingError, match=option):
            client("lading://127.0.0.1:1", **{option: 7})
