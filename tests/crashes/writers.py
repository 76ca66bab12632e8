"""Every writer into every target: what it sends, one run of it, and how often its target promises to show a message.

A run begins where the one before ended, by the state in the writer's directory, as the program would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from lading import Headers, Producer, i32
from lading.client import delivery
from lading.client.header_columns import headers_of
from lading.client.outgoing import complete
from lading.mirror import run as mirror_run
from lading.mirror import source as mirror_source
from lading.mirror.settings import MirrorSettings
from lading.model.errors import LadingError
from lading.pipeline.dead_letter_redrive import ForeignDeadLetters
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.settings import PipelineSettings
from lading.spool import filler
from lading.tables.plan.options import DEDUPE_HEADER
from lading.transports.open import open_transport
from tests.crashes import spark_driver
from tests.pipeline.direct import Driver

PARTITIONS: Final = 2
ROWS: Final = 6
"""Messages of one partition at the source."""
ONCE: Final = "once"
WHOLE: Final = "whole"
"""Each run is whole in the topic, or not at all: nothing tells a second run from a new one."""
MARKED: Final = "marked"
"""At least once; repeats have the same header ``lading-dedupe``."""
AT_LEAST_ONCE: Final = "at least once"
SOURCE, LETTERS, JUDGED = "source", "letters", "judged"
"""Topics that all points read."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The broker that holds the sources, and the URLs of targets by name."""

    source: str
    targets: dict[str, str]
    prefix: str = ""
    """Prefix of the names of the sources."""

    def topic(self, name: str) -> str:
        """Return the name of a source."""
        return self.prefix + name


