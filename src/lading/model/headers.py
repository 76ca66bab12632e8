"""Headers: an ordered list of (key, kind, value) with dict-like sugar, as KIP-82 defines it (kafka.md 1.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .errors import HeadersSealed, LocalError
from .getters import TypedGetters
from .kinds import decode_value
from .values import HeaderValue, Scalar, encode_value, format_value


class _Header(NamedTuple):
    key: str
    kind: int
    value: bytes | None


class Header(_Header, TypedGetters):
    """One header: text key, kind code and value bytes; ``value`` None is null, which is not empty."""

    __slots__ = ()

    def _parts(self) -> tuple[str, int, bytes | None]:
        return f"header {self.key!r}", self.kind, self.value

    @property
    def typed(self) -> str | bytes | bool | int | float | None:
        """The Python value that its kind declares. Raises CorruptError if the bytes cannot be of that kind."""
        return decode_value(self.kind, self.value)

    def __str__(self) -> str:
        return f"{self.key} = {format_value(self.kind, self.value)}"


HeadersLike = Mapping[str, Any] | Iterable["Header | tuple[str, Scalar | HeaderValue]"] | None
"""Headers as callers may pass them: a mapping, pairs, existing headers, or nothing."""


class Headers:
    """The headers of a message, in order; duplicates and nulls are legal, nothing is merged.

    ``headers["k"]`` is the typed value of the last ``k``; iteration gives Header in insertion order. After
    ``seal()`` (which sending does) every change raises HeadersSealed; ``Headers(other)`` is a writable copy.
    """

    __slots__ = ("_list", "_sealed")

    def __init__(self, headers: HeadersLike = None) -> None:
        self._list: list[Header] = []
        self._sealed = False
        for item in headers.items() if isinstance(headers, Mapping) else headers or ():
            if isinstance(item, Header):
                self.add(item)
            elif isinstance(item, tuple) and len(item) == 2:
                self.add(*item)
            else:
                raise LocalError(f"a header is a (key, value) pair or a Header, not {item!r}")

    @classmethod
    def of(cls, headers: list[Header]) -> Headers:
        """Return Headers around this very list, unchecked: for decoders, which created every Header themselves."""
        made = cls.__new__(cls)
        made._list, made._sealed = headers, False
        return made

    def add(self, key: str | Header, value: Scalar | HeaderValue = None) -> Headers:
        """Append one header, from a Header or from key and value; returns self so that calls chain."""
        self._require_writable()
        if isinstance(key, Header):
            self._list.append(key)
        elif isinstance(key, str):
            if not key.isascii():
                _require_text(key)
            kind, data = encode_value(value)
            self._list.append(Header(key, kind, data))
        else:
            raise LocalError(f"a header key is a str, not {type(key).__name__} {key!r}")
        return self

    def remove(self, key: str) -> Headers:
        """Remove every header with this key, if there is one; returns self."""
        self._require_writable()
        _require_key(key)
        self._list[:] = [header for header in self._list if header.key != key]
        return self

    def last(self, key: str) -> Header | None:
        """Return the header with this key that was added last (KIP-82 ``lastHeader``), or None."""
        _require_key(key)
        return next((header for header in reversed(self._list) if header.key == key), None)

    def all(self, key: str) -> Iterator[Header]:
        """Return every header with this key, in order (KIP-82 ``headers(key)``)."""
        _require_key(key)
        return (header for header in self._list if header.key == key)

    def get(self, key: str, default: Scalar = None) -> Scalar:
        """Return the typed value of the last header with this key, or ``default`` if no header has it."""
        header = self.last(key)
        return default if header is None else header.typed

    def get_all(self, key: str) -> list[Scalar]:
        """Return the typed values of all headers with this key, in order."""
        return [header.typed for header in self.all(key)]

    def keys(self) -> list[str]:
        """Return the distinct keys in order of first occurrence."""
        return list(dict.fromkeys(header.key for header in self._list))

    def items(self) -> list[tuple[str, Scalar]]:
        """Return (key, typed value) of every header in order, duplicates included."""
        return [(header.key, header.typed) for header in self._list]

    def seal(self) -> Headers:
        """Make the headers read-only for good; returns self."""
        self._sealed = True
        return self

    @property
    def sealed(self) -> bool:
        """Whether these headers are read-only."""
        return self._sealed

    def __getitem__(self, key: str) -> Scalar:
        header = self.last(key)
        if header is None:
            raise KeyError(key)
        return header.typed

    def __contains__(self, key: object) -> bool:
        return any(header.key == key for header in self._list)

    def __iter__(self) -> Iterator[Header]:
        return iter(tuple(self._list))

    def __len__(self) -> int:
        return len(self._list)

    def __eq__(self, other: object) -> bool:
        return self._list == other._list if isinstance(other, Headers) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Headers({[(header.key, HeaderValue(header.kind, header.value)) for header in self._list]!r})"

    def _repr_html_(self) -> str:
        from .html import headers_table

        return headers_table(self._list)

    def _require_writable(self) -> None:
        if self._sealed:
            raise HeadersSealed(
                "these headers belong to a message that was sent; change a copy: Headers(message.headers)"
            )


def _require_key(key: object) -> None:
    if not isinstance(key, str):
        raise LocalError(f"a header key is a str, not {type(key).__name__} {key!r}")


def _require_text(key: str) -> None:
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise LocalError(
            f"header key {key!r} cannot be UTF-8 text: {error.reason}; take unpaired surrogates out of it"
        ) from None
