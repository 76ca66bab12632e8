"""A schema of Avro and the requested paths as a program: the instructions that a walker runs on each payload.

The schema is the writer's. A reader's schema, if there is one, adds other names of fields (aliases), and values of
fields that the writer does not have (defaults).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ..kernels.arrays import Table
from ..model.lazy_dataclass import lazy_dataclass
from ..schemas.avro import ABSENT as NO_DEFAULT
from ..schemas.avro import AvroField, AvroType, fits
from .layout import (
    BROKEN,
    CODE_COLUMNS,
    CODE_ONE,
    CODE_TWO,
    NULL,
    OP_BLOCKS,
    OP_BOOLEAN,
    OP_BYTES,
    OP_CALL,
    OP_DOUBLE,
    OP_END,
    OP_ENUM,
    OP_FIXED,
    OP_FLOAT,
    OP_INT,
    OP_JUMP,
    OP_LONG,
    OP_LOST,
    OP_MARK,
    OP_NEXT,
    OP_NULL,
    OP_RETURN,
    OP_SPAN,
    OP_STRING,
    OP_UNION,
)
from .paths import Path

_SCALARS: Final[Mapping[str, int]] = {
    "boolean": OP_BOOLEAN, "int": OP_INT, "long": OP_LONG, "float": OP_FLOAT, "double": OP_DOUBLE, "bytes": OP_BYTES,
    "string": OP_STRING, "fixed": OP_FIXED, "enum": OP_ENUM,
}  # fmt: skip
_RECORDS: Final = ("record", "error")


@lazy_dataclass(frozen=True, slots=True)
class AvroProgram:
    """Instructions as ``layout`` names their columns; the types that they refer to; the leaf of each path.

    ``readers`` are the reader's types for each of the types, or None.

    ``defaults`` are the values of paths that the writer's schema does not have, with their type; ``misfit`` is a path
    through something that is never a record.
    """

    code: Table
    types: tuple[AvroType, ...]
    readers: tuple[AvroType | None, ...]
    leaf_of: Mapping[Path, int]
    defaults: Mapping[Path, tuple[AvroType, Any]]
    misfit: Path | None = None


@lru_cache(maxsize=512)
def compile_program(type_: AvroType, paths: tuple[Path, ...], reader: AvroType | None = None) -> AvroProgram:
    """Return the program for values of ``type_``; the path ``()`` is the value itself."""
    return _Compiler(paths).compile(type_, reader)


def is_record(type_: AvroType) -> bool:
    """Return whether values of a type have fields."""
    return type_.kind in _RECORDS


@lru_cache(maxsize=1024)
def is_empty(type_: AvroType) -> bool:
    """Return whether values of a type have no bytes: null, and records of such values alone."""
    if is_record(type_):
        return all(not _contains_type(field.type, type_) and is_empty(field.type) for field in type_.fields)
    return type_.kind == "null" or (type_.kind == "fixed" and type_.size_bytes == 0)


def _contains_type(type_: AvroType, wanted: AvroType) -> bool:
    """Return whether a type directly contains one of ``wanted``, so that its values would be endless."""
    seen: set[int] = set()
    left = [type_]
    while left:
        here = left.pop()
        if here is wanted:
            return True
        if is_record(here) and id(here) not in seen:
            seen.add(id(here))
            left += [field.type for field in here.fields]
    return False


def _is_recursive(type_: AvroType) -> bool:
    seen: set[int] = set()
    left = [field.type for field in type_.fields]
    while left:
        here = left.pop()
        if here is type_:
            return True
        if id(here) not in seen:
            seen.add(id(here))
            left += [*here.branches, *(field.type for field in here.fields)]
    return False


def _can_lead(type_: AvroType, path: Path) -> bool:
    """Return whether a path may lead to a value. A field that a record does not have counts as absent, so
    the path may.
    """
    # check each type once for each name: the ways through unions are exponential in the length of the path
    here = {type_}
    for name in path:
        below: set[AvroType] = set()
        for one in here:
            branches = one.branches if one.kind == "union" else (one,)
            records = [branch for branch in branches if is_record(branch)]
            if not records and all(branch.kind == "null" for branch in branches):
                return True
            for record in records:
                field = next((one for one in record.fields if one.name == name), None)
                if field is None:
                    return True
                below.add(field.type)
        here = below
    return bool(here)


class _Compiler:
    def __init__(self, paths: Sequence[Path]) -> None:
        self._rows: list[list[int]] = []
        self._types: list[tuple[AvroType, AvroType | None]] = []
        """The types so far, each with the reader's type for it."""
        self._leaf_of = {path: leaf for leaf, path in enumerate(sorted(paths))}
        self._leaves = sorted(paths)
        self._defaults: dict[Path, tuple[AvroType, Any]] = {}
        self._shared: dict[AvroType, int] = {}
        """The entry point of each record that contains itself, or is used twice, for values that are skipped."""
        self._calls: list[tuple[int, AvroType]] = []
        self._skipped: set[AvroType] = set()
        self._wanted: dict[tuple[AvroType, AvroType | None, Path], int] = {}
        """The entry point of each record on a path that is used twice, such as by several branches of a union."""
        self._wanted_calls: list[tuple[int, tuple[AvroType, AvroType | None, Path]]] = []
        self._written: set[tuple[AvroType, AvroType | None, Path]] = set()

    def compile(self, type_: AvroType, reader: AvroType | None) -> AvroProgram:
        self._write(type_, reader, ())
        self._add(OP_END)
        while self._wanted_calls:
            at, key = self._wanted_calls.pop()
            if key not in self._wanted:
                self._wanted[key] = len(self._rows)
                self._write_fields(*key)
                self._add(OP_RETURN)
            self._rows[at][CODE_ONE] = self._wanted[key]
        while self._calls:
            at, record = self._calls.pop()
            if record not in self._shared:
                self._shared[record] = len(self._rows)
                for field in record.fields:
                    self._skip(field.type)
                self._add(OP_RETURN)
            self._rows[at][CODE_ONE] = self._shared[record]
        code = np.array(self._rows, np.int64).reshape(-1, CODE_COLUMNS)
        code.flags.writeable = False
        misfit = next((path for path in self._leaves if not _can_lead(type_, path)), None)
        types, readers = zip(*self._types, strict=True) if self._types else ((), ())
        return AvroProgram(code, types, readers, self._leaf_of, self._defaults, misfit)

    def _add(self, op: int, leaf: int = -1, type_: int = -1, one: int = -1, two: int = -1) -> int:
        self._rows.append([op, leaf, type_, one, two])
        return len(self._rows) - 1

    def _add_type(self, type_: AvroType, reader: AvroType | None) -> int:
        for at, known in enumerate(self._types):
            if known == (type_, reader):
                return at
        self._types.append((type_, reader))
        return len(self._types) - 1

    def _leaves_below(self, path: Path) -> tuple[int, int]:
        """Return the leaves whose paths continue ``path``; they are adjacent, as paths are sorted."""
        below = [leaf for leaf, one in enumerate(self._leaves) if len(one) > len(path) and one[: len(path)] == path]
        return (below[0], below[-1] + 1) if below else (0, 0)

    def _write(self, type_: AvroType, reader: AvroType | None, path: Path) -> None:
        """Add the instructions that read the value at ``path``, and the values in it."""
        leaf = self._leaf_of.get(path, -1)
        first, last = self._leaves_below(path)
        if leaf < 0 and first == last:
            self._skip(type_)
        elif type_.kind == "union":
            self._write_union(type_, lambda branch: self._write(branch, reader, path))
        elif type_.kind == "null":
            self._add(OP_NULL, leaf)
            self._add_lost(first, last, NULL)
        elif type_.kind in _SCALARS:
            self._add_scalar(type_, leaf, reader)
            self._add_lost(first, last, BROKEN)
        else:
            if leaf >= 0:
                self._add(OP_MARK, leaf)
            if is_record(type_):
                self._write_record(type_, reader, path)
            else:
                self._skip(type_)
                self._add_lost(first, last, BROKEN)
            if leaf >= 0:
                self._add(OP_SPAN, leaf, self._add_type(type_, reader))

    def _write_record(self, type_: AvroType, reader: AvroType | None, path: Path) -> None:
        key = (type_, reader, path)
        if key in self._written:
            self._wanted_calls.append((self._add(OP_CALL), key))
        else:
            self._written.add(key)
            self._write_fields(type_, reader, path)

    def _write_fields(self, type_: AvroType, reader: AvroType | None, path: Path) -> None:
        reads = _find_record(reader, type_)
        names = _names_by_writer(type_, reads)
        for field in type_.fields:
            name, wanted = names.get(field.name, (field.name, None))
            self._write(field.type, None if wanted is None else wanted.type, (*path, name))
        written = {names.get(field.name, (field.name, None))[0] for field in type_.fields}
        for field in reads.fields if reads is not None else ():
            if field.name not in written and field.default is not NO_DEFAULT:
                self._note_defaults(field.type, field.default, (*path, field.name))

    def _note_defaults(self, type_: AvroType, value: Any, path: Path) -> None:
        """Note a default, and the defaults of fields in it, for the paths that lead to them."""
        if path not in self._leaf_of and self._leaves_below(path) == (0, 0):
            return
        if type_.kind == "union":
            chosen = next((one for one in type_.branches if fits(one, value)), None)
            if chosen is None:
                return
            type_ = chosen
        if path in self._leaf_of:
            self._defaults[path] = type_, value
        if is_record(type_) and isinstance(value, dict):
            for field in type_.fields:
                inner = value.get(field.name, field.default)
                if inner is not NO_DEFAULT:
                    self._note_defaults(field.type, inner, (*path, field.name))

    def _write_union(self, type_: AvroType, write_branch: Callable[[AvroType], None]) -> None:
        """Add the instructions that select a branch, and for each branch those of ``write_branch``."""
        # all leaves begin as absent: several branches that are records would otherwise set each other's leaves
        at = self._add(OP_UNION, -1, -1, len(type_.branches))
        jumps = [self._add(OP_JUMP) for _ in type_.branches]
        self._rows[at][CODE_TWO] = jumps[0] if jumps else at
        ends = []
        for jump, branch in zip(jumps, type_.branches, strict=True):
            self._rows[jump][CODE_ONE] = len(self._rows)
            write_branch(branch)
            ends.append(self._add(OP_JUMP))
        for end in ends:
            self._rows[end][CODE_ONE] = len(self._rows)

    def _add_scalar(self, type_: AvroType, leaf: int, reader: AvroType | None = None) -> None:
        one = type_.size_bytes if type_.kind == "fixed" else len(type_.symbols)
        self._add(_SCALARS[type_.kind], leaf, self._add_type(type_, reader) if leaf >= 0 else -1, one)

    def _add_lost(self, first: int, last: int, length: int) -> None:
        if first < last:
            self._add(OP_LOST, -1, length, first, last)

    def _skip(self, type_: AvroType) -> None:
        """Add the instructions that skip a value."""
        if type_.kind in _SCALARS:
            self._add_scalar(type_, -1)
        elif type_.kind == "union":
            self._write_union(type_, self._skip)
        elif type_.kind in ("array", "map"):
            item = type_.branches[0]
            is_map = type_.kind == "map"
            blocks = self._add(OP_BLOCKS, -1, -1, 1 if is_map or not is_empty(item) else 0)
            if is_map:
                self._add(OP_STRING)
            self._skip(item)
            self._add(OP_NEXT, -1, -1, blocks)
            self._rows[blocks][CODE_TWO] = len(self._rows)
        elif is_record(type_):
            if is_empty(type_):
                return
            if type_ in self._skipped or _is_recursive(type_):
                self._calls.append((self._add(OP_CALL), type_))
            else:
                self._skipped.add(type_)
                for field in type_.fields:
                    self._skip(field.type)


def _find_record(reader: AvroType | None, written: AvroType) -> AvroType | None:
    """Return the record of the reader's type that reads records of ``written``; if there are several, the one of its
    name.
    """
    if reader is None:
        return None
    records = [one for one in (reader, *(reader.branches if reader.kind == "union" else ())) if is_record(one)]
    same = [one for one in records if one.simple_name == written.simple_name or written.name in one.aliases]
    return next(iter(same or records), None)


def _names_by_writer(written: AvroType, reads: AvroType | None) -> dict[str, tuple[str, AvroField]]:
    """Return the reader's field, and its name, for each of the writer's fields: found by name, else by alias."""
    found: dict[str, tuple[str, AvroField]] = {}
    if reads is not None:
        names = {field.name for field in written.fields}
        for field in reads.fields:
            source = field.name if field.name in names else next((one for one in field.aliases if one in names), None)
            if source is not None:
                found[source] = field.name, field
    return found
