"""Masks: headers, keys and payload fields whose values no page of the console shows, finds or saves.

A message is masked before anything is read from it, so that a page never has the hidden values. Masks are not rights:
other clients of the same broker read these values.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from ..filter.filter import Filter
from ..filter.tree import AnyHeader, HeaderRef, PayloadRef, operands
from ..filter.tree import Field as FieldRef
from ..model.errors import LocalError
from ..model.headers import Headers
from ..model.message import Message
from ..model.values import HeaderValue
from ..payloads.paths import KEY_ROOT, SCHEMA_ROOT, Path, parse_path, write_path
from ..settings.sections import Section

WORD: Final = "masked"
"""Stands in place of a value."""
SHORT_TEXT: Final = 4
"""A shorter masked value is hidden in another text only if it is the whole text."""

Text = Annotated[str, Field(min_length=1)]


class MaskSection(Section):
    """[[mask]]: what is masked in the messages of some topics."""

    headers: tuple[Text, ...] = ()
    payload: tuple[Text, ...] = ()
    """Fields of JSON payloads, or of payloads that a registry's schema decodes: ``payload.card.number``. A field inside
    a list is masked in each of its objects."""
    key: bool = False
    """Whether keys are masked."""
    topics: tuple[Text, ...] = ("*",)
    """Patterns of topic names, in which ``*`` is any text and ``?`` any character."""
    brokers: tuple[Text, ...] = ()
    """Names of brokers of the file. Default: all."""

    @model_validator(mode="after")
    def _require_fields(self) -> Self:
        if not (self.headers or self.payload or self.key):
            raise ValueError("a mask names headers, payload fields or key = true")
        for text in self.payload:
            path = parse_path(text)
            if path is None or path[0] in (KEY_ROOT, SCHEMA_ROOT):
                raise ValueError(f"{text!r} is not a field of payloads; write it as payload.card.number")
        return self

    def covers(self, names: Collection[str]) -> bool:
        """Return whether the mask holds for a topic with these names."""
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.topics)


@dataclass(frozen=True, slots=True)
class TopicMask:
    """All that is masked in one topic; false if that is nothing."""

    headers: frozenset[str] = frozenset()
    paths: tuple[Path, ...] = ()
    has_key: bool = False

    def __bool__(self) -> bool:
        return bool(self.headers or self.paths or self.has_key)

    def hides_path(self, path: Path) -> bool:
        """Return whether a path leads to a masked field, into one, or to an object that has one."""
        if path[:1] == (KEY_ROOT,):
            return self.has_key
        return any(path[: len(one)] == one[: len(path)] for one in self.paths)

    def is_within(self, other: TopicMask) -> bool:
        """Return whether the other mask hides at least what this one does."""
        paths = all(any(path[: len(one)] == one for one in other.paths) for path in self.paths)
        return self.headers <= other.headers and paths and (other.has_key or not self.has_key)

    def mask_message(self, message: Message, json_bytes_max: int | None = None) -> Message:
        """Return a message without the values that are masked.

        Masked headers and a masked key are null. So is a payload that cannot be read as JSON, as the places of its
        fields are unknown, and one of more than ``json_bytes_max`` bytes.
        """
        if not self:
            return message
        headers = [
            (key, HeaderValue(kind, None if key in self.headers else data)) for key, kind, data in message.headers
        ]
        payload = message.payload
        if self.paths and payload is not None:
            is_short = json_bytes_max is None or len(payload) <= json_bytes_max
            text = mask_json(payload, self.paths) if is_short else None
            payload = None if text is None else text.encode(errors="backslashreplace")
        return Message(
            payload=payload, headers=Headers(headers), key=None if self.has_key else message.key,
            # the sum of a payload with few unknown digits gives them away
            checksum=None if self.paths else message.checksum,
            offset=message.offset, state=message.state, timestamp_us=message.timestamp_us, id=message.id,
            stream=message.stream, topic=message.topic, partition=message.partition,
        )  # fmt: skip

    def mask_text(self, text: str | None) -> str | None:
        """Return a decoded payload with its masked fields hidden; None if it is not JSON."""
        return text if text is None or not self.paths else mask_json(text, self.paths)

    def require_searchable(self, condition: Filter | None, more_headers: Collection[str] = ()) -> None:
        """Raise LocalError if a condition reads something masked: its matches would give the value away.

        ``more_headers`` are masked too.
        """
        if condition is None or not self:
            return
        for node in operands(condition.tree):
            hidden: str | None = None
            match node:
                case HeaderRef(key) | AnyHeader(key):
                    hidden = f"header {key!r}" if key in self.headers or key in more_headers else None
                case PayloadRef(path):
                    hidden = f"the field {write_path(path)}" if self.hides_path(path) else None
                case FieldRef(name):
                    is_hidden = bool(self.paths) if name in ("payload", "checksum") else name == "key" and self.has_key
                    hidden = f"the field {name}" if is_hidden else None
                case _:
                    pass
            if hidden is not None:
                raise LocalError(
                    f"{hidden} is masked in this console and cannot be searched; leave it out of the filter"
                )


NO_MASK: Final = TopicMask()


@dataclass(frozen=True, slots=True)
class Masks:
    """The masks of one broker."""

    sections: tuple[MaskSection, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sections)

    def of(self, *names: str) -> TopicMask:
        """Return the mask of a topic by its names: those of all masks that cover one of them."""
        covering = [one for one in self.sections if one.covers(names)]
        if not covering:
            return NO_MASK
        return TopicMask(
            frozenset(key for one in covering for key in one.headers),
            tuple(path for one in covering for text in one.payload if (path := parse_path(text)) is not None),
            any(one.key for one in covering),
        )

    def of_all(self) -> TopicMask:
        """Return what is masked in any topic."""
        return replace(self, sections=tuple(one.model_copy(update={"topics": ("*",)}) for one in self.sections)).of("")

    def of_meta(self, stream: str, topic: str, name: str) -> TopicMask:
        """Return the mask of a topic with a stream, which has more than one name."""
        return self.of(name, topic, f"{stream}/{topic}", f"{stream}.{topic}")


NO_MASKS: Final = Masks()


class _Members(list[tuple[str, Any]]):
    """The members of a JSON object in order, with those of one name."""


class _Token(str):
    """A number as it is written."""


def mask_json(document: bytes | str, paths: Sequence[Path]) -> str | None:
    """Return JSON with the values at these paths masked, however often a name occurs; None for another text."""
    try:
        value = json.loads(
            document, object_pairs_hook=_Members, parse_float=_Token, parse_int=_Token, parse_constant=_Token
        )
        parts: list[str] = []
        _write(value, tuple(paths), parts)
    except (ValueError, RecursionError):
        return None
    return "".join(parts)


def _write(value: Any, paths: tuple[Path, ...], parts: list[str]) -> None:
    if isinstance(value, _Members):
        parts.append("{")
        for at, (name, member) in enumerate(value):
            parts.append(f"{',' if at else ''}{_quote(name)}:")
            below = tuple(path[1:] for path in paths if path[0] == name)
            if () in below:
                parts.append(_quote(WORD))
            else:
                _write(member, below, parts)
        parts.append("}")
    elif isinstance(value, list):
        parts.append("[")
        for at, item in enumerate(value):
            parts.append("," if at else "")
            _write(item, paths, parts)
        parts.append("]")
    elif isinstance(value, _Token):
        parts.append(str(value))
    else:
        parts.append(_quote(value) if isinstance(value, str) else json.dumps(value))


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=not _is_encodable(text))


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def hide_facts(facts: Mapping[str, Any], values: Iterable[bytes | None]) -> dict[str, Any]:
    """Return facts that were read from headers; a text that contains one of these masked values is replaced."""
    texts = {value.decode(errors="replace") for value in values if value}
    return {
        name: WORD if isinstance(fact, str) and any(_has_text(fact, text) for text in texts) else fact
        for name, fact in facts.items()
    }


def _has_text(fact: str, text: str) -> bool:
    # a digit or a letter is in many texts by chance
    return fact == text or (len(text) >= SHORT_TEXT and text in fact)
