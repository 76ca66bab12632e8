"""What survives each route of a mirror, counted over generated messages that are sent and read back.

``python -m bench.fidelity`` writes docs/explanation/fidelity.md. Each route runs twice, with carriers and without: what
differs without them and not with them was rebuilt, what differs with them was lost. Source and target are a Lading
broker by the face of each protocol; what a target loses lies in the form of its messages, which is the real server's.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from lading import read_arrow, testing
from lading.mirror.fidelity import FACTS, Fidelity
from lading.mirror.run import run_mirror
from lading.mirror.settings import MirrorSettings
from lading.model.batch import SCHEMA
from lading.model.kinds import Kind
from lading.transports.open import open_transport

QUESTION = "Mirror, by route: messages exact, rebuilt by the carrier, lost"
PAGE: Final = Path(__file__).parents[1] / "docs" / "explanation" / "fidelity.md"
MESSAGES: Final = 100_000
BATCH_ROWS: Final = 5_000
SEED: Final = 17
FACES: Final = {"kafka": "kafka", "iggy": "iggy_tcp", "nsq": "nsqd_tcp", "lading": "admin"}
SIZES: Final = {
    Kind.BOOL: 1, Kind.INT8: 1, Kind.UINT8: 1, Kind.INT16: 2, Kind.UINT16: 2, Kind.INT32: 4, Kind.UINT32: 4,
    Kind.FLOAT32: 4, Kind.INT64: 8, Kind.UINT64: 8, Kind.FLOAT64: 8, Kind.INT128: 16, Kind.UINT128: 16,
}  # fmt: skip
NAMES: Final = ("carrier", "delay", "via", "origin", "trace", "ärger", "x" * 40, "n", "UPPER.case-1", "")
Counts = dict[str, tuple[int, int, int, int]]
"""By fact: messages that have it, and of these exact, rebuilt and lost."""


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: source, target, then by fact how many messages are exact / rebuilt / lost."""
    rows = []
    for source, target, counts in measure(1_000 if quick else MESSAGES):
        cells = {fact: f"{exact} / {rebuilt} / {lost}" for fact, (_, exact, rebuilt, lost) in counts.items()}
        rows.append({"source": source, "target": target} | cells)
    return rows


def measure(messages: int) -> Iterator[tuple[str, str, Counts]]:
    """Yield each route with its counts."""
    with testing.broker() as broker, tempfile.TemporaryDirectory() as states:
        urls = {name: f"{name}://{broker.endpoints[face]}" for name, face in FACES.items()}
        sources = urls | {"file": str(broker.data_dir)}
        batches = list(generate(messages))
        _send(broker.url, "sent", batches)
        for source, source_url in sources.items():
            for target, target_url in urls.items():
                fidelity = Fidelity()
                read = []
                for carrier in ("off", "on"):
                    topic = "sent"
                    if source == "nsq":
                        # the first channel of a topic gets what is there already
                        topic = f"sent_{target}_{carrier}"
                        _send(broker.url, topic, batches)
                    name = f"{source}_{target}_{carrier}"
                    run_mirror(
                        MirrorSettings(
                            source_url, target_url, [topic], renames={topic: name}, carrier=carrier,
                            state=Path(states) / name, quiet_ms=8_000,
                        )
                    )  # fmt: skip
                    read.append(read_arrow(broker.url, name).combine_chunks())
                were = read_arrow(broker.url, "sent").combine_chunks()
                for low in range(0, were.num_rows, BATCH_ROWS):
                    were_part, off, on = (_part(table, low) for table in (were, *read))
                    fidelity.add(were_part, off, on)
                yield (
                    source,
                    target,
                    {
                        row["fact"]: (row["messages"], row["exact"], row["rebuilt"], row["lost"])
                        for row in fidelity.rows()
                    },
                )


def _part(table: pa.Table, low: int) -> pa.RecordBatch:
    (batch,) = table.slice(low, BATCH_ROWS).combine_chunks().to_batches()
    return batch


def _send(url: str, topic: str, batches: list[pa.RecordBatch]) -> None:
    transport = open_transport(url)
    transport.create_topic(topic, 1)
    for batch in batches:
        transport.send(topic, 0, batch)
    transport.close()


