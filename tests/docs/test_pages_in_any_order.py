"""Pages are read in any order, by a new user who has one broker, one directory, and often no extras."""

from __future__ import annotations

import os
import random
import re
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from lading import Producer, testing
from tests.docs.pages import run_here
from tests.docs.plain_install import is_plain, make_plain_environment, run_pages, run_plain
from tests.docs.test_snippets import KAFKA, PAGES, ROOT, SECOND_KAFKA, addresses_of, snippets, steps

EXTRA: Final = re.compile(r"pip install [^`\n]*'\.\[")
IMPORT: Final = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
OF_ITS_OWN: Final = {"testing.md"}
"""Pages whose programs start brokers of their own."""
MADE: Final = re.compile(
    r"""topic\s=\s"([\w.-]+)" | \b(?:send|produce|create_topic|publish)\(\s*"([\w.-]+)" | "topic":\s"([\w.-]+)"
    | lading\s(?:topic\screate|message\ssend)\s([\w.-]+) | (?:parquet|delta|iceberg):\./([\w./-]+)
    | --(?:html|report)\s([\w./-]+) | --state\s\./([\w./-]+) | lading\singest\s\S+\s\./([\w./-]+)""",
    re.VERBOSE,
)
"""Names of topics, tables and files that a page makes."""
SAMPLE: Final = 3


def list_pages() -> list[Path]:
    """The pages that run something on the reader's broker."""
    return [
        page
        for page in PAGES
        if page.name not in OF_ITS_OWN and any(snippet.language != "toml" for snippet in snippets(page))
    ]


def is_for_plain_installs(page: Path) -> bool:
    """Whether a page promises to run without extras: it names none, and imports no client of others."""
    programs = [snippet.text for snippet in snippets(page) if snippet.language == "python"]
    return EXTRA.search(page.read_text()) is None and all(
        is_plain(name) for name in IMPORT.findall("\n".join(programs))
    )


def test_no_two_pages_make_the_same_topic_table_or_file() -> None:
    makers = defaultdict(set)
    for page in list_pages():
        for snippet in snippets(page):
            names = [next(filter(None, found.groups())) for found in MADE.finditer(snippet.text)]
            if snippet.language == "toml":
                names.append(snippet.text.splitlines()[0].removeprefix("# "))
            for name in names:
                makers[name].add(str(page.relative_to(ROOT)))
    assert {name: pages for name, pages in makers.items() if len(pages) > 1} == {}
    assert len(makers) > 60


def test_what_needs_spark_says_how_it_is_installed() -> None:
    spark = re.compile(r"lading\.spark|^lading (?:ingest|pipeline run)(?!.* --local)", re.MULTILINE)
    silent = {
        str(page.relative_to(ROOT))
        for page in list_pages()
        if any(spark.search(snippet.text.replace("\\\n", " ")) for snippet in snippets(page))
        and EXTRA.search(page.read_text()) is None
    }
    assert silent == set()


