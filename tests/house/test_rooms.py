"""Rooms that serve every protocol: sockets are read in one place, and the core of the broker names no protocol."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from lading.dialects.protocols import PROTOCOLS
from tests.house.sources import parse_source, parse_sources, read_sources, walk_statements

OTHERS: Final = re.compile("|".join(one.name for one in PROTOCOLS[:-1]), re.IGNORECASE)
"""Names of protocols but our own, whose blocks the broker writes by itself."""
READER: Final = re.compile(r"asyncio\.(Buffered|Streaming)?(Reader)?Protocol")
OPENING: Final = ("create_server", "start_server", "open_connection")
SETTINGS: Final = {("settings.py", "kafka_states")}
"""A topic's own setting is kept with the topic, under the name that users write."""


def _words(tree: ast.Module) -> Iterator[str]:
    """Names and texts of the code, but for docstrings: what is imported, called, compared and told."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in told:
                yield text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ImportFrom(module=str(module)):
                yield module


def test_the_core_of_the_broker_names_no_protocol() -> None:
    named = {
        (path.rpartition("/")[2], word)
        for path, tree in parse_sources().items()
        if path.rpartition("/")[0] == "broker/core"
        for word in _words(tree)
        if OTHERS.search(word)
    }
    assert named == SETTINGS


def test_sockets_are_read_in_one_place() -> None:
    """Of streams: QUIC's datagrams come by another class of asyncio, and their streams to the same sessions."""
    readers = {
        (path, node.name)
        for path, tree in parse_sources().items()
        if path.startswith("endpoints/")
        for node in walk_statements(tree)
        if isinstance(node, ast.ClassDef) and any(READER.fullmatch(ast.unparse(one)) for one in node.bases)
    }
    assert readers == {("endpoints/io/tcp.py", "Connection")}
    servers = {
        path
        for path, source in read_sources().items()
        if path.startswith("endpoints/") and any(call in source for call in OPENING)
        for word in _words(parse_source(path))
        if word in OPENING
    }
    assert servers == {"endpoints/io/tcp.py"}
