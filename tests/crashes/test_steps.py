"""Moments of a writer: the same in each run, however often a busy server has to be asked."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import pytest

from lading.mirror.state import MirrorState
from lading.transports.kafka.cluster import KafkaCluster
from tests.crashes.driver import call_in_fork
from tests.crashes.steps import StepTracer

FIND_COORDINATOR, INIT_PRODUCER_ID, END_TXN = 10, 22, 26


def list_moments(requests: Callable[[Callable[[int], None]], None]) -> list[list[object]]:
    """Return the moments of a step that sends these requests, each of which has a response."""

    def run() -> list[list[object]]:
        ours, server = socket.socketpair()
        server.sendall(bytes(100))
        tracer = StepTracer()

        def send(key: int) -> None:
            ours.sendall(struct.pack(">ih", 10, key) + bytes(8))
            ours.recv(1)

        MirrorState.begin = lambda self: requests(send)  # type: ignore[assignment, misc]
        tracer.install()
        tracer.arm(None)
        MirrorState.begin(None)  # type: ignore[arg-type, call-arg]
        return [list(moment) for moment in dict.fromkeys(tracer.moments)]

    moments: list[list[object]] = call_in_fork(run)
    return moments


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("busy", [1, 3])
def test_a_busy_coordinator_adds_no_moments(busy: int, is_known: bool) -> None:
    """A refusal forgets the coordinator, which is looked up again before the request is repeated."""

    def ask(send: Callable[[int], None], times: int) -> None:
        if not is_known:
            send(FIND_COORDINATOR)
        for _ in range(times):
            send(INIT_PRODUCER_ID)
            KafkaCluster.pause(0.0)
            send(FIND_COORDINATOR)
        send(INIT_PRODUCER_ID)
        send(END_TXN)

    once = list_moments(lambda send: ask(send, 0))
    assert len(once) == (6 if is_known else 8)
    assert list_moments(lambda send: ask(send, busy)) == once


def test_a_lookup_that_is_repeated_adds_no_moments() -> None:
    def ask(send: Callable[[int], None], times: int) -> None:
        for _ in range(times):
            send(FIND_COORDINATOR)
            KafkaCluster.pause(0.0)
        send(FIND_COORDINATOR)
        send(INIT_PRODUCER_ID)

    assert list_moments(lambda send: ask(send, 2)) == list_moments(lambda send: ask(send, 0))