INSTALLED: Final = re.compile(r"pip install ([^`\n]*)")
BROUGHT_BY: Final = {
    "deltalake": ("delta", "demo", "dev"),
    "pyiceberg": ("iceberg", "dev"),
    "polars": ("polars", "dev"),
    "daft": ("daft",),
    "ray": ("ray",),
    "duckdb": ("sql", "duckdb", "dev"),
    "confluent_kafka": ("dev",),
    "faststream": ("dev",),
    "httpx": ("dev",),
}
"""The extras that bring a package which a plain installation has not."""
PROGRAM: Final = re.compile(r"^```(?:python|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OF_LADING: Final = re.compile(r"^(?:from lading[\w.]* import (?:\([^)]*\)|[^(\n]+)|import lading[\w.]*)", re.MULTILINE)


def test_programs_of_pages_say_how_their_imports_are_installed() -> None:
    """A page that imported deltalake or confluent_kafka ended in ModuleNotFoundError on a plain installation."""
    silent = set[tuple[str, str]]()
    for page in list_pages():
        text = page.read_text()
        advised = set(re.findall(r"[\w-]+", " ".join(INSTALLED.findall(text))))
        silent |= {
            (str(page.relative_to(ROOT)), name)
            for name in set(IMPORT.findall("\n".join(PROGRAM.findall(text))))
            if not is_plain(name) and not advised & {name.replace("_", "-"), *BROUGHT_BY.get(name, ())}
        }
    assert silent == set()


@pytest.mark.turns(2, part=1)
def test_imports_of_lading_in_pages_name_their_extra(plain_python: Path, tmp_path: Path) -> None:
    """Each import of Lading in a page works without extras, or the error names the one that it needs."""
    programs = [program for page in PAGES for program in PROGRAM.findall(page.read_text())]
    lines = {" ".join(found.split()) for program in programs for found in OF_LADING.findall(program)}
    assert len(lines) > 15
    code = f"""
for line in {sorted(lines)!r}:
    try:
        exec(line)
    except Exception as error:
        assert "pip install -c constraints.txt '.[" in str(error), (line, error)
"""
    done = run_plain(plain_python, code, tmp_path, {})
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def plain_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has no extras."""
    return make_plain_environment(tmp_path_factory.mktemp("plain"))


@pytest.mark.turns(2, part=0)
def test_without_extras_what_needs_one_says_which(plain_python: Path, tmp_path: Path) -> None:
    (tmp_path / "steps.toml").write_text(
        """[source]
from = "./log"
topic = "t"
[headers]
[[step]]
sql = "SELECT * FROM messages"
[good]
to = "parquet:./t"
"""
    )
    expected = {
        "pipeline run nosuch.toml": ["nosuch.toml: No such file"],
        "pipeline check nosuch.toml": ["nosuch.toml: No such file"],
        "pipeline run steps.toml": ["Spark is not installed", "'.[spark]'"],
        "pipeline check steps.toml": ["Spark is not installed", "'.[spark]'"],
        "ingest flights ./flights": ["Spark is not installed; add --local", "'.[spark]'"],
        "sql 'select 1'": ["'.[sql]'"],
        "demo": ["'.[demo]'"],
        "ingest flights delta:./flights --local": ["'.[delta]'"],
        "ingest flights iceberg:./flights --local": ["'.[iceberg]'"],
        "ingest flights s3://lake/flights --local --state ./s": ["'.[objects]'"],
    }
    code = f"""
import shlex, sys
from lading.cli.main import main
for command in {list(expected)!r}:
    print(command, flush=True, file=sys.stderr)
    try:
        main(shlex.split(command))
    except SystemExit as left:
        assert left.code, command
    print("\\0", flush=True, file=sys.stderr)
"""
    with testing.broker() as broker:
        with Producer(broker.url) as producer:
            producer.send("flights", b"{}", headers={"carrier": "UA"})
        done = run_plain(plain_python, code, tmp_path, {"LADING_SERVER": broker.url})
    assert done.returncode == 0, done.stderr
    said = [" ".join(part.split()) for part in done.stderr.split("\0")]
    for (command, words), text in zip(expected.items(), said[: len(expected)], strict=True):
        assert all(word in text for word in words), (command, text)


@pytest.mark.turns(2, part=1)
def test_pages_run_without_extras_in_any_order(plain_python: Path, full: bool, tmp_path: Path) -> None:
    """Whole with LADING_TEST_FULL=1, else the thirty commands and a sample; LADING_TEST_SEED repeats an order."""
    seed = int(os.environ.get("LADING_TEST_SEED", random.randrange(1_000_000)))
    chance = random.Random(seed)
    pages = [page for page in list_pages() if is_for_plain_installs(page)]
    assert len(pages) > 10
    if not full:
        always = [page for page in pages if page.name == "thirty-commands.md"]
        pages = [*always, *chance.sample([page for page in pages if page not in always], SAMPLE - 1)]
    chance.shuffle(pages)
    with ExitStack() as stack:
        broker = stack.enter_context(testing.broker(data_dir=tmp_path / "log"))
        addresses = addresses_of(broker)
        for kafka in (KAFKA, SECOND_KAFKA):
            if any(kafka in page.read_text() for page in pages):
                addresses[kafka] = stack.enter_context(testing.broker()).endpoints["kafka"]
        todo = [list(steps(page, addresses)) for page in pages]
        environment = {"LADING_SERVER": broker.url, "XDG_CONFIG_HOME": str(tmp_path / "config")}
        failure = run_pages(plain_python, tmp_path, environment, todo)
    assert failure is None, f"LADING_TEST_SEED={seed}, {[page.name for page in pages]}:\n{failure}"


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_all_pages_run_in_any_order(full: bool, shared: ProcessPoolExecutor, directory: Path, tmp_path: Path) -> None:
    """Every page, those with Spark too, against one broker; the pages for a real Kafka cluster have one of ours."""
    if not full:
        pytest.skip("all pages, with LADING_TEST_FULL=1")
    seed = int(os.environ.get("LADING_TEST_SEED", random.randrange(1_000_000)))
    # a backup is taken of the broker's directory, which lies next to the others' files only in the test above
    pages = [page for page in list_pages() if page.name != "backup.md"]
    random.Random(seed).shuffle(pages)
    with testing.broker() as broker, testing.broker() as second:
        addresses = addresses_of(broker) | {KAFKA: second.endpoints["kafka"], SECOND_KAFKA: second.endpoints["kafka"]}
        todo = [step for page in pages for step in steps(page, addresses)]
        environment = {"LADING_SERVER": broker.url, "XDG_CONFIG_HOME": str(tmp_path / "config")}
        failure = shared.submit(run_here, directory, environment, todo).result(880)
    assert failure is None, f"LADING_TEST_SEED={seed}, {[page.name for page in pages]}:\n{failure}"
