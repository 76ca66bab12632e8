"""What TLS costs the NSQ face and upstream's nsqd, under the same go-nsq clients, by turns in one run.

Clients change to TLS in the protocol (``tls_v1``): each server answers both on one address, with a certificate of one
authority. Ours does not sync, as nsqd does not; versions and ciphers are what OpenSSL and Go agree on by default
(TLS 1.3).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench._encrypted import BY_UPGRADE, TlsTable, encrypting_broker
from bench.measure import kernels_loaded, median
from bench.nsq_face import COUNTS, NsqSide, drive
from tests.endpoints.authority import Authority
from tests.interop import go_programs

QUESTION = "NSQ over TLS: our broker and upstream's nsqd, each with TLS ÷ without; go-nsq, 100 B, os"
ROUNDS: Final = 5


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: what, both servers plain and with TLS, shares that TLS leaves, ours ÷ nsqd's with TLS; median of 5."""
    scale, rounds = (10, 1) if quick else (1, ROUNDS)
    try:
        client = go_programs.Conversation(go_programs.client("load"))
        with ExitStack() as stack:
            stack.callback(client.close)
            sides = stack.enter_context(_sides())
            for number in range(rounds):
                for side in sides if number % 2 else sides[::-1]:
                    drive(client, side, scale)
            return _rows(sides)
    except go_programs.Unavailable as missing:
        print(f"not measured: {missing}", file=sys.stderr)
    return []


@contextmanager
def _sides() -> Iterator[list[NsqSide]]:
    """Ours plain and with TLS, upstream's plain and with TLS."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authority = Authority(directory)
        ours = stack.enter_context(encrypting_broker("nsqd_tcp", BY_UPGRADE, authority))
        kernels_loaded(ours)
        certificate = authority.sign("nsqd")
        options = (f"-tls-cert={certificate}", f"-tls-key={certificate}")
        theirs = stack.enter_context(go_programs.running(directory / "nsqd", *options))
        mine, others = (ours.endpoints["nsqd_http"], ours.pid), (theirs.nsqd_http, theirs.nsqd_pid)
        trusted = str(authority.file)
        yield [
            NsqSide("lading", ours.endpoints["nsqd_tcp"], *mine),
            NsqSide("lading, TLS", ours.endpoints["nsqd_tcp"], *mine, ca_file=trusted),
            NsqSide("nsqd", theirs.nsqd_tcp, *others),
            NsqSide("nsqd, TLS", theirs.nsqd_tcp, *others, ca_file=trusted),
        ]


def _rows(sides: list[NsqSide]) -> list[dict[str, Any]]:
    table = TlsTable([side.name for side in sides], "nsqd")
    for what in COUNTS:
        table.add(f"{what}, k messages/s", [median(side.rates[what]) / 1000 for side in sides], 1)
        table.add(f"{what}, server's CPU s/M", [median(side.cpu[what]) for side in sides], 2)
    for part, name in enumerate(("p50", "p99")):
        table.add(f"{name} at 1,000/s, us", [median(pair[part] for pair in side.latency) for side in sides], 0)
    return table.rows
