"""The table of formats, and the levels of compatibility."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .avro import parse_avro
from .avro_compatibility import list_avro_incompatibilities
from .json_compatibility import list_json_incompatibilities
from .json_schema import parse_json_schema
from .parsed import InvalidSchema, ParsedSchema, ResolvedReference, SchemaFormat
from .protobuf import parse_protobuf
from .protobuf_compatibility import list_protobuf_incompatibilities

FORMATS: Final[Mapping[str, SchemaFormat]] = {
    "JSON": SchemaFormat("JSON", parse_json_schema, list_json_incompatibilities),
    "PROTOBUF": SchemaFormat("PROTOBUF", parse_protobuf, list_protobuf_incompatibilities, frozenset({"serialized"})),
    "AVRO": SchemaFormat("AVRO", parse_avro, list_avro_incompatibilities),
}
"""Formats by the name that registries use."""


@dataclass(frozen=True, slots=True)
class CompatibilityLevel:
    """The promise that a new version of a schema reads older data, is read by older schemas, or both."""

    name: str
    reads_old: bool
    is_read_by_old: bool
    is_transitive: bool
    """Whether this holds for all earlier versions, or for the last one only."""


LEVELS: Final[Mapping[str, CompatibilityLevel]] = {
    level.name: level
    for level in (
        CompatibilityLevel("NONE", False, False, False),
        CompatibilityLevel("BACKWARD", True, False, False),
        CompatibilityLevel("BACKWARD_TRANSITIVE", True, False, True),
        CompatibilityLevel("FORWARD", False, True, False),
        CompatibilityLevel("FORWARD_TRANSITIVE", False, True, True),
        CompatibilityLevel("FULL", True, True, False),
        CompatibilityLevel("FULL_TRANSITIVE", True, True, True),
    )
}


def parse_schema(kind: str, text: str, references: Sequence[ResolvedReference] = (), *, is_new: bool) -> ParsedSchema:
    """Return the schema of a text; ``is_new`` checks more. Raises InvalidSchema, also for an unknown format."""
    format_ = FORMATS.get(kind)
    if format_ is None:
        raise InvalidSchema(f"Invalid schema type {kind[:40]}")
    try:
        schema = format_.parse(text, references)
        if is_new:
            schema.require_valid()
    except RecursionError:
        raise InvalidSchema("nested too deep") from None
    return schema


def list_incompatibilities(
    level: CompatibilityLevel, new: ParsedSchema, older: Sequence[tuple[int, ParsedSchema]]
) -> list[str]:
    """Return why ``new`` may not follow ``older`` (version and schema, ascending); an empty list if it may.

    Like other registries it reports the newest version that does not fit.
    """
    if not (level.reads_old or level.is_read_by_old):
        return []
    for version, old in reversed(older if level.is_transitive else older[-1:]):
        found = _compare(level, new, old)
        if found:
            return [*found, f"{{oldSchemaVersion: {version}}}", f"{{oldSchema: '{old.text}'}}"]
    return []


def _compare(level: CompatibilityLevel, new: ParsedSchema, old: ParsedSchema) -> list[str]:
    if new.kind != old.kind:
        return ["Incompatible because of different schema type"]
    compare: Any = FORMATS[new.kind].list_incompatibilities
    found: list[str] = []
    try:
        if level.reads_old:
            found += compare(new, old, ("new", "old"))
        if level.is_read_by_old:
            found += compare(old, new, ("old", "new"))
    except RecursionError:
        raise InvalidSchema("nested too deep to be compared") from None
    return found
