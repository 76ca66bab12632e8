"""What headers cost the client as there are more of them: CPU of a message, written and read, over each protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

import pyarrow as pa

from lading import Consumer, read_arrow, testing, write_arrow
from lading.kernels import engine

QUESTION = "microseconds of CPU of the client a message, by the number of its headers (kind int32), written and read"
HEADERS: Final = (1, 10, 64, 65, 100, 1000)
TOTAL: Final = 100_000
"""About so many headers each figure is of."""
PROTOCOLS: Final[Mapping[str, str]] = {"lading": "admin", "kafka": "kafka", "iggy": "iggy_tcp", "nsq": "nsqd_tcp"}
_runs = count()


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: protocol, headers, and CPU of writing, of reading whole messages, and of a column for each header."""
    total = TOTAL // 10 if quick else TOTAL
    with testing.broker() as broker:
        urls = {protocol: f"{protocol}://{broker.endpoints[endpoint]}" for protocol, endpoint in PROTOCOLS.items()}
        for url in urls.values():
            _measure(url, 10, 100)
        while engine.is_loading():
            time.sleep(0.1)
        return [_measure(url, headers, max(20, total // headers)) for url in urls.values() for headers in HEADERS]


def _measure(url: str, headers: int, messages: int) -> dict[str, Any]:
    protocol = url.partition(":")[0]
    topic, names = f"headers{headers}-{next(_runs)}", [f"name-{number}" for number in range(headers)]
    column = pa.array(range(messages), pa.int32())
    payloads = pa.array([b"x"] * messages, pa.binary())
    table = pa.Table.from_arrays([*[column] * headers, payloads], names=[*names, "payload"])
    row: dict[str, Any] = {"protocol": protocol, "headers": headers, "messages": messages}
    row["write"] = _spend(lambda: write_arrow(table, url, topic, headers=names), messages)
    if protocol == "nsq":
        return row | {"read": _spend(lambda: _read_queue(url, topic, messages), messages)}
    text = ", ".join(f'"{name}" int' for name in names)
    return row | {
        "read": _spend(lambda: read_arrow(url, topic), messages),
        "read columns": _spend(lambda: read_arrow(url, topic, text), messages),
    }


def _read_queue(url: str, topic: str, messages: int) -> None:
    left = messages
    with Consumer(url, topic, group="bench", timeout_s=5) as consumer:
        for batch in consumer.batches():
            left -= batch.num_rows
            if left <= 0:
                return


def _spend(work: Callable[[], Any], messages: int) -> float:
    begun = time.process_time()
    work()
    return round((time.process_time() - begun) * 1e6 / messages, 1)
