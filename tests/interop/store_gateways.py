"""Gateways on one Kafka cluster, with published clients of Iggy at them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from lading.testing import BrokerProcess
from tests.interop import wheels
from tests.interop.iggy_current import CurrentClient

READY_S = 10.0


@contextmanager
def open_clients(gateways: Sequence[BrokerProcess]) -> Iterator[list[CurrentClient]]:
    """The published package apache-iggy 0.9.0, one at each gateway; without it the test is skipped."""
    try:
        clients = [CurrentClient(gateway.endpoints["iggy_tcp"]) for gateway in gateways]
    except wheels.Unavailable as error:
        pytest.skip(str(error))
    yield clients
    for client in clients:
        client.close()


def wait_until(holds: Any, wait_s: float = READY_S) -> None:
    """Wait until gateways agree: each learns a moment later what was changed at another."""
    deadline = time.monotonic() + wait_s
    while not holds():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
