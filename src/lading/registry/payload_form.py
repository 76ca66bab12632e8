"""The settings of payloads, as files, options and arguments give them, to the form in which payloads are read."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Final

from ..model.cache_directory import find_cache_directory
from ..model.errors import SettingError
from ..model.lazy_dataclass import lazy_dataclass
from ..payloads.form import JSON_FORM, KINDS, PayloadForm, SchemaText, find_message
from ..payloads.identity import SchemaIdentity
from ..schemas.parsed import InvalidSchema, ParsedSchema
from ..schemas.subjects import STRATEGIES, TOPIC
from .client import RegistryAddress, RegistryClient, SchemaMissing

FORMATS: Final = ("json", "avro", "protobuf", "text", "schema")
PREFIXES: Final = ("auto", "confluent", "none")
SUFFIXES: Final = {
    ".avsc": "avro", ".json": "json", ".proto": "protobuf",
    **dict.fromkeys((".desc", ".protoset", ".binpb", ".pb"), "protobuf"),
}  # fmt: skip
"""The format of payloads by the suffix of the schema's file; the last two are files that protoc compiled."""
PROTOBUF_SUFFIX: Final = ".proto"
IMPORTS_DEPTH_MAX: Final = 50
FILES: Final = (
    "registry_password_file", "registry_token_file", "registry_ca_file", "registry_certificate_file",
    "registry_key_file", "registry_cache",
)  # fmt: skip
STRATEGY_KEY: Final = "subject_strategy"
KEYS: Final = (
    "format", "schema", "schema_imports", "message", "prefix", "registry", "registry_user", "registry_password_env",
    "registry_token_env", *FILES, STRATEGY_KEY,
)  # fmt: skip
"""The keys of settings; those of keys of messages begin with ``key.``."""
KEY_PREFIX: Final = "key."


@lazy_dataclass(frozen=True, slots=True)
class RegistrySchemas:
    """The schemas of a registry by their ids: a SchemaSource. All of one process share a client and its cache."""

    address: RegistryAddress
    cache: Path | None = None

    def find_by_id(self, schema_id: int) -> ParsedSchema | None:
        """See SchemaSource."""
        return _find_schema(self, str(schema_id), True)

    def find_by_guid(self, guid: str) -> ParsedSchema | None:
        """See SchemaSource."""
        return _find_schema(self, guid, False)

    def identify(self, name: int | str) -> SchemaIdentity | None:
        """See SchemaSource."""
        return _identify_schema(self, name)

    def find_newest(self, subject: str) -> tuple[int, ParsedSchema] | None:
        """Return the number of the newest version of a subject, and its schema; None if the subject does not exist."""
        found = _open_client(self).find_newest(subject)
        schema = None if found is None else self.find_by_id(found[1])
        return None if found is None or schema is None else (found[0], schema)


@lru_cache(maxsize=16)
def _open_client(schemas: RegistrySchemas) -> RegistryClient:
    return RegistryClient(schemas.address, schemas.cache)


def _find_schema(schemas: RegistrySchemas, name: str, is_id: bool) -> ParsedSchema | None:
    try:
        return _fetch_schema(schemas, name, is_id)
    except SchemaMissing:
        return None


def _identify_schema(schemas: RegistrySchemas, name: int | str) -> SchemaIdentity | None:
    """Return the constant facts of a schema, and its versions when they were first looked up."""
    try:
        return _open_client(schemas).identify(name)
    except SchemaMissing:
        return None


def _fetch_schema(schemas: RegistrySchemas, name: str, is_id: bool) -> ParsedSchema:
    """Return a schema, which never changes; the client keeps it."""
    client = _open_client(schemas)
    return (client.schema_by_id(int(name)) if is_id else client.schema_by_guid(name)).parse()


def inline_schema(settings: Mapping[str, str], base: Path | None = None) -> dict[str, str]:
    """Return settings with the schema as text instead of a file's name, and with files as absolute paths.

    Names are relative to ``base``, by default the working directory. Raises SettingError if a file cannot be read.
    """
    base = Path.cwd() if base is None else base
    of_keys = {name.removeprefix(KEY_PREFIX): one for name, one in settings.items() if name.startswith(KEY_PREFIX)}
    if of_keys:
        own = {name: one for name, one in settings.items() if not name.startswith(KEY_PREFIX)}
        inner = {f"{KEY_PREFIX}{name}": one for name, one in inline_schema(of_keys, base).items()}
        return inline_schema(own, base) | inner
    made = {name: str(value) for name, value in settings.items()}
    for name in FILES:
        if name in made:
            made[name] = str((base / Path(made[name]).expanduser()).absolute())
    schema = made.get("schema")
    if schema is None or is_schema_text(schema):
        return made
    file = base / Path(schema).expanduser()
    made["schema"], imports = read_schema_file(file, made.get("message", ""))
    if "format" not in made:
        made["format"] = find_format(file)
    return made if imports is None else {"schema_imports": imports} | made