def generate(messages: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of messages with every kind of header, repeated, null and empty ones, the same in each run."""
    rng = random.Random(SEED)
    begun_us = 1_700_000_000_000_000
    for low in range(0, messages, BATCH_ROWS):
        count = min(BATCH_ROWS, messages - low)
        columns: dict[str, list[Any]] = {
            "offset": list(range(count)),
            "state": [1] * count,
            "timestamp": [begun_us + (low + at) * 1_000 + rng.choice((0, rng.randrange(1000))) for at in range(count)],
            "id": [rng.choice((None, rng.randbytes(16))) for _ in range(count)],
            "checksum": [None] * count,
            "key": [rng.choice((None, b"", rng.randbytes(8))) for _ in range(count)],
            "headers": [_headers(rng) for _ in range(count)],
            "payload": [rng.choice((None, b"", *[rng.randbytes(rng.randrange(1, 60))] * 8)) for _ in range(count)],
        }
        yield pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def _headers(rng: random.Random) -> list[dict[str, Any]]:
    names = [rng.choice(NAMES) for _ in range(rng.choice((0, 1, 2, 2, 3, 3, 4, 6)))]
    return [_header(rng, name) for name in names]


def _header(rng: random.Random, name: str) -> dict[str, Any]:
    kind = rng.choice((Kind.RAW, Kind.STRING, Kind.STRING, *SIZES))
    if kind in SIZES:
        value: bytes | None = rng.randbytes(SIZES[kind]) if kind is not Kind.BOOL else rng.choice((b"\0", b"\1"))
        return {"key": name, "kind": int(kind), "value": value}
    if kind is Kind.STRING:
        value = "".join(rng.choices("aé界 1", k=rng.choice((0, 3, 12, 12, 300)))).encode()
    else:
        value = rng.choice((None, b"", rng.randbytes(rng.choice((1, 20, 400)))))
    return {"key": name, "kind": int(kind), "value": value}


def page(found: list[tuple[str, str, Counts]], messages: int, seconds: float) -> str:
    """Return the page of the docs."""
    groups: dict[tuple[str, str], tuple[list[str], Counts]] = {}
    for source, target, counts in found:
        groups.setdefault((target, repr(counts)), ([], counts))[0].append(source)
    texts = [
        f"""# Fidelity: what survives a mirror

<!-- written by python -m bench.fidelity -->

`python -m bench.fidelity` sent {messages:,} generated messages over each of {len(found)} routes of [`lading
mirror`](../how-to/mirror.md), with carriers and without, read both back and compared every message with what it was
({seconds:,.0f} s, seed {SEED}). *Exact* is what a plain reader of the target sees unchanged, *rebuilt* what the
[carrier](../reference/carrier.md) brings along for readers that know it, *lost* what neither has. Without carriers
(`--carrier off`) what is rebuilt is lost. Each row counts the messages that have the fact:

{"".join(f"* **{fact}**: {counted}." + chr(10) for fact, counted in FACTS.items())}
Sources and targets are a Lading broker by the face of each protocol. A source gives all that it holds: what was lost
on the way into a real server is not there to be mirrored. A time that Kafka only cuts to the millisecond is no reason
for a carrier of its own ([carrier](../reference/carrier.md)): where a message needs none for anything else, its
microseconds are lost.

How often a message arrives if a mirror ends in the middle and is run again, by target:
[promises](promises.md#writers-that-end-anywhere).
"""
    ]
    for (target, _), (sources, counts) in groups.items():
        texts.append(
            f"\n## To {target} from {', '.join(sources)}\n\n"
            "| fact | messages | exact | rebuilt | lost |\n|---|--:|--:|--:|--:|\n"
            + "".join(f"| {fact} | " + " | ".join(f"{one:,}" for one in row) + " |\n" for fact, row in counts.items())
        )
    return "".join(texts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fidelity", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--to", type=Path, default=PAGE, help="the page to write")
    arguments = parser.parse_args()
    begun = time.monotonic()
    found = []
    for source, target, counts in measure(arguments.messages):
        found.append((source, target, counts))
        print(f"{source} to {target}: {time.monotonic() - begun:.0f} s", flush=True)
    arguments.to.write_text(page(found, arguments.messages, time.monotonic() - begun))
    return 0


if __name__ == "__main__":
    sys.exit(main())
