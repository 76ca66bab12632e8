"""Paths into payloads, such as ``payload.order.amount``, and the tables by which walkers find them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from ..kernels.arrays import Bytes, Table
from ..model.errors import SettingError
from ..model.lazy_dataclass import lazy_dataclass
from .layout import (
    KEY_COLUMNS,
    KEY_LEAF,
    KEY_NODE,
    KEY_PLAIN,
    KEY_SIZE,
    KEY_START,
    KEY_WORD,
    NODE_COLUMNS,
    NODE_KEYS,
    NODE_KEYS_END,
    NODE_LEAF,
    NODE_LEAVES,
    NODE_LEAVES_END,
    NODE_OWN_KEY,
    NODE_PARENT,
)

Path = tuple[str, ...]
"""The names of members, from the payload inwards."""
PAYLOAD: Final = "payload"
KEY: Final = "key"
KEY_ROOT: Final = "\0key"
"""The first name of a path into the key; other paths lead into the payload."""
SCHEMA_ROOT: Final = "\0schema"
"""The first name of a path to the schema of a payload or key; ``value`` or ``key`` follows it."""
VALUE: Final = "value"
SCHEMA_PARTS: Final = ("id", "guid", "subject", "version")
"""The parts of a schema that paths lead to."""
NAMES_MAX: Final = 100
"""Limit of the names in a path: nested objects on the way to a value."""
PATH_MARK: Final = "\0"
"""The beginning of a name in a syntax tree that is a path, as distinct from a header that looks like one."""
_PART = r'(?:[\w-]+|"(?:[^"]|"")*"|`(?:[^`]|``)*`)'
_SCHEMA_PATTERN: Final = rf'schema\(\s*"(value|key)"\s*\)(?:\.({"|".join(SCHEMA_PARTS)}))?'
PATH_PATTERN: Final = (
    rf'(?:(?:payload|key)(?:\.{_PART})+|schema\(\s*"(?:value|key)"\s*\)(?:\.(?:{"|".join(SCHEMA_PARTS)})\b)?)'
)
"""A regular expression for a path as people write it; a name with characters outside of words is quoted."""
_PARTS: Final = re.compile(rf"\.({_PART})")
_PLAIN: Final = re.compile(r"[\w-]+")
_NOT_PLAIN: Final = re.compile(r'[\x00-\x1f"\\\ud800-\udfff]')


def parse_path(text: str) -> Path | None:
    """Return the path in ``text``, or None if it is not one. Raises SettingError if it is too long."""
    if re.fullmatch(PATH_PATTERN, text) is None:
        return None
    if schema := re.fullmatch(_SCHEMA_PATTERN, text):
        return (SCHEMA_ROOT, *(part for part in schema.groups() if part is not None))
    names = tuple(_unquote(part) for part in _PARTS.findall(text))
    if names[0] in (KEY_ROOT, SCHEMA_ROOT):
        raise SettingError(f"path {text[:60]!r}: a name that begins with NUL; read the object around it as json")
    if text.startswith(f"{KEY}."):
        names = (KEY_ROOT, *names)
    if len(names) > NAMES_MAX:
        raise SettingError(f"path {text[:60]}…: {len(names)} names; a path has at most {NAMES_MAX}")
    return names


def write_path(path: Path) -> str:
    """Return a path as people write it."""
    if path[:1] == (SCHEMA_ROOT,):
        return ".".join((f'schema("{path[1]}")', *path[2:]))
    if path[:1] == (KEY_ROOT,):
        return ".".join((KEY, *(name if _PLAIN.fullmatch(name) else _quote(name) for name in path[1:])))
    return ".".join((PAYLOAD, *(name if _PLAIN.fullmatch(name) else _quote(name) for name in path)))


def unquote_name(text: str) -> str:
    """Return the name inside the quotes of ``text``; text without quotes is the name itself."""
    return _unquote(text) if re.fullmatch(_PART, text) else text


def _unquote(part: str) -> str:
    quote = part[0]
    return part[1:-1].replace(quote * 2, quote) if quote in '"`' else part


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@lazy_dataclass(frozen=True, slots=True)
class PathTable:
    """Distinct paths as the tables of walkers: ``layout`` names their columns; a path's leaf is its index."""

    paths: tuple[Path, ...]
    nodes: Table
    keys: Table
    names: Bytes


@lru_cache(maxsize=256)
def tabulate_paths(paths: tuple[Path, ...]) -> PathTable:
    """Return the tables of ``paths``, which are distinct and not empty; leaves are in another order than paths."""
    members: list[dict[str, int]] = [{}]
    wanted: dict[int, Path] = {}
    for path in paths:
        node = 0
        for name in path:
            if name not in members[node]:
                members[node][name] = len(members)
                members.append({})
            node = members[node][name]
        wanted[node] = path
    leaves: list[Path] = []
    spans: dict[int, tuple[int, int]] = {}
    todo = [(0, False)]
    while todo:
        node, done = todo.pop()
        if done:
            spans[node] = spans[node][0], len(leaves)
            continue
        spans[node] = len(leaves), 0
        if node in wanted:
            leaves.append(wanted[node])
        todo.append((node, True))
        todo.extend((inner, False) for inner in reversed(members[node].values()))
    return _fill_tables(members, leaves, spans, {node: leaves.index(path) for node, path in wanted.items()})


def _fill_tables(
    members: Sequence[dict[str, int]], leaves: list[Path], spans: dict[int, tuple[int, int]], leaf_of: dict[int, int]
) -> PathTable:
    inner = [node for node in range(len(members)) if members[node] or node == 0]
    number = {node: at for at, node in enumerate(inner)}
    nodes = np.full((len(inner), NODE_COLUMNS), -1, np.int64)
    keys = np.full((max(1, len(members) - 1), KEY_COLUMNS), -1, np.int64)
    names, key = b"", 0
    for node in inner:
        row = nodes[number[node]]
        row[NODE_KEYS], row[NODE_KEYS_END] = key, key + len(members[node])
        row[NODE_LEAVES], row[NODE_LEAVES_END] = spans[node]
        row[NODE_LEAF] = leaf_of.get(node, -1)
        for name, member in members[node].items():
            held = name.encode("utf-8", "surrogatepass")
            entry = keys[key]
            entry[KEY_START], entry[KEY_SIZE] = len(names), len(held)
            entry[KEY_NODE], entry[KEY_LEAF] = number.get(member, -1), leaf_of.get(member, -1)
            entry[KEY_WORD] = int.from_bytes(held[:8].ljust(8, b"\0"), "little", signed=True)
            entry[KEY_PLAIN] = _NOT_PLAIN.search(name) is None
            if member in number:
                nodes[number[member], NODE_PARENT], nodes[number[member], NODE_OWN_KEY] = number[node], key
            names += held
            key += 1
    for table in (nodes, keys):
        table.flags.writeable = False
    return PathTable(tuple(leaves), nodes, keys, np.frombuffer(names, np.uint8))
