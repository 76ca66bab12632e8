"""Where our answers differ from the real 0.0.40 server's, and why. What is not listed here must be equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CLOCK = "times are those of the run"
MADE = "ids that the server makes are random"
PEER = "a client's port is chosen by the system, and its id is the CRC-32 of address and port"
MACHINE = "figures of the process and the machine it runs on"
DISK = "bytes as they lie on disk: ours have an envelope around each chunk and one index for a segment"
ORDER = "the real server keeps a hash map here, so its order differs from run to run; ours is by number or as sent"

VOLATILE: Final[Mapping[str, str]] = {
    "timestamp": CLOCK,
    "made_id": MADE,
    "address": PEER,
    "client_id": PEER,
    "size_bytes": DISK,
    "messages_size_bytes": DISK,
    "header_order": ORDER,
    "partition_order": ORDER,
    **dict.fromkeys(
        ("process_id", "cpu_usage", "memory_usage", "total_memory", "available_memory", "run_time", "start_time",
         "read_bytes", "written_bytes", "hostname", "os_name", "os_version", "kernel_version"),
        MACHINE,
    ),
}  # fmt: skip
"""Parts of answers that are compared by their form only."""

TCP: Final[Mapping[str, str]] = {}
"""Exchanges over TCP with another outcome."""

HTTP: Final[Mapping[str, str]] = {
    "stream.create without id": "the sentence ends with our parser's words; status and type are equal",
    "stream.create broken JSON": "the sentence ends with our parser's words; status and type are equal",
    "messages.send unknown header kind": "the sentence names the header; status and type are equal",
    "messages.poll unknown kind": "the sentence names the kinds there are; status and type are equal",
    "offset.put numeric id": "a number is taken where the real server wants its text, as other clients send it",
}
"""Exchanges over HTTP with another status, type or text."""
