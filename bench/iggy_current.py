"""The current generation of Iggy under its published client, package apache-iggy 0.9: sends and polls by durability.

Payloads of 100 bytes with three headers, batches of 1000, one connection; the client, in Python over Rust, is inside of
the figures; the rows "nobody" show what it does at most, against a server that answers the same bytes and does nothing
(``_null_iggy_current``). The real server, which acknowledges from memory, gave with this client on another day and the
same machine: sent 1,131 k/s (860 to 1,347), polled 1,645 (1,385 to 1,654), a single message after 344 us (p99 960).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench._encrypted import BY_LISTENER, encrypting_broker
from bench.measure import cpu_s, kernels_loaded, median
from lading import testing
from tests.endpoints.authority import Authority
from tests.interop import wheels

QUESTION = "Iggy's current generation under its own client: messages/s, broker's CPU per million, wait for a single one"

PROGRAM: Final = Path(__file__).parent / "_iggy_current_load.py"
BATCH: Final = 1000
ENCRYPTED: Final = "iggy_tcp.encrypted"
SCHEMES: Final = {"TCP": ("tcp", "iggy_tcp"), "WebSocket": ("ws", "iggy_websocket"), "QUIC": ("quic", "iggy_quic")}


def addresses_of(broker: testing.BrokerProcess, nobody: str, authority: Authority) -> dict[str, str]:
    """The connection string of each row; those of ``nobody`` go first, beside the broker's own over TCP."""
    login = "iggy:iggy@"
    served = {
        name: f"iggy+{scheme}://{login}{broker.endpoints[endpoint]}" for name, (scheme, endpoint) in SCHEMES.items()
    }
    options = f"tls=true&tls_domain=localhost&tls_ca_file={authority.file}"
    encrypted = f"iggy+tcp://{login}{broker.endpoints[ENCRYPTED]}?{options}"
    return {"nobody": f"iggy+tcp://{login}{nobody}", **served, "TCP, TLS": encrypted}


@contextmanager
def answering_nothing(broker: testing.BrokerProcess) -> Iterator[str]:
    """The address of a server that does nothing for messages, and ends with the block."""
    command = [sys.executable, "-m", "bench._null_iggy_current", broker.endpoints["iggy_tcp"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: transport, durability, k messages/s sent and polled (medians), CPU of the broker, waits of single sends."""
    python = wheels.install("apache-iggy", "0.9.0", "3.11")
    rounds, batches = (1, 50) if quick else (3, 400)
    rows = []
    for durability in ("os", "fsync"):
        with (
            tempfile.TemporaryDirectory() as directory,
            encrypting_broker("iggy_tcp", BY_LISTENER, authority := Authority(Path(directory)), durability) as broker,
            answering_nothing(broker) as nobody,
        ):
            kernels_loaded(broker)
            for transport, place in addresses_of(broker, nobody, authority).items():
                # QUIC's state machine is in Python here, on one side of the connection
                count = batches // 10 if transport == "QUIC" else batches
                taken = []
                for _ in range(rounds):
                    began_cpu_s = cpu_s(broker.pid)
                    (figures,) = wheels.run(python, PROGRAM, place, str(count), str(BATCH))
                    taken.append({**figures, "cpu": (cpu_s(broker.pid) - began_cpu_s) / (2 * count * BATCH) * 1e6})
                middle = {name: median(one[name] for one in taken) for name in taken[0]}
                rows.append(
                    {
                        "transport": transport,
                        "durability": durability,
                        "sent k/s": round(middle["sent"] / 1e3),
                        "polled k/s": round(middle["polled"] / 1e3),
                        "CPU s/M": round(middle["cpu"], 2),
                        "single p50 us": round(middle["p50"] * 1e6),
                        "single p99 us": round(middle["p99"] * 1e6),
                    }
                )
    return rows
