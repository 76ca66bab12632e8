"""The queries of a topic's table on its page: those of the documentation for any name, in each engine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lading import Producer, testing
from lading.console.engine_blocks import write_engine_blocks
from lading.console.settings import ConsoleSettings
from lading.transports.lading.transport import LadingTransport

from .conftest import client

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/query-from-any-engine.md").read_text()
URI = "http://127.0.0.1:8181"
ODD = ("order", 'a"b', "a'b", "a.b", "a`b", "\u00fc \u202e", "x\\", "${x}", "\U0001f600")


@pytest.mark.parametrize("engine", ["DuckDB", "PyIceberg", "Polars", "Daft", "ClickHouse", "Spark settings"])
def test_a_block_has_the_lines_of_the_documentation_but_the_query(engine: str) -> None:
    (text,) = (block.text for block in write_engine_blocks(URI, "default", "legs") if block.engine == engine)
    heading = engine.partition(" ")[0]
    section = re.search(rf"^## {heading}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    fences = re.findall(r"^```\w+\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)
    lines = text.splitlines()
    if heading != "Spark":
        # the query is one of the topic's own columns there
        assert "10" in lines.pop()
    assert lines == fences[0].splitlines()[: len(lines)]


@pytest.mark.parametrize("name", ODD)
def test_any_name_is_a_program_in_ascii(name: str) -> None:
    for block in write_engine_blocks(URI, "default", name):
        assert block.text.isascii()
        if block.engine != "Spark settings":
            ast.parse(block.text)
    statements = {block.engine: block.text for block in write_engine_blocks(URI, "air", name)}
    assert (
        find_literals(statements["DuckDB"])[-1]
        == f'select * from t."air"."{name.replace(chr(34), chr(34) * 2)}" limit 10'
    )
    assert find_literals(statements["Spark"])[-1] == f"select * from t.`air`.`{name.replace('`', '``')}` limit 10"


def find_literals(program: str) -> list[str]:
    found = [
        node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [str(node.value) for node in sorted(found, key=lambda node: (node.lineno, node.col_offset))]


def test_blocks_run_and_the_page_has_them_if_there_is_a_catalog(listener: Any, tmp_path: Path) -> None:
    """As ``lading serve --tables --console`` starts them; of the engines those that are installed here."""
    with testing.broker(tmp_path / "data") as broker:
        names = ["legs", "order", "sales.eu"]
        with Producer(broker.url) as producer:
            for name in names:
                producer.send(name, b"hello", headers={"carrier": "UA"})
        without = client(ConsoleSettings(broker.url), listener).get("/api/topic", params={"topic": "legs"}).json()
        assert "table" not in without
        from tests.topic_tables.conftest import catalog

        with catalog(broker.url, tmp_path / "tables") as address:
            page = client(ConsoleSettings(broker.url, tables=address), listener)
            for name in names:
                found = page.get("/api/topic", params={"topic": name}).json()["table"]
                with closing(LadingTransport(broker.url)) as transport:
                    meta = transport.topic(name)
                assert found["name"] == f"{meta.stream}.{meta.topic}"
                blocks = {block["engine"]: block["text"] for block in found["blocks"]}
                assert list(blocks) == [
                    "DuckDB",
                    "PyIceberg",
                    "Polars",
                    "Daft",
                    "ClickHouse",
                    "Spark settings",
                    "Spark",
                ]
                done = subprocess.run(
                    [sys.executable, "-c", blocks["PyIceberg"]], capture_output=True, text=True, timeout=60, check=False
                )
                assert done.returncode == 0, done.stderr[-1000:]
                assert "68656C6C6F" in done.stdout and "carrier" in done.stdout
