"""Every snippet of the README and of docs/ runs, in its page's order, against a real broker.

Pages take turns of three days: those that start Spark as a whole, and as far as their first such snippet.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

from lading import testing
from tests.docs.pages import Step, run_fresh, run_here
from tests.interop import kafka_broker, shared_kafka
from tests.topic_tables.conftest import catalog

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(python|sh|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPARK = re.compile(r"lading\.spark|^lading (ingest|pipeline run)", re.MULTILINE)
"""What starts a JVM."""

KAFKA = "127.0.0.1:9092"
"""Where the pages have a real Kafka broker."""
SECOND_KAFKA = "127.0.0.1:9192"
"""Where the pages have the Kafka endpoint of a second broker."""
TABLES = "127.0.0.1:8181"
"""Where the pages have the catalog of the broker's topics as tables."""
TIMEOUT_S = 280


class Snippet(NamedTuple):
    """One fenced block: its language, its text, and the line it begins at."""

    language: str
    text: str
    line: int


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text()
    return [Snippet(found[1], found[2], text[: found.start()].count("\n") + 2) for found in FENCE.finditer(text)]


def steps(page: Path, addresses: dict[str, str], of_page: Sequence[Snippet] | None = None) -> Iterator[Step]:
    """What a page does, or some of its snippets, with real addresses in place of the ones in its text."""
    # at once: the real port 41505 begins with what a page writes for another one
    written = re.compile("|".join(f"{re.escape(address)}(?![0-9])" for address in addresses))
    for snippet in snippets(page) if of_page is None else of_page:
        text = written.sub(lambda found: addresses[found[0]], snippet.text)
        if snippet.language == "toml":
            # a file whose name is the comment in its first line
            name = text.splitlines()[0].removeprefix("# ")
            assert name.endswith(".toml"), f"{page.name}: the first line of a TOML block names its file"
            yield Step("toml", text, (name,))
        elif snippet.language == "python":
            yield Step("python", f"# {page.name} line {snippet.line}\n{text}")
        else:
            for line in text.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#"):
                    assert shlex.split(line)[0] == "lading", f"{page.name}: only lading commands are run: {line}"
                    yield Step("sh", line, tuple(shlex.split(line)[1:]))


def addresses_of(broker: testing.BrokerProcess) -> dict[str, str]:
    """The addresses that pages write for a broker on its default ports, and those it has."""
    return {
        "127.0.0.1:7070": broker.endpoints["admin"],
        "127.0.0.1:8090": broker.endpoints["iggy_tcp"],
        "127.0.0.1:3000": broker.endpoints["iggy_http"],
        "localhost:9092": broker.endpoints["kafka"],
        "127.0.0.1:4150": broker.endpoints["nsqd_tcp"],
        "127.0.0.1:4161": broker.endpoints["nsqlookupd_http"],
        "127.0.0.1:4151": broker.endpoints["nsqd_http"],
        "127.0.0.1:8081": broker.endpoints["schema_registry"],
    }


def test_there_are_snippets_to_run() -> None:
    assert sum(len(snippets(page)) for page in PAGES) >= 8


def _real_kafka() -> str:
    try:
        return shared_kafka.running().address
    except kafka_broker.Unavailable as reason:
        pytest.skip(str(reason))


def before_spark(page: Path) -> list[Snippet]:
    """Return the snippets in front of the first one that starts a JVM."""
    return list(takewhile(lambda snippet: SPARK.search(snippet.text) is None, snippets(page)))


def run_page(
    page: Path, of_page: Sequence[Snippet], tmp_path: Path, run: Callable[[dict[str, str], list[Step]], str | None]
) -> None:
    """Run snippets of a page, with the servers that they name."""
    with ExitStack() as stack:
        broker = stack.enter_context(testing.broker(data_dir=tmp_path / "log"))
        addresses = addresses_of(broker)
        texts = [snippet.text for snippet in of_page]
        if any(KAFKA in text for text in texts):
            addresses[KAFKA] = _real_kafka()
        if any(SECOND_KAFKA in text for text in texts):
            addresses[SECOND_KAFKA] = stack.enter_context(testing.broker()).endpoints["kafka"]
        if any(TABLES in text for text in texts):
            served = stack.enter_context(catalog(broker.url, tmp_path / "tables"))
            addresses[TABLES] = served.removeprefix("http://")
        environment = {"LADING_SERVER": broker.url, "PYTHONUNBUFFERED": "1"}
        failure = run(environment, list(steps(page, addresses, of_page)))
    assert failure is None, f"{page.name}:\n{failure}"


@pytest.mark.turns(3)
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(snippet.language != "toml" for snippet in before_spark(page))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_page(page: Path, tmp_path: Path) -> None:
    """Of a page that starts Spark, what it does before that."""

    def run(environment: dict[str, str], todo: list[Step]) -> str | None:
        return run_fresh(tmp_path, environment, todo, TIMEOUT_S)

    run_page(page, before_spark(page), tmp_path, run)


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.turns(3)
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if before_spark(page) != snippets(page)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_page_that_starts_spark(page: Path, shared: ProcessPoolExecutor, directory: Path, tmp_path: Path) -> None:
    def run(environment: dict[str, str], todo: list[Step]) -> str | None:
        failure: str | None = shared.submit(run_here, directory, environment, todo).result(TIMEOUT_S)
        return failure

    run_page(page, snippets(page), tmp_path, run)
