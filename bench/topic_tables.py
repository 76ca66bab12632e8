"""A topic as a live Iceberg table beside a plain read of it: freshness, the first query and those after it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import httpx
from pyiceberg.catalog.rest import RestCatalog

from bench.measure import cpu_s, median
from bench.mirror import make_flights
from lading import read_arrow, testing, write_arrow
from lading.transports.lading.transport import LadingTransport

QUESTION = "A query of two typed columns by PyIceberg over the live table of a topic / by read_arrow, two cores"
ROWS: Final = 1_000_000
LOADS: Final = 1_000
FRESH: Final = 40
END_S: Final = 10
COLUMNS: Final = "carrier string, delay int"


@contextmanager
def _catalog(url: str, state: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = ["tables", "--from", url, "--address", "127.0.0.1:0", "--state", state, "-o", "json", "--with-parent"]
    with subprocess.Popen(
        [sys.executable, "-m", "lading.cli.main", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield process, f"http://{json.loads(process.stdout.readline())['endpoints']['tables']}"
        finally:
            process.terminate()
            process.wait(END_S)


def _time(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: seconds of the first query, of later ones and of a plain read; milliseconds of a load and until visible."""
    rows = ROWS // 20 if quick else ROWS
    with (
        testing.broker(durability="os") as broker,
        tempfile.TemporaryDirectory() as state,
        closing(LadingTransport(broker.url)) as transport,
        _catalog(broker.url, state) as (process, address),
    ):
        write_arrow(make_flights(rows), broker.url, "flights", headers=["carrier", "delay", "trace"])
        transport.alter_topic("flights", {"columns": COLUMNS})
        client = RestCatalog("bench", uri=address)

        def query() -> None:
            table = client.load_table("default.flights").scan(selected_fields=("carrier", "delay")).to_arrow()
            assert table.num_rows == rows

        def read() -> None:
            assert read_arrow(broker.url, "flights", COLUMNS).num_rows == rows

        first_s = _time(query)
        turns = [(_time(query), _time(read)) for _ in range(1 if quick else 5)]
        later_s, plain_s = (median(times) for times in zip(*turns, strict=True))
        fresh_s = [_see_one_more(client, broker.url, number) for number in range(FRESH // 8 if quick else FRESH)]
        with httpx.Client(base_url=f"{address}/v1/lading/namespaces/default/tables") as http:
            http.get("/flights").raise_for_status()
            used_s, loads = cpu_s(process.pid), LOADS // 10 if quick else LOADS
            loads_s = _time(lambda: [http.get("/flights").raise_for_status() for _ in range(loads)])
            load_cpu_s = cpu_s(process.pid) - used_s
    return [
        {
            "messages": rows,
            "first query s": round(first_s, 2), "later query s": round(later_s, 3), "read_arrow s": round(plain_s, 3),
            "times": round(plain_s / later_s, 1),
            "visible p50 ms": round(median(fresh_s) * 1e3), "visible max ms": round(max(fresh_s) * 1e3),
            "load ms": round(loads_s / loads * 1e3, 2), "load CPU ms": round(load_cpu_s / loads * 1e3, 2),
        }
    ]  # fmt: skip


def _see_one_more(client: RestCatalog, url: str, number: int) -> float:
    """Return the seconds from the acknowledgement of a message until a query has shown it."""
    write_arrow(make_flights(1), url, "fresh", headers=["carrier"])
    return _time(lambda: _require(client.load_table("default.fresh").scan().to_arrow().num_rows, number + 1))


def _require(found: int, expected: int) -> None:
    assert found == expected, f"{found} rows instead of {expected}"