@dataclass(slots=True)
class Place:
    """Where one point of the matrix writes to: topics that begin with ``name``, and a directory of its own."""

    servers: Servers
    target: str
    name: str
    directory: Path
    topics: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The URL of the target."""
        return self.servers.targets[self.target]

    @property
    def is_queue(self) -> bool:
        """Whether the target has no partitions."""
        return self.target == "nsq"

    def topic(self, suffix: str = "") -> str:
        """Return the name of a topic of this point."""
        return self.name + suffix


class Row(NamedTuple):
    """A message as it is compared: its topic, partition (0 in a queue), payload, key, and its header ``row``."""

    topic: str
    partition: int
    payload: bytes
    key: bytes | None
    row: bytes | None


class Writer(NamedTuple):
    """A writer: one run of it, the messages that have to arrive, and what each target promises."""

    name: str
    run: Callable[[Place], None]
    list_sent: Callable[[Place], list[Row]]
    promises: dict[str, str]
    prepare: Callable[[Place], None] | None = None
    is_ordered: bool = True
    has_state: bool = True
    """Whether a run knows what the ones before it did; else one that was successful is not repeated."""


def payload_of(partition: int, row: int) -> bytes:
    """Return the payload of a message at the source."""
    return b"%d/%d" % (partition, row)


def rows_of(topic: str, place: Place, rows: Sequence[tuple[int, int]]) -> list[Row]:
    """Return messages of the source by partition and row, as they have to arrive in a topic."""
    return [
        Row(
            topic,
            0 if place.is_queue else partition,
            payload_of(partition, row),
            b"k%d" % row,
            row.to_bytes(4, "little"),
        )
        for partition, row in rows
    ]


EVERY: Final = [(partition, row) for partition in range(PARTITIONS) for row in range(ROWS)]
JUDGED_ROWS: Final = 12
EVERY_JUDGED: Final = [(0, row) for row in range(JUDGED_ROWS)]


def messages(partition: int, rows: Sequence[int], headers: Sequence[str] = ("row",)) -> pa.RecordBatch:
    """Return messages of the source with some of the headers row, carrier and delay."""
    columns = pa.record_batch(
        {
            "row": pa.array(rows, pa.int32()),
            "carrier": pa.array([None if row % 3 == 1 else "UA" for row in rows]),
            "delay": pa.array([row * 10 for row in rows], pa.int32()),
        }
    )
    return complete(
        len(rows),
        {
            "headers": headers_of(columns, {name: name for name in headers}, "absent"),
            "payload": pa.array([payload_of(partition, row) for row in rows], pa.binary()),
            "key": pa.array([b"k%d" % row for row in rows], pa.binary()),
        },
    )


def fill_sources(servers: Servers) -> None:
    """Make the topics that all points read."""
    transport = open_transport(servers.source)
    transport.create_topic(servers.topic(SOURCE), PARTITIONS)
    for partition in range(PARTITIONS):
        for first in range(0, ROWS, 2):
            transport.send(servers.topic(SOURCE), partition, messages(partition, (first, first + 1)))
    transport.create_topic(servers.topic(JUDGED), 1)
    for first in range(0, JUDGED_ROWS, 3):
        transport.send(servers.topic(JUDGED), 0, messages(0, range(first, first + 3), ("row", "carrier", "delay")))
    transport.create_topic(servers.topic(LETTERS), 1)
    transport.close()
    with Producer(servers.source) as producer:
        for partition, row in EVERY:
            facts = {"topic": "origin", "partition": partition, "offset": row}
            told: list[tuple[str, Any]] = [
                (f"__connect.errors.{name}", str(value).encode()) for name, value in facts.items()
            ]
            producer.send(
                servers.topic(LETTERS), payload_of(partition, row), key=b"k%d" % row, partition=0,
                headers=Headers([("row", i32(row)), *told]),
            )  # fmt: skip


# the writers


def run_stream(place: Place) -> None:
    """Run a streaming query with the sink."""
    spark_driver.StreamDriver(place.directory, _sink_options(place)).run(_frames(place))


def run_stream_without_id(place: Place) -> None:
    """Run a streaming query whose sink has no transactional id."""
    spark_driver.StreamDriver(place.directory, _sink_options(place) | {"transactionalId": ""}).run(_frames(place))


def run_batch(place: Place) -> None:
    """Write a frame by one job."""
    spark_driver.run_job([batch for frame in _frames(place) for batch in frame], _sink_options(place))


def _sink_options(place: Place) -> dict[str, str]:
    options = {"to": place.url, "topic": place.topic(), "headers": "row"}
    return options | ({"transactionalId": place.name} if place.target in ("kafka", "apache") else {})


def _frames(place: Place) -> list[list[pa.RecordBatch]]:
    """Return two micro-batches of two tasks, each with rows for both partitions."""

    def task(rows: Sequence[int]) -> pa.RecordBatch:
        pairs = [(partition, row) for partition in range(PARTITIONS) for row in rows]
        return pa.record_batch(
            {
                "payload": pa.array([payload_of(*pair) for pair in pairs], pa.binary()),
                "key": pa.array([b"k%d" % row for _, row in pairs], pa.binary()),
                "row": pa.array([row for _, row in pairs], pa.int32()),
                "partition": pa.array([0 if place.is_queue else partition for partition, _ in pairs], pa.int32()),
            }
        )

    return [[task((0, 1)), task((2,))], [task((3,)), task((4, 5))]]


def run_mirror(place: Place) -> None:
    """Mirror the source in works of four messages."""
    mirror_source.FETCH_BYTES, mirror_run.WORK_BYTES = 1, 300  # type: ignore[misc]
    topic = place.servers.topic(SOURCE)
    settings = MirrorSettings(
        place.servers.source, place.url, [topic], renames={topic: place.topic()}, state=place.directory / "state"
    )
    mirror_run.run_mirror(settings)


def redrive_letters(place: Place) -> None:
    """Send dead letters of others back: those of one partition, then the others."""
    letters = ForeignDeadLetters(place.servers.source, place.servers.topic(LETTERS), place.directory / "state")
    for where in ("origin_partition = 0", None):
        letters.redrive(where, to=place.topic(), server=place.url)


def run_pipeline(place: Place) -> None:
    """Run a pipeline whose good messages, route and quarantine are topics of the target."""
    Driver(write_routing_pipeline(place)).run()


def write_routing_pipeline(place: Place) -> Path:
    """Write the file of that pipeline."""
    return _pipeline_file(place, _ROUTES)


def quarantine_all(place: Place) -> None:
    """Fill the quarantine table that ``redrive_quarantine`` reads."""
    Driver(write_judging_pipeline(place)).run()


def write_judging_pipeline(place: Place) -> Path:
    """Write the file of a pipeline whose messages are all quarantined."""
    return _pipeline_file(place, _ALL_BAD)


def redrive_quarantine(place: Place) -> None:
    """Send the quarantine of a pipeline to the target, in two calls."""
    quarantine = Quarantine(PipelineSettings.load(write_judging_pipeline(place)))
    for where in (f"offset < {JUDGED_ROWS // 2}", None):
        quarantine.redrive(where, to=place.topic())


_ROUTES: Final = """
[pipeline]
id = "{name}"
max_rows = 6
state = "./state"

