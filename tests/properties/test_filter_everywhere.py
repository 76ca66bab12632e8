"""One filter means the same everywhere: all evaluators select the same of the same messages, unknown included."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from typer.testing import CliRunner

from lading import Consumer, testing
from lading.cli.app import build_app
from lading.columns.assemble import assemble, to_decoded
from lading.columns.contract import Projection, type_word
from lading.filter.filter import Filter
from lading.filter.values import Messages, TypedHeaders
from lading.model.state import State
from lading.transports.lading.transport import LadingTransport
from tests.pipeline.direct import Driver
from tests.properties.corpus import Corpus, corpus
from tests.spark.conftest import settle, spark
from tests.spark.test_functions import spark_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

TOPIC = "random"
ROUTES = 20
"""Filters in one pipeline."""


@pytest.fixture(scope="module")
def cases(full: bool) -> Corpus:
    made = corpus(250, 400) if full else corpus(120, 40)
    print(f"{len(made.rows)} messages x {len(made.filters) + len(made.contracted)} filters: {made.cases:,} cases")
    return made


@pytest.fixture(scope="module")
def broker(cases: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    """A broker with the messages in one partition, at their offsets and in their states."""
    with testing.broker(data_dir=tmp_path_factory.mktemp("filters") / "data") as running:
        transport = LadingTransport(running.url)
        transport.create_topic(TOPIC)
        transport.send(TOPIC, 0, cases.batch)
        for state in (State.UNAVAILABLE, State.POISONED, State.MARKED_FOR_DELETION):
            offsets = [row.fields["offset"] for row in cases.rows if row.fields["state"] == state]
            transport.put_states(TOPIC, {"offsets": offsets, "state": state.word}, 0)
        settle(transport, TOPIC, str(running.data_dir))
        transport.close()
        yield running


def groups(filters: Sequence[Filter], size: int) -> Iterator[Sequence[Filter]]:
    """The filters, ``size`` at a time."""
    for at in range(0, len(filters), size):
        yield filters[at : at + size]


def test_the_arrow_mask(cases: Corpus) -> None:
    batch = cases.batch
    for one in (*cases.filters, *cases.contracted):
        expected = cases.expected(one)
        assert one.mask(batch).to_pylist() == expected, one.text
        assert one.mask(to_decoded(batch, one.header_keys)).to_pylist() == expected, one.text


@pytest.mark.parametrize("dictionaries", [False, True], ids=["plain", "dictionaries"])
def test_the_arrow_mask_of_columns_that_a_contract_typed(cases: Corpus, dictionaries: bool) -> None:
    """As a pipeline asks: all routes look at the same messages, whose declared headers are typed already."""
    headers = cases.contract.headers
    decoded = to_decoded(cases.batch, [column.header for column in headers])
    made = assemble(decoded, Projection((), headers))
    before: TypedHeaders = {}
    for column in headers:
        array: Any = made.batch.column(column.name)
        encoded = dictionaries and column.type in (pa.string(), pa.binary())
        place = column.header, column.type, column.encoding
        before[place] = array.dictionary_encode() if encoded else array, made.bad.get(column.name)
    messages = Messages(decoded, before)
    asked = [one for one in cases.contracted if set(one.header_keys) <= decoded.located.keys()]
    assert asked
    for one in asked:
        assert one.mask(messages).to_pylist() == cases.expected(one), one.text
        assert one.selects(messages).to_pylist() == [truth is True for truth in cases.expected(one)], one.text


def test_there_is_something_to_select(cases: Corpus) -> None:
    answers = {truth for one in (*cases.filters, *cases.contracted) for truth in cases.expected(one)}
    assert answers == {True, False, None}
    shares = [len(cases.selected(one)) for one in (*cases.filters, *cases.contracted)]
    assert sum(0 < share < len(cases.rows) for share in shares) > len(shares) / 4


def test_the_broker(cases: Corpus, broker: testing.BrokerProcess) -> None:
    transport = LadingTransport(broker.url)
    try:
        for one in cases.filters:
            assert _asked(transport, len(cases.rows), one.text, None) == cases.selected(one), one.text
        columns = "offset, " + ", ".join(
            f"{column.name} {type_word(column.type)} {column.encoding}" for column in cases.contract.headers
        )
        for one in cases.contracted:
            assert _asked(transport, len(cases.rows), one.text, columns) == cases.selected(one), one.text
    finally:
        transport.close()


def _asked(transport: LadingTransport, end: int, where: str, columns: str | None) -> list[int]:
    """The offsets that ``…/batches?where=`` answers."""
    found: list[Any] = []
    at = 0
    while at < end:
        answer = transport.query(TOPIC, 0, at, where=where, states="all", columns=columns)
        found += [offset for batch in answer.batches for offset in batch.column("offset").to_pylist()]
        assert answer.end_offset > at
        at = answer.end_offset
    return found


@pytest.mark.parametrize("place", ["broker", "directory"])
def test_the_consumer(cases: Corpus, broker: testing.BrokerProcess, place: str) -> None:
    url = broker.url if place == "broker" else str(broker.data_dir)
    for one in cases.filters:
        with Consumer(url, TOPIC, where=one.text, states="all", timeout_s=0) as consumer:
            assert [message.offset for message in consumer] == cases.selected(one), one.text


def test_message_poll(cases: Corpus, broker: testing.BrokerProcess) -> None:
    runner = CliRunner()
    for one in cases.filters:
        arguments = ["message", "poll", TOPIC, "--from", broker.url, "--states", "all", "--output", "json"]
        done = runner.invoke(build_app(), [*arguments, "--count", str(len(cases.rows)), f"--where={one.text}"])
        assert done.exit_code == 0, (one.text, done.output)
        assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == cases.selected(one), one.text


@pytest.mark.parametrize("contracted", [False, True], ids=["undeclared", "contract"])
def test_routes_of_a_pipeline(cases: Corpus, broker: testing.BrokerProcess, tmp_path: Path, contracted: bool) -> None:
    """The first route whose filter is true takes a message; what the contract cannot read is in quarantine before."""
    unreadable = cases.unreadable() if contracted else set()
    for number, filters in enumerate(groups(cases.contracted if contracted else cases.filters, ROUTES)):
        base = tmp_path / str(number)
        base.mkdir()
        file = base / "random.toml"
        file.write_text(_toml(broker.url, filters, cases if contracted else None))
        Driver(file).run()
        left = set(range(len(cases.rows))) - unreadable
        assert _table(base, "quarantine") == sorted(unreadable)
        for at, one in enumerate(filters):
            taken = left & set(cases.selected(one))
            assert _table(base, f"route{at}") == sorted(taken), one.text
            left -= taken
        assert _table(base, "good") == sorted(left)


def _toml(url: str, filters: Sequence[Filter], cases: Corpus | None) -> str:
    """A pipeline with a route for each filter; JSON's strings are TOML's."""
    lines = ["[source]", f'from = "{url}"', f'topic = "{TOPIC}"', 'states = "all"']
    if cases is not None:
        declared = ((column.name, type_word(column.type), column.encoding) for column in cases.contract.headers)
        lines.append("[headers]")
        lines += [f'{name} = {{ type = "{word}", encoding = "{encoding}" }}' for name, word, encoding in declared]
    lines += ["[quality]", "max_failure_ratio = 1.0"]
    for at, one in enumerate(filters):
        lines += ["[[route]]", f"where = {json.dumps(one.text)}", f'to = "parquet:./route{at}"', 'columns = ["offset"]']
    lines += ["[good]", 'to = "parquet:./good"', 'columns = ["offset"]']
    return "\n".join([*lines, "[quarantine]", 'to = "parquet:./quarantine"'])


def _table(base: Path, name: str) -> list[Any]:
    if not any((base / name).glob("*.parquet")):
        return []
    return sorted(ds.dataset(base / name, format="parquet").to_table(["offset"])["offset"].to_pylist())


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.turns(2, part=1)
def test_the_column(spark: SparkSession, cases: Corpus) -> None:
    from lading.spark.filter import column

    frame: Any = spark.createDataFrame(spark_table(cases.batch)).coalesce(1)
    for filters in groups((*cases.filters, *cases.contracted), 50):
        found: pa.Table = frame.select(*(column(one).alias(f"c{at}") for at, one in enumerate(filters))).toArrow()
        for at, one in enumerate(filters):
            assert found[f"c{at}"].to_pylist() == cases.expected(one), one.text
