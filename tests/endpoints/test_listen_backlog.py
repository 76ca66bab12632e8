"""Clients that connect while the broker is busy wait in the system's queue, and no connect is repeated."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from lading import testing

SOMAXCONN = Path("/proc/sys/net/core/somaxconn")
CONNECTS = 1_000


@pytest.mark.skipif(
    not SOMAXCONN.exists() or int(SOMAXCONN.read_text()) < CONNECTS, reason="the system's own queue is shorter"
)
@pytest.mark.parametrize("endpoint", ["kafka", "iggy_http"])
@pytest.mark.turns(2)
def test_a_thousand_clients_connect_while_the_broker_does_not_accept(endpoint: str) -> None:
    with testing.broker(durability="os") as broker, ExitStack() as sockets:
        host, port = broker.endpoints[endpoint].rsplit(":", 1)
        # a stopped process accepts nothing: what connects is in the queue, or waits for its packet to be sent again
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            for _ in range(CONNECTS):
                client = sockets.enter_context(socket.socket())
                client.settimeout(5)
                client.connect((host, int(port)))
        finally:
            os.kill(broker.pid, signal.SIGCONT)