[source]
from = "{source}"
topic = "{judged}"

[quality]
max_failure_ratio = 1.0

[headers]
carrier = "string required"
delay = "int"

[[route]]
where = "delay > 60"
to = "{url}/{name}late"

[good]
to = "{url}/{name}good"

[quarantine]
to = "{url}/{name}failed"
"""
_ALL_BAD: Final = """
[pipeline]
id = "{name}"

[source]
from = "{source}"
topic = "{judged}"
server = "{url}"

[quality]
max_failure_ratio = 1.0

[headers]
nobody-has-this = "string required"

[good]
to = "parquet:./good"

[quarantine]
to = "parquet:./quarantine"
"""


def _pipeline_file(place: Place, text: str) -> Path:
    file = place.directory / "pipeline.toml"
    file.write_text(
        text.format(name=place.name, url=place.url, source=place.servers.source, judged=place.servers.topic(JUDGED))
    )
    return file


def list_pipeline_rows(place: Place) -> list[Row]:
    """Return where each message of the pipeline has to be."""
    fates = {
        "failed": [(partition, row) for partition, row in EVERY_JUDGED if row % 3 == 1],
        "late": [(partition, row) for partition, row in EVERY_JUDGED if row % 3 != 1 and row * 10 > 60],
        "good": [(partition, row) for partition, row in EVERY_JUDGED if row % 3 != 1 and row * 10 <= 60],
    }
    return [row for suffix, pairs in fates.items() for row in rows_of(place.topic(suffix), place, pairs)]


def send_by_key(place: Place) -> None:
    """Send two works of ``send_once``, one after the other."""
    with delivery_transport(place) as transport:
        for first in (0, 3):
            parts = [
                (0 if place.is_queue else part, messages(part, range(first, first + 3))) for part in range(PARTITIONS)
            ]
            is_kafka = place.target in ("kafka", "apache")
            target = delivery.DeliveryTarget(
                place.url, place.topic(), "", place.name if is_kafka else None, None, DEDUPE_HEADER
            )
            done = place.directory / f"done{first}"
            if not done.exists():
                delivery.send_once(transport, target, f"{place.name}/{first}", iter(parts))
                done.touch()


class delivery_transport:
    """A transport to the target of a place, closed after the block."""

    def __init__(self, place: Place) -> None:
        self._transport = open_transport(place.url)

    def __enter__(self) -> Any:
        return self._transport

    def __exit__(self, *error: object) -> None:
        self._transport.close()


def produce(place: Place) -> None:
    """Send with a Producer, whose ``flush`` is called again after an error; a new process begins with the first one."""
    producer = Producer(place.url, linger_ms=None, batch_count=3)
    try:
        for partition, row in EVERY:
            while True:
                try:
                    producer.send(
                        place.topic(), payload_of(partition, row), key=b"k%d" % row, headers=[("row", i32(row))],
                        partition=0 if place.is_queue else partition,
                    )  # fmt: skip
                    break
                except LadingError:
                    continue
        while producer.unsent:
            try:
                producer.flush()
            except LadingError:
                continue
    finally:
        producer.close()


def fill_spool(place: Place) -> None:
    """Take what is in the queue into a spool."""
    filler.QUIET_S, filler.WAIT_MS = 0.02, 20  # type: ignore[misc]
    ends: list[int] = []
    filler.fill_spool(
        place.servers.targets["nsq"], place.topic("queue"), "spool", place.directory / "spool",
        is_stopped=lambda: bool(ends), caught_up=ends.append,
    )  # fmt: skip


def fill_queue(place: Place) -> None:
    """Publish what ``fill_spool`` takes, for its channel."""
    transport = open_transport(place.servers.targets["nsq"])
    transport.create_topic(place.topic("queue"), 1)
    transport.join("spool", [place.topic("queue")]).leave()
    for partition in range(PARTITIONS):
        transport.send(place.topic("queue"), 0, messages(partition, range(ROWS)))
    transport.close()


def list_spooled(place: Place) -> list[Row]:
    """Return what has to be in the spool, whose one topic has one partition."""
    return [row._replace(topic="", partition=0) for row in _all_rows(place)]


def create_topics(*suffixes: str) -> Callable[[Place], None]:
    """Return what creates topics of a place by their suffixes."""

    def create(place: Place) -> None:
        transport = open_transport(place.url)
        for suffix in suffixes:
            transport.create_topic(place.topic(suffix), 1 if place.is_queue else PARTITIONS)
        transport.close()

    return create


def prepare_quarantine(place: Place) -> None:
    """Create the target, and fill the quarantine."""
    create_one(place)
    quarantine_all(place)


def _all_rows(place: Place) -> list[Row]:
    return rows_of(place.topic(), place, EVERY)


create_one = create_topics("")
EXACT: Final = {"lading": ONCE, "kafka": ONCE, "apache": ONCE}
WRITERS: Final = (
    Writer("Spark stream", run_stream, _all_rows, EXACT | {"iggy": MARKED, "nsq": MARKED}, create_one, False),
    Writer("Spark stream, no id", run_stream_without_id, _all_rows, {"kafka": MARKED}, create_one, False),
    Writer(
        "Spark batch", run_batch, _all_rows,
        {"lading": WHOLE, "kafka": WHOLE, "apache": WHOLE, "iggy": AT_LEAST_ONCE, "nsq": AT_LEAST_ONCE},
        create_one, is_ordered=False, has_state=False,
    ),
    Writer("mirror", run_mirror, _all_rows, EXACT | {"iggy": ONCE, "nsq": AT_LEAST_ONCE}, create_one),
    Writer(
        "redrive of dead letters", redrive_letters, _all_rows, EXACT | {"iggy": AT_LEAST_ONCE, "nsq": AT_LEAST_ONCE},
        create_one,
    ),
    Writer(
        "redrive of a quarantine", redrive_quarantine, lambda place: rows_of(place.topic(), place, EVERY_JUDGED),
        EXACT | {"iggy": AT_LEAST_ONCE, "nsq": AT_LEAST_ONCE}, prepare_quarantine,
    ),
    Writer(
        "routes to topics", run_pipeline, list_pipeline_rows, EXACT | {"iggy": ONCE, "nsq": MARKED},
        create_topics("good", "late", "failed"),
    ),
    Writer("send_once", send_by_key, _all_rows, EXACT | {"iggy": MARKED, "nsq": MARKED}, create_one),
    Writer(
        "Producer", produce, _all_rows,
        dict.fromkeys(("lading", "kafka", "apache", "iggy", "nsq"), AT_LEAST_ONCE), create_one, has_state=False,
    ),
    Writer("spool", fill_spool, list_spooled, {"directory": AT_LEAST_ONCE}, fill_queue),
)  # fmt: skip
"""``insert`` of a table's rows, ``write_arrow``, is a Producer of batches."""
ONCE_IN_A_PROCESS: Final = {("Producer", "lading"), ("Producer", "kafka"), ("Producer", "apache")}
"""Once as long as the process lives, whatever is lost of answers."""
