"""Subjects and their versions: registered, looked up, deleted, and held to a level of compatibility.

Parsing and comparing take time that an event loop does not have: what does either is a ``Change``, whose long steps run
in a worker. Changes of one subject are made one after another (``ChangeRunner.make_in_turn``); each asks again, after
its last step, for what others may have changed meanwhile. Writes are durable when ``CatalogCommit.confirm`` is done,
for which callers wait before they respond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from ...log.schema_table import GLOBAL, SchemaRow, SchemaTable, VersionRow
from ...payloads.form import SchemaText
from ...schemas.formats import LEVELS, list_incompatibilities, parse_schema
from ...schemas.parsed import InvalidSchema, ParsedSchema, Reference, ResolvedReference
from ...schemas.subjects import TOPIC, build_subject, list_record_names
from ..core.change import Change
from .errors import RegistryError, RegistryFault
from .requests import LATEST, NUMBER_MAX, SchemaRequest, digest_schema, make_guid, require_storable, require_subject

T = TypeVar("T")
SubjectVersion = VersionRow

INLINE_CHARACTERS_MAX: Final = 4096
"""Schemas up to this length are parsed in the event loop: a worker would take as long to begin."""
NAMED_CHARACTERS_MAX: Final = 65_536
"""Schemas up to this length are parsed when a value names one for the first time, for the names of its records."""
NAMES_KEPT_MAX: Final = 4_096
RESOLVED_MAX: Final = 1000
RESOLVED_CHARACTERS_MAX: Final = 20 << 20
"""Schemas that one schema may refer to, those included that they refer to themselves, and the length of all."""
LEVEL_DEFAULT: Final = "BACKWARD"
MODES: Final = frozenset({"READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"})
_MODE_DEFAULT: Final = "READWRITE"
_MODE: Final = "mode"
_LEVEL: Final = "compatibilityLevel"
KEPT_SETTINGS: Final = (
    "alias", "compatibilityGroup", "defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet",
)  # fmt: skip
"""Settings that only clients use: they are stored, and returned as they were sent."""


class RegisteredSchema(NamedTuple):
    """A schema as a version of a subject; ``subject`` is empty and ``version`` 0 if it was asked for by its id."""

    row: SchemaRow
    subject: str = ""
    version: int = 0

    def document(self) -> dict[str, Any]:
        """Return it as clients get it."""
        named = {"subject": self.subject, "version": self.version} if self.subject else {}
        kind = {} if self.row.kind == "AVRO" else {"schemaType": self.row.kind}
        guid = str(UUID(bytes=self.row.guid))
        return {**named, "id": self.row.id, "guid": guid, **kind, **self.row.details, "schema": self.row.text}


@dataclass(slots=True)
class _Candidate:
    """A schema that a client has sent: parsed, and in its stored form."""

    parsed: ParsedSchema
    row: SchemaRow
    references: tuple[Reference, ...]


class SchemaRegistry:
    """The registry of one broker. Threads: event loop only."""

    def __init__(self, table: SchemaTable) -> None:
        self._table = table
        self._record_names: dict[int, tuple[str, ...] | None] = {}
        """The record names of schemas by id; a schema of an id never changes."""

    # -- looking up

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with this id."""
        row = self._table.find_by_id(schema_id) if 0 < schema_id <= NUMBER_MAX else None
        if row is None:
            raise RegistryError(RegistryFault.SCHEMA_NOT_FOUND, f" {schema_id}")
        return RegisteredSchema(row)

    def schema_by_guid(self, text: str) -> RegisteredSchema:
        """Return the schema with this GUID, written with or without hyphens."""
        try:
            row = self._table.find_by_guid(UUID(text).bytes)
        except ValueError:
            row = None
        if row is None:
            raise RegistryError(RegistryFault.SCHEMA_NOT_FOUND, f" {text[:100]}")
        return RegisteredSchema(row)

    def version(self, subject: str, version: int, *, with_deleted: bool = False) -> RegisteredSchema:
        """Return a version of a subject, or its newest for LATEST."""
        found = self._find_version(subject, version)
        if found is None or (found.deleted and not with_deleted):
            self.require_subject(subject, with_deleted=with_deleted)
            raise RegistryError(RegistryFault.VERSION_NOT_FOUND, "latest" if version == LATEST else version)
        return self._with_schema(found)

    def versions(self, subject: str) -> list[VersionRow]:
        """Return all versions of a subject, deleted ones too."""
        return self._table.list_versions(subject)

    def uses(self, schema_id: int, after: str = "", limit: int = -1) -> list[VersionRow]:
        """Return the versions that have a schema, by subject from ``after`` on, deleted ones too."""
        return self._table.list_uses(schema_id, after, limit)

    def referring(self, subject: str, version: int) -> list[int]:
        """Return the ids of schemas that refer to a version."""
        return self._table.list_referring(subject, version)

    def rows(self, after: tuple[str, int], limit: int) -> list[VersionRow]:
        """Return versions of all subjects in their order, those that come after a subject and version."""
        return self._table.list_subject_rows(after, limit)

    def require_subject(self, subject: str, *, with_deleted: bool = False) -> None:
        """Raise RegistryError if a subject has no version."""
        if self._table.find_latest(subject, with_deleted=with_deleted) is None:
            raise RegistryError(RegistryFault.SUBJECT_NOT_FOUND, subject)

    def _find_version(self, subject: str, version: int) -> VersionRow | None:
        if version == LATEST:
            return self._table.find_latest(subject, with_deleted=False)
        return self._table.find_version(subject, version)

    def _with_schema(self, version: VersionRow) -> RegisteredSchema:
        row = self._table.find_by_id(version.schema)
        assert row is not None, "a version keeps its schema"
        return RegisteredSchema(row, version.subject, version.version)

    def find(
        self, subject: str, request: SchemaRequest, *, normalize: bool, with_deleted: bool
    ) -> Change[RegisteredSchema]:
        """Return the newest version of a subject that has this schema; raises RegistryError."""
        candidate = yield from self._parse(subject, request, normalize=normalize, is_new=False)
        found = self._find_same(subject, candidate, with_deleted=with_deleted)
        if found is None:
            self.require_subject(subject, with_deleted=with_deleted)
            raise RegistryError(RegistryFault.SCHEMA_NOT_FOUND, "")
        return found

    def _find_same(
        self, subject: str, candidate: _Candidate, *, with_deleted: bool, schema_id: int | None = None
    ) -> RegisteredSchema | None:
        row = self._table.find_by_digest(candidate.row.digest)
        if row is None or schema_id not in (None, row.id):
            return None
        uses = self._table.list_uses(row.id, subject)
        versions = [use for use in uses if use.subject == subject and (with_deleted or not use.deleted)]
        return RegisteredSchema(row, subject, versions[-1].version) if versions else None

    def find_text(self, name: int | str) -> SchemaText | None:
        """Return the schema with an id or GUID and all that it refers to as texts; None if it does not exist.

        Raises InvalidSchema if a schema that it refers to is missing.
        """
        row = self._table.find_by_id(name) if isinstance(name, int) else self._table.find_by_guid(UUID(name).bytes)
        if row is None:
            return None
        resolved = self._resolve(_references_of(row))
        return SchemaText(row.kind, row.text, tuple((one.name, one.text) for one in resolved))

    def find_frame_problem(self, frame: bytes, topic: str, strategy: str = TOPIC) -> str | None:
        """Return why a value may not have this schema id in a topic; None if it may.

        ``frame`` is ``00`` and an id, or ``01`` and a GUID, or empty; ``strategy`` says which subjects the schema may
        be of. Of a file of Protobuf, whose values each have one of its messages, each message may name the subject.
        """
        if not frame:
            return "no schema id; send it with a serialiser of the schema registry"
        if frame[0] == 0:
            name = f"schema id {int.from_bytes(frame[1:], 'big')}"
            row = self._table.find_by_id(int.from_bytes(frame[1:], "big"))
        else:
            name = f"schema {UUID(bytes=frame[1:])}"
            row = self._table.find_by_guid(frame[1:])
        if row is None:
            return f"{name} does not exist; register it in the subject {build_subject(strategy, topic, 'RECORD')}"
        if strategy == TOPIC:
            subjects = [f"{topic}-value"]
        else:
            names = self._list_record_names(row)
            if names is None:
                return (
                    f"{name} has more than {NAMED_CHARACTERS_MAX} characters with the schemas that it needs, and of so "
                    f"long a one the record's name is not read; use the subject_strategy {TOPIC}"
                )
            subjects = [build_subject(strategy, topic, record) or "" for record in names]
        if any(self._table.has_schema(subject, row.id) for subject in subjects):
            return None
        if not subjects:
            return f"{name} has no record whose name the subject could be; use the subject_strategy {TOPIC}"
        return f"{name} is not a schema of the subject {subjects[0]}; register it there"

    def _list_record_names(self, row: SchemaRow) -> tuple[str, ...] | None:
        """Return the names of records in a schema, or None if it is too long. The last schemas' are kept."""
        if len(row.text) > NAMED_CHARACTERS_MAX:
            return None
        if row.id in self._record_names:
            names = self._record_names.pop(row.id)
        else:
            try:
                names = tuple(list_record_names(parse_schema(row.kind, row.text, (), is_new=False)))
            except InvalidSchema:
                names = self._list_names_with_references(row)
            if len(self._record_names) >= NAMES_KEPT_MAX:
                del self._record_names[next(iter(self._record_names))]
        self._record_names[row.id] = names
        return names

    def _list_names_with_references(self, row: SchemaRow) -> tuple[str, ...] | None:
        try:
            text = self.find_text(row.id)
            if text is None:
                return ()
            if len(text.text) + sum(len(one) for _, one in text.imports) > NAMED_CHARACTERS_MAX:
                return None
            return tuple(list_record_names(text.parse()))
        except InvalidSchema:
            return ()

    # -- registering

    def register(self, subject: str, request: SchemaRequest, *, normalize: bool) -> Change[RegisteredSchema]:
        """Return the version of a subject with this schema, which is added unless it exists; raises RegistryError."""
        require_subject(subject)
        mode = self.mode(subject)
        self._require_mode(subject, mode, is_import=request.id is not None)
        candidate = yield from self._parse(subject, request, normalize=normalize, is_new=request.id is None)
        if request.version is None:
            same = self._find_same(subject, candidate, with_deleted=False, schema_id=request.id)
            if same is not None:
                return same
        if mode != "IMPORT":
            found = yield from self._list_incompatibilities(subject, candidate, self._list_active(subject))
            if found:
                raise RegistryError(RegistryFault.INCOMPATIBLE, subject, ", ".join(found))
        return self._add(subject, request, candidate, mode)

    def _add(self, subject: str, request: SchemaRequest, candidate: _Candidate, mode: str) -> RegisteredSchema:
        # a schema that this one refers to may have been deleted while this one was parsed
        for reference in candidate.references:
            self._require_reference(reference)
        versions = self._table.list_versions(subject)
        number = max((row.version for row in versions), default=0) + 1
        if request.version is not None:
            if mode != "IMPORT" and request.version != number:
                raise RegistryError(RegistryFault.INVALID_SCHEMA, "Version is not one more than previous version")
            number = request.version
        same = self._table.find_by_digest(candidate.row.digest)
        row = candidate.row._replace(id=self._choose_id(request, candidate, same))
        replaced = [
            old.version
            for old in versions
            if (old.deleted and old.schema == row.id and not self._table.list_referring(subject, old.version))
            or old.version == number
        ]
        referred = [(reference.subject, reference.version) for reference in candidate.references]
        ident = self._table.add_version(subject, number, row, referred, replaced)
        return RegisteredSchema(row._replace(id=ident), subject, number)

    def _choose_id(self, request: SchemaRequest, candidate: _Candidate, same: SchemaRow | None) -> int:
        """Return the id for a schema; 0 stands for the next free id."""
        if request.id is None:
            return 0 if same is None else same.id
        known = self._table.find_by_id(request.id)
        if known is not None and known.digest != candidate.row.digest:
            raise RegistryError(RegistryFault.ID_TAKEN, f"Overwrite new schema with id {request.id} is not permitted.")
        return request.id

    def _require_mode(self, subject: str, mode: str, *, is_import: bool = False) -> None:
        if mode.startswith("READONLY"):
            raise RegistryError(RegistryFault.NOT_PERMITTED, f"Subject {subject} in context . is in read-only mode")
        if is_import and mode != "IMPORT":
            raise RegistryError(RegistryFault.NOT_PERMITTED, f"Subject {subject} in context . is not in import mode")

    def check(self, subject: str, request: SchemaRequest, version: int | None, *, normalize: bool) -> Change[list[str]]:
        """Return why a schema may not follow a version of a subject, or all its versions for None; empty if it may."""
        rows = self._list_active(subject)
        if version is not None:
            found = self._find_version(subject, version)
            if version != LATEST and (found is None or found.deleted):
                raise RegistryError(RegistryFault.VERSION_NOT_FOUND, version)
            rows = [] if found is None else [found]
        candidate = yield from self._parse(subject, request, normalize=normalize, is_new=True)
        return (yield from self._list_incompatibilities(subject, candidate, rows))

    def _list_active(self, subject: str) -> list[VersionRow]:
        return [row for row in self._table.list_versions(subject) if not row.deleted]

    def _list_incompatibilities(
        self, subject: str, candidate: _Candidate, rows: Sequence[VersionRow]
    ) -> Change[list[str]]:
        level = LEVELS[self.level(subject)]
        if not (level.reads_old or level.is_read_by_old):
            return []
        older: list[tuple[int, ParsedSchema]] = []
        for row in rows if level.is_transitive else rows[-1:]:
            schema = self._table.find_by_id(row.schema)
            if schema is not None:
                parsed = yield from self._parse_stored(schema)
                older.append((row.version, parsed))
        size = len(candidate.row.text) * max(len(older), 1)
        try:
            found: list[str] = yield from _run_work(
                size, lambda: list_incompatibilities(level, candidate.parsed, older)
            )
        except InvalidSchema as error:
            raise RegistryError(RegistryFault.INVALID_SCHEMA, str(error)) from None
        return [*found, f"{{validateFields: 'false', compatibility: '{level.name}'}}"] if found else []

    # -- parsing

    def _parse(self, subject: str, request: SchemaRequest, *, normalize: bool, is_new: bool) -> Change[_Candidate]:
        try:
            references = tuple(self._require_reference(reference) for reference in request.references)
            resolved = self._resolve(references)
            size = len(request.text) + sum(len(one.text) for one in resolved)
            parsed = yield from _run_work(
                size, lambda: parse_schema(request.kind, request.text, resolved, is_new=is_new)
            )
            normalize = normalize or bool(self._find_setting(subject, "normalize"))
            text = (yield from _run_work(size, parsed.normalize)) if normalize else parsed.text
        except InvalidSchema as error:
            raise RegistryError(
                RegistryFault.INVALID_SCHEMA,
                f"Invalid schema {request.text[:500]} of type {request.kind}, details: {error}",
            ) from None
        if normalize:
            references = tuple(sorted(set(references)))
        details = request.details(references)
        row = yield from _run_work(len(text), lambda: _make_row(parsed.kind, text, details))
        return _Candidate(parsed, row, references)

    def parse_stored(self, schema: SchemaRow) -> Change[ParsedSchema]:
        """Return a stored schema, parsed; raises RegistryError if a schema that it refers to is missing."""
        try:
            return (yield from self._parse_stored(schema))
        except InvalidSchema as error:
            raise RegistryError(RegistryFault.INVALID_SCHEMA, str(error)) from None

    def _parse_stored(self, schema: SchemaRow) -> Change[ParsedSchema]:
        resolved = self._resolve(_references_of(schema))
        size = len(schema.text) + sum(len(one.text) for one in resolved)
        return (yield from _run_work(size, lambda: parse_schema(schema.kind, schema.text, resolved, is_new=False)))

    def _require_reference(self, reference: Reference) -> Reference:
        """Return a reference to a version that exists, by its number."""
        found = self._find_version(reference.subject, reference.version)
        if found is None:
            raise missing_reference_error(reference)
        return reference._replace(version=found.version)

    def _resolve(self, references: Sequence[Reference]) -> list[ResolvedReference]:
        """Return the texts of all that a schema refers to, each after those that it refers to itself."""
        resolved: dict[str, ResolvedReference] = {}
        met: set[str] = set()
        size = 0
        left: list[tuple[Reference, SchemaRow | None]] = [(one, None) for one in reversed(references)]
        while left:
            reference, schema = left.pop()
            if schema is not None:
                # those that it refers to were above it
                resolved[reference.name] = ResolvedReference(reference.name, schema.text, reference)
                continue
            if reference.name in met:
                continue
            met.add(reference.name)
            version = self._find_version(reference.subject, reference.version)
            row = None if version is None else self._table.find_by_id(version.schema)
            if row is None:
                raise InvalidSchema(
                    f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
                )
            size += len(row.text)
            if len(met) > RESOLVED_MAX or size > RESOLVED_CHARACTERS_MAX:
                raise InvalidSchema(
                    f"refers to more than {RESOLVED_MAX} schemas, or {RESOLVED_CHARACTERS_MAX} characters of them"
                )
            left.append((reference, row))
            left += [(below, None) for below in reversed(_references_of(row))]
        return list(resolved.values())

    # -- deleting

    def delete_version(self, subject: str, version: int, *, permanent: bool) -> int:
        """Delete a version, softly or for ever, and return its number."""
        self._require_mode(subject, self.mode(subject))
        row = self._find_version(subject, version)
        if row is None:
            self.require_subject(subject, with_deleted=True)
            raise RegistryError(RegistryFault.VERSION_NOT_FOUND, "latest" if version == LATEST else version)
        if row.deleted and not permanent:
            raise RegistryError(RegistryFault.VERSION_SOFT_DELETED, subject, row.version)
        if permanent and not row.deleted:
            raise RegistryError(RegistryFault.VERSION_NOT_SOFT_DELETED, subject, row.version)
        self._require_unreferenced(row, permanent=permanent)
        if permanent:
            self._table.remove_versions(subject, [row.version], with_settings=False)
        else:
            self._table.set_deleted(subject, [row.version], deleted=True)
            if self._table.find_latest(subject, with_deleted=False) is None:
                self._table.set_settings(subject, {})
        return row.version

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject, softly or for ever, and return their numbers."""
        self._require_mode(subject, self.mode(subject))
        rows = self._table.list_versions(subject)
        if not rows:
            raise RegistryError(RegistryFault.SUBJECT_NOT_FOUND, subject)
        active = [row for row in rows if not row.deleted]
        if not permanent and not active:
            raise RegistryError(RegistryFault.SUBJECT_SOFT_DELETED, subject)
        if permanent and active:
            raise RegistryError(RegistryFault.SUBJECT_NOT_SOFT_DELETED, subject)
        doomed = rows if permanent else active
        for row in doomed:
            self._require_unreferenced(row, permanent=permanent, by_others_than=subject)
        numbers = [row.version for row in doomed]
        if permanent:
            self._table.remove_versions(subject, numbers, with_settings=True)
        else:
            self._table.set_deleted(subject, numbers, deleted=True)
        return numbers

    def _require_unreferenced(self, row: VersionRow, *, permanent: bool, by_others_than: str | None = None) -> None:
        for schema_id in self._table.list_referring(row.subject, row.version):
            for use in self._table.list_uses(schema_id):
                if (permanent or not use.deleted) and use.subject != by_others_than:
                    raise RegistryError(RegistryFault.REFERENCED, row.subject, row.version)

    # -- settings

    def level(self, subject: str) -> str:
        """Return the level of compatibility that holds for a subject."""
        level: str = self._find_setting(subject, _LEVEL) or LEVEL_DEFAULT
        return level

    def mode(self, subject: str) -> str:
        """Return the mode that holds for a subject; READONLY_OVERRIDE of all goes before that of a subject."""
        of_all = self._table.find_settings(GLOBAL).get(_MODE)
        if of_all == "READONLY_OVERRIDE":
            return "READONLY_OVERRIDE"
        mode: str = self._table.find_settings(subject).get(_MODE) or of_all or _MODE_DEFAULT
        return mode

    def _find_setting(self, subject: str, name: str) -> Any:
        own = self._table.find_settings(subject).get(name)
        return self._table.find_settings(GLOBAL).get(name) if own is None else own

    def config(self, subject: str | None, *, with_global: bool = False) -> dict[str, Any]:
        """Return the settings of a subject, or those of all for None, with the level as ``compatibilityLevel``."""
        own = _without_mode(self._table.find_settings(subject or GLOBAL))
        if subject is None or with_global:
            of_all = _without_mode(self._table.find_settings(GLOBAL))
            return {_LEVEL: LEVEL_DEFAULT, **of_all, **own}
        if not own:
            raise RegistryError(RegistryFault.NO_SUBJECT_CONFIG, subject)
        return own

    def set_config(self, subject: str | None, document: dict[str, Any]) -> dict[str, Any]:
        """Change settings of a subject, or of all; return those that hold now, with the level as ``compatibility``."""
        if subject is not None:
            require_subject(subject)
        self._require_mode(subject or "", self.mode(subject or GLOBAL))
        changed: dict[str, Any] = {}
        level = document.get("compatibility") or document.get(_LEVEL)
        if level is not None:
            if not isinstance(level, str) or level.upper() not in LEVELS:
                raise RegistryError(RegistryFault.INVALID_LEVEL)
            changed[_LEVEL] = level.upper()
        if document.get("normalize") is not None:
            if not isinstance(document["normalize"], bool):
                raise RegistryError(RegistryFault.MALFORMED, "normalize: has to be true or false")
            changed["normalize"] = document["normalize"]
        changed |= {name: document[name] for name in KEPT_SETTINGS if document.get(name) is not None}
        settings = self._table.find_settings(subject or GLOBAL) | changed
        require_storable(settings)
        self._table.set_settings(subject or GLOBAL, settings)
        shown = _without_mode(settings)
        level = shown.pop(_LEVEL, None)
        return shown if level is None else {"compatibility": level, **shown}

    def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Delete the settings of a subject, or of all; return the deleted ones."""
        settings = self._table.find_settings(subject or GLOBAL)
        former = _without_mode(settings)
        if subject is not None and not former:
            raise RegistryError(RegistryFault.SUBJECT_NOT_FOUND, subject)
        self._table.set_settings(subject or GLOBAL, {name: settings[name] for name in settings if name == _MODE})
        return former or {_LEVEL: LEVEL_DEFAULT}

    def own_mode(self, subject: str | None, *, with_global: bool = False) -> str:
        """Return the mode that is set for a subject, or for all."""
        if subject is None or with_global:
            return self.mode(subject or GLOBAL)
        mode: str | None = self._table.find_settings(subject).get(_MODE)
        if mode is None:
            raise RegistryError(RegistryFault.NO_SUBJECT_MODE, subject)
        return mode

    def set_mode(self, subject: str | None, mode: object, *, force: bool) -> str:
        """Set the mode of a subject, or of all. Importing begins without schemas, or with ``force``."""
        if subject is not None:
            require_subject(subject)
        if not isinstance(mode, str) or mode.upper() not in MODES:
            raise RegistryError(RegistryFault.INVALID_MODE)
        mode = mode.upper()
        is_new = mode == "IMPORT" and self.mode(subject or GLOBAL) != "IMPORT"
        if is_new and not force and self._table.has_schemas(subject):
            raise RegistryError(RegistryFault.NOT_PERMITTED, "Cannot import since found existing subjects")
        self._table.set_settings(subject or GLOBAL, self._table.find_settings(subject or GLOBAL) | {_MODE: mode})
        return mode

    def delete_mode(self, subject: str | None) -> str:
        """Delete the mode of a subject, or of all; return the deleted one."""
        settings = self._table.find_settings(subject or GLOBAL)
        mode: str | None = settings.pop(_MODE, None)
        if mode is None and subject is not None:
            raise RegistryError(RegistryFault.SUBJECT_NOT_FOUND, subject)
        self._table.set_settings(subject or GLOBAL, settings)
        return mode or _MODE_DEFAULT


def _without_mode(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != _MODE}


def missing_reference_error(reference: Reference) -> RegistryError:
    """Return the error for a reference to a version that does not exist, or that the caller may not see."""
    return RegistryError(
        RegistryFault.INVALID_SCHEMA,
        f'No schema reference found for subject "{reference.subject}" and version {reference.version}',
    )


def _make_row(kind: str, text: str, details: dict[str, Any]) -> SchemaRow:
    """Return a schema as it is stored, without an id."""
    digest = digest_schema(kind, text, details)
    return SchemaRow(0, make_guid(text, details, digest), digest, kind, text, details)


def _references_of(schema: SchemaRow) -> list[Reference]:
    return [Reference(**reference) for reference in schema.details.get("references", ())]


def _run_work(size_characters: int, call: Callable[[], T]) -> Change[T]:
    """Return what ``call`` returns; a long one is made by the thread that makes the steps of the change."""
    if size_characters <= INLINE_CHARACTERS_MAX:
        return call()
    results: list[T] = []
    yield lambda: results.append(call())
    return results[0]
