"""Clients that connect while the broker is busy wait in the system's queue, and no connect is repeated."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from lading import testing
from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.log.group_commit import WriteOnly
from lading.serve.serve import _runner
from tests.endpoints.test_lent_sockets import Nsqd

SOMAXCONN = Path("/proc/sys/net/core/somaxconn")
CONNECTS = 1_000
CLIENTS = 200


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


def test_a_pass_of_the_loop_accepts_many_clients(tmp_path: Path) -> None:
    # libuv accepts one client of a listener in each pass, and thousands of busy connections make a pass long
    async def count_passes(broker: Broker, workers: ThreadPoolExecutor) -> int:
        nsqd = Nsqd(broker, workers)
        await nsqd.start()
        with ExitStack() as sockets:
            for _ in range(CLIENTS):
                sockets.enter_context(socket.create_connection(nsqd.address, 5))
            passes = 0
            while len(nsqd.connections) < CLIENTS and passes < 10 * CLIENTS:
                passes += 1
                await asyncio.sleep(0)
        await nsqd.server.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(nsqd.address, 5)
        return passes

    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=1, commit=WriteOnly())
    with ThreadPoolExecutor(1) as workers, _runner() as runner:
        assert runner.run(count_passes(broker, workers)) <= CLIENTS // 4
    broker.stop()
