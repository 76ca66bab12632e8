"""Requests of clients to the registry, checked: a schema with its references, settings, and versions by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from ...schemas.formats import FORMATS
from ...schemas.parsed import Reference, write_json
from .errors import RegistryError, RegistryFault

SUBJECT_CHARACTERS_MAX: Final = 512
NAME_CHARACTERS_MAX: Final = 4096
REFERENCES_MAX: Final = 1000
NUMBER_MAX: Final = (1 << 31) - 1
LATEST: Final = -1
EXTRAS_CHARACTERS_MAX: Final = 64 << 10
"""Length of all members that are only kept, as JSON: each lookup of the schema or subject reads them in the loop."""
NAMES_CHARACTERS_MAX: Final = 256 << 10
"""Length of all references of a schema, as JSON."""
_EXTRAS: Final = ("metadata", "ruleSet")
"""Members that are kept and returned as they are; a schema with others is another schema."""


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """A schema as a client sends it; ``id`` and ``version`` are set by imports only."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    extras: Mapping[str, Any] | None = None
    id: int | None = None
    version: int | None = None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Return the request of a body; raises RegistryError."""
        kind = document.get("schemaType") or "AVRO"
        if not isinstance(kind, str) or kind.upper() not in FORMATS:
            raise RegistryError(RegistryFault.INVALID_SCHEMA, f"Invalid schema type {str(kind)[:40]}")
        text = document.get("schema")
        if not isinstance(text, str) or not text.strip():
            raise RegistryError(RegistryFault.INVALID_SCHEMA, "Empty schema")
        extras = {name: document[name] for name in _EXTRAS if document.get(name) is not None}
        for name, extra in extras.items():
            if not isinstance(extra, dict):
                raise RegistryError(RegistryFault.MALFORMED, f"{name}: has to be an object")
        require_storable(extras)
        return cls(
            kind.upper(),
            text,
            _parse_references(document.get("references")),
            extras or None,
            _parse_number(document, "id"),
            _parse_number(document, "version"),
        )

    def details(self, references: tuple[Reference, ...]) -> dict[str, Any]:
        """Return what is stored beside the text."""
        details: dict[str, Any] = dict(self.extras or {})
        if references:
            details["references"] = [reference._asdict() for reference in references]
        return details


def digest_schema(kind: str, text: str, details: Mapping[str, Any]) -> bytes:
    """Return the digest that says whether two schemas are the same."""
    return hashlib.sha256("\0".join((kind, text, write_json(details))).encode()).digest()


def make_guid(text: str, details: Mapping[str, Any], digest: bytes) -> bytes:
    """Return the 16 bytes of a schema's GUID.

    Without metadata and rules it is the one that Confluent's registry makes of this text and these references, so that
    records whose headers have it can be read after a move to another registry.
    """
    if details.keys() - {"references"}:
        return digest[:16]
    parts = [text.encode()]
    for reference in details.get("references", ()):
        parts += [reference["name"].encode(), reference["subject"].encode(), reference["version"].to_bytes(4, "big")]
    return hashlib.md5(b"".join(parts), usedforsecurity=False).digest()


def require_storable(members: Mapping[str, Any], characters_max: int = EXTRAS_CHARACTERS_MAX) -> None:
    """Raise RegistryError for members that are too long to be kept beside a schema or subject, or are not JSON."""
    try:
        text = json.dumps(members, ensure_ascii=False, allow_nan=False)
        # half of a surrogate pair has no bytes
        text.encode()
    except ValueError as error:
        raise RegistryError(RegistryFault.MALFORMED, f"{', '.join(members)}: not JSON: {str(error)[:200]}") from None
    if len(text) > characters_max:
        raise RegistryError(
            RegistryFault.MALFORMED, f"{', '.join(members)}: longer than {characters_max} characters of JSON"
        )


def parse_version(text: str) -> int:
    """Return a version from a path, or LATEST; raises RegistryError."""
    if text in ("latest", "-1"):
        return LATEST
    if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= NUMBER_MAX:
        return int(text)
    raise RegistryError(RegistryFault.INVALID_VERSION, text[:100])


def require_subject(subject: str) -> str:
    """Return the name of a subject. Raises RegistryError if it is invalid, or is in a context (``:.context:``)."""
    is_valid = 0 < len(subject) <= SUBJECT_CHARACTERS_MAX and subject.isprintable() and not subject.startswith(":.")
    if not is_valid or subject in ("__GLOBAL", "__EMPTY"):
        raise RegistryError(RegistryFault.INVALID_SUBJECT, subject[:SUBJECT_CHARACTERS_MAX])
    return subject


def _parse_references(rows: object) -> tuple[Reference, ...]:
    if rows is None:
        return ()
    if not isinstance(rows, list) or len(rows) > REFERENCES_MAX:
        raise RegistryError(RegistryFault.MALFORMED, f"references: has to be a list of at most {REFERENCES_MAX}")
    references = []
    for row in rows:
        if not isinstance(row, dict):
            raise RegistryError(RegistryFault.MALFORMED, "references: has to be a list of objects")
        name, subject, version = row.get("name"), row.get("subject"), row.get("version")
        if (
            not isinstance(name, str)
            or len(name) > NAME_CHARACTERS_MAX
            or not isinstance(subject, str)
            or type(version) is not int
            or not (version == LATEST or 1 <= version <= NUMBER_MAX)
        ):
            raise RegistryError(RegistryFault.MALFORMED, "references: each has a name, a subject and a version from 1")
        references.append(Reference(name, require_subject(subject), version))
    require_storable({"references": [reference._asdict() for reference in references]}, NAMES_CHARACTERS_MAX)
    return tuple(references)


def _parse_number(document: Mapping[str, Any], name: str) -> int | None:
    number = document.get(name)
    if number is None or number in (0, -1):
        return None
    if type(number) is not int or not 1 <= number <= NUMBER_MAX:
        raise RegistryError(RegistryFault.MALFORMED, f"{name}: has to be a number from 1 to {NUMBER_MAX}")
    return number
