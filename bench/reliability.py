"""The same failures for Apache Kafka, upstream's nsqd and ours, under the same clients, one server after the other.

``python -m bench.reliability PATTERN ...`` runs only scripts whose names hold one of the patterns. Power cuts and full
disks need root: they mount file systems of their own. A power cut keeps what had reached the block device, that is
what a file in place of a disk has at that moment; ``kill -9`` keeps what the operating system had, synced or not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from bench._reliability_scripts import NOT_SERVED, SCRIPTS, summary_s
from bench._reliability_servers import CannotMount, FailingServer, KafkaServer, LadingServer, NsqdServer
from lading.cli.output import Output, print_table

QUESTION = "The same failures for Kafka, nsqd and Lading: acknowledged, lost, doubled, until a message is served again"
ROUNDS = 3


def _servers() -> list[FailingServer]:
    return [
        KafkaServer(is_synced=False),
        KafkaServer(is_synced=True),
        LadingServer("kafka", "os"),
        LadingServer("kafka", "fsync"),
        NsqdServer(is_synced=False),
        NsqdServer(is_synced=True),
        LadingServer("nsq", "os"),
        LadingServer("nsq", "fsync"),
    ]


def run(quick: bool, patterns: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """One row a script and server: what was acknowledged, lost, doubled, redelivered, and how long it took."""
    rows: list[dict[str, Any]] = []
    for script in SCRIPTS:
        if patterns and not any(pattern in script for pattern in patterns):
            continue
        for server in _servers():
            row = _row(script, server, 1 if quick else ROUNDS)
            if row is not None:
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
    return rows


def _row(script: str, server: FailingServer, rounds: int) -> dict[str, Any] | None:
    row: dict[str, Any] = {"failure": script, "clients": server.protocol, "server": server.name}
    with tempfile.TemporaryDirectory(prefix="lading-bench-", ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch)
        try:
            server.place(directory / "home", directory / "data")
            outcome = SCRIPTS[script](server, directory, rounds)
        except CannotMount as error:
            print(f"not measured: {script}: {error}", file=sys.stderr)
            return None
        except NOT_SERVED as error:
            return row | {"what": f"{type(error).__name__}: {error}"}
        finally:
            server.kill()
    again_s = summary_s(script, outcome.again_s)
    return row | {
        "acknowledged": outcome.acknowledged,
        "lost": outcome.lost,
        "doubled": outcome.doubled,
        "redelivered": outcome.redelivered,
        "again s": None if again_s is None else round(again_s, 3),
        "what": "; ".join(outcome.notes),
    }


if __name__ == "__main__":
    found = run(quick="--quick" in sys.argv, patterns=tuple(one for one in sys.argv[1:] if one != "--quick"))
    print_table(found, {key: key for row in found[-1:] for key in row}, output=Output.TEXT, title=QUESTION)