def find_format(file: Path) -> str:
    """Return the format of the payloads that the schema in a file is for. Raises SettingError if its name has none."""
    found = SUFFIXES.get(file.suffix.lower())
    if found is None:
        raise SettingError(
            f"payload.schema {file.name!r}: its ending does not say the format of payloads; add format: avro, "
            f"protobuf or json, or name a file of {', '.join(SUFFIXES)}"
        )
    return found


def read_schema_file(file: Path, message: str = "") -> tuple[str, str | None]:
    """Return the schema of a file as text, and those that it imports as ``schema_imports`` has them, if there are any.

    Of a compiled set of descriptors it is the file that has ``message``, by default the last one.
    Raises SettingError if a file cannot be read.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise SettingError(f"payload schema {file}: cannot be read: {error.strerror}; check its path") from None
    if file.suffix != PROTOBUF_SUFFIX and SUFFIXES.get(file.suffix.lower(), "protobuf") == "protobuf":
        from ..schemas.protobuf_descriptor import read_descriptor_set

        files = read_descriptor_set(content)
        if files:
            return _choose_file(files, message)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        # a line end says that it is not the name of a file
        return base64.b64encode(content).decode() + "\n", None
    imports: dict[str, str] = {}
    if file.suffix == PROTOBUF_SUFFIX:
        _add_imports(file, text, imports, [file])
    return text, json.dumps(imports) if imports else None


def _choose_file(files: list[tuple[str, bytes, list[str]]], message: str) -> tuple[str, str | None]:
    """Return the descriptor in Base64 that declares a message, by default the last of the set, and all other
    descriptors."""
    named = [
        at for at, (_, _, names) in enumerate(files)
        if any(f".{message}.".startswith(f".{name}.") or f".{name}".endswith(f".{message}") for name in names)
    ]  # fmt: skip
    chosen = named[-1] if message and named else len(files) - 1
    # a line end says that it is not the name of a file
    texts = [(name, base64.b64encode(data).decode() + "\n") for name, data, _ in files]
    imports = dict(texts[:chosen] + texts[chosen + 1 :])
    return texts[chosen][1], json.dumps(imports) if imports else None


def parse_schema_imports(text: str | None) -> tuple[tuple[str, str], ...]:
    """Return the names and texts of imported files. Raises SettingError."""
    try:
        return () if text is None else tuple((str(name), str(one)) for name, one in json.loads(text).items())
    except (ValueError, AttributeError):
        raise SettingError("payload.schema_imports: not a JSON object of names and texts; correct it") from None


def _add_imports(file: Path, text: str, imports: dict[str, str], above: list[Path]) -> None:
    """Add the texts of the files that a .proto file imports, each after those that it imports itself.

    They are next to the file, or below one of its parent directories. Files that every reader has may be missing.
    """
    from ..schemas.protobuf import BUILT_IN
    from ..schemas.protobuf_text import parse_text

    try:
        names = [name for _, name in parse_text(text).imports]
    except InvalidSchema as error:
        raise SettingError(f"payload schema {file}: {error}; correct the file, or name another") from None
    for name in names:
        found = next((parent / name for parent in above[0].absolute().parents if (parent / name).is_file()), None)
        if name in imports or (found is None and name.startswith(BUILT_IN)):
            continue
        if found is None:
            raise SettingError(f"payload schema {file}: imports {name}, which is not beside it; put that file there")
        if found in above or len(above) > IMPORTS_DEPTH_MAX:
            raise SettingError(f"payload schema {file}: imports {name}, which imports it again; correct the files")
        try:
            inner = found.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"payload schema {found}: cannot be read: {error}; check the file") from None
        _add_imports(found, inner, imports, [*above, found])
        imports[name] = inner


def is_schema_text(schema: str) -> bool:
    """Return whether the setting is the text of a schema, not the name of its file."""
    return any(letter in schema for letter in '{"\n')


def parse_payload_form(settings: Mapping[str, str] | None, base: Path | None = None) -> PayloadForm:
    """Return the form that the settings describe. Raises SettingError that names the wrong key."""
    if not settings:
        return JSON_FORM
    of_keys = {name.removeprefix(KEY_PREFIX): one for name, one in settings.items() if name.startswith(KEY_PREFIX)}
    if of_keys:
        own = {name: one for name, one in settings.items() if not name.startswith(KEY_PREFIX)}
        return replace(parse_payload_form(own, base), key=_parse_key_form(of_keys, own, base))
    for name in settings:
        if name not in KEYS:
            near = get_close_matches(name, KEYS, 1, 0.6)
            hint = f"did you mean {near[0]}? There" if near else "there"
            raise SettingError(f"payload.{name}: unknown key; {hint} are {', '.join(KEYS)}")
    made = inline_schema(settings, base)
    if "schema" in made and "format" not in made:
        raise SettingError(
            "payload.schema: its text does not say the format of payloads; add format: avro, protobuf or json"
        )
    format_ = _require_word("format", made.get("format", "json"), FORMATS)
    prefix = _require_word("prefix", made.get("prefix", "auto"), PREFIXES)
    source = _parse_source(made)
    strategy = _require_word(STRATEGY_KEY, made.get(STRATEGY_KEY, TOPIC), STRATEGIES)
    schema = None if "schema" not in made else _parse_schema(format_, made["schema"], made.get("schema_imports"))
    if format_ == "text" and (named := next((name for name in ("schema", "registry") if name in made), None)):
        raise SettingError(f"payload.{named}: payloads of text have no schema; remove {named}, or name another format")
    if format_ in ("avro", "protobuf") and schema is None and source is None:
        raise SettingError(
            f"payload.format {format_!r}: payloads do not say their fields; add schema, the file of their schema, or "
            "registry, the URL of the schema registry that has it"
        )
    if format_ == "schema" and source is None:
        raise SettingError(
            "payload.format 'schema': the ids of schemas mean nothing without a registry; add registry, its URL"
        )
    message = made.get("message", "")
    if message and (schema is None or schema.kind != KINDS["protobuf"]):
        raise SettingError(
            f"payload.message {message!r}: only a file of Protobuf has messages; name it by schema, or remove message"
        )
    if schema is not None and schema.kind == KINDS["protobuf"]:
        _require_message(schema, message)
    return PayloadForm(format_, schema, source, prefix, message, subject_strategy=strategy)


def _parse_key_form(settings: dict[str, str], own: Mapping[str, str], base: Path | None) -> PayloadForm:
    """Return the form of keys. Their registry is that of the payloads, unless keys have a registry or a schema file."""
    if settings.keys().isdisjoint(("registry", "schema")) and settings.get("format") not in (None, "json", "text"):
        settings = {name: one for name, one in own.items() if name.startswith("registry")} | settings
    try:
        return parse_payload_form(settings, base)
    except SettingError as error:
        raise SettingError(str(error).replace("payload.", "key.")) from None


def _require_message(schema: SchemaText, name: str) -> None:
    """Raise SettingError if a file does not have the message, or has several and none is named."""
    from ..schemas.protobuf import ProtobufSchema
    from ..schemas.protobuf_types import resolve_messages

    parsed = schema.parse()
    find_message(parsed, name)
    assert isinstance(parsed, ProtobufSchema)
    names = resolve_messages(parsed).list_names()
    outer = [one for one in names if not any(one.startswith(f"{other}.") for other in names)]
    if not name and len(outer) > 1:
        raise SettingError(
            f"payload.schema: the file has {len(outer)} messages; add message, the name of one: {', '.join(outer[:20])}"
        )


def _require_word(name: str, word: str, words: tuple[str, ...]) -> str:
    if word not in words:
        near = get_close_matches(word, words, 1, 0.6)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise SettingError(f"payload.{name} is {word!r}{hint}; it takes {', '.join(words)}")
    return word


def _parse_schema(format_: str, text: str, imports: str | None) -> SchemaText:
    kind = KINDS.get(format_) or ("AVRO" if text.lstrip().startswith(("{", "[", '"')) else "PROTOBUF")
    schema = SchemaText(kind, text, parse_schema_imports(imports))
    try:
        schema.parse().require_valid()
    except InvalidSchema as error:
        raise SettingError(
            f"payload.schema: not a schema of {kind}: {error}; correct the file, or name another"
        ) from None
    return schema


def _parse_source(settings: Mapping[str, str]) -> RegistrySchemas | None:
    url = settings.get("registry")
    if url is None:
        if name := next((name for name in settings if name.startswith("registry_")), None):
            raise SettingError(f"payload.{name}: a registry is missing; add registry, its URL, or remove {name}")
        return None

    def path(name: str) -> Path | None:
        return Path(settings[name]) if name in settings else None

    address = RegistryAddress(
        url, settings.get("registry_user"), path("registry_password_file"), path("registry_token_file"),
        settings.get("registry_password_env"), settings.get("registry_token_env"), path("registry_ca_file"),
        path("registry_certificate_file"), path("registry_key_file"),
    )  # fmt: skip
    schemas = RegistrySchemas(address, path("registry_cache") or _default_cache())
    # refuses an invalid URL
    _open_client(schemas)
    return schemas


def _default_cache() -> Path:
    return find_cache_directory() / "schemas"
