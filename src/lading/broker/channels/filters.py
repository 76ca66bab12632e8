"""Filters by header: which messages one subscriber wants, in the kinds of Youzan's ``ext_filter`` (nsq.md 4.4).

Patterns are matched by RE2 (through Arrow), whose time is linear in the text. A pattern that takes long to compile is
refused (pattern_cost.py). A pass of the event loop matches as many texts as it has time for (pattern_matches.py). A key
may be a path into a JSON value: ``k.z``, ``k.*``, ``list.0``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...dialects.nsq import json_mark
from ...model.errors import FilterError
from ...model.headers import Header
from ...model.kinds import Kind
from ...model.lazy_dataclass import lazy_dataclass
from .pages import Page
from .pattern_cost import PATTERN_COST_MAX, pattern_cost
from .pattern_matches import (
    GlobMatcher,
    LiteralMatcher,
    Matcher,
    PatternBudget,
    PatternMatches,
    RegexMatcher,
    has_only_simple_wildcards,
    is_literal,
)

Test = Literal["exact", "regex", "glob", "any", "all"]

PATTERN_BYTES_MAX: Final = 4096
CLAUSES_MAX: Final = 256
"""Bounds of one filter: each message of its channel is tested against all of it on the event loop."""

WILD_MEMBERS_MAX: Final = 256
"""The number of members of an object, from the first one, that are compared with a wild card in a key."""

_WILD: Final = re.compile(r"[*?\[]")
_JSON_STARTS: Final = tuple(bytes((byte,)) for byte in b"{[-0123456789")

Mask = NDArray[np.bool_]


@lazy_dataclass(frozen=True, slots=True)
class HeaderFilter:
    """One filter; ``clauses`` are (key, text or pattern): several for ``any`` and ``all``, else one.

    A message without headers never matches, and so passes an inverse filter. A value that is missing or not a text is
    empty for patterns and matches no exact test; a text that its mark declares as JSON does not count as text.
    """

    test: Test
    clauses: tuple[tuple[str, str], ...]
    inverse: bool = False
    _matcher: Matcher | None = field(default=None, compare=False)

    @classmethod
    def exact(cls, key: str, text: str, *, inverse: bool = False) -> HeaderFilter:
        """Return a test that the value is this text."""
        return cls._make_checked("exact", ((key, text),), inverse)

    @classmethod
    def regex(cls, key: str, pattern: str, *, inverse: bool = False) -> HeaderFilter:
        """Return a test that the value has a part that matches (RE2 syntax, as Go's)."""
        return cls._make_checked("regex", ((key, pattern),), inverse, lambda: _make_regex(pattern, pattern))

    @classmethod
    def glob(cls, key: str, pattern: str, *, inverse: bool = False) -> HeaderFilter:
        """Return a test that the whole value matches: ``*``, ``?``, ``[abc]``, ``[!a-c]``, ``{one,two}``."""
        return cls._make_checked("glob", ((key, pattern),), inverse, lambda: _make_glob(pattern))

    @classmethod
    def any(cls, clauses: Sequence[tuple[str, str]], *, inverse: bool = False) -> HeaderFilter:
        """Return a test that at least one of the exact tests holds."""
        return cls._make_checked("any", tuple(clauses), inverse)

    @classmethod
    def all(cls, clauses: Sequence[tuple[str, str]], *, inverse: bool = False) -> HeaderFilter:
        """Return a test that all of the exact tests hold."""
        return cls._make_checked("all", tuple(clauses), inverse)

    @classmethod
    def _make_checked(
        cls,
        test: Test,
        clauses: tuple[tuple[str, str], ...],
        inverse: bool,
        make_matcher: Callable[[], Matcher] | None = None,
    ) -> HeaderFilter:
        if not 1 <= len(clauses) <= CLAUSES_MAX:
            raise FilterError(f"a filter has 1 to {CLAUSES_MAX} tests, not {len(clauses)}")
        for key, text in clauses:
            if not key:
                raise FilterError("a filter names a header; its key is empty")
            if not text and test in _WITH_TEXT:
                raise FilterError(f"the {test} filter of header {key!r} has nothing to compare with")
        return cls(test, clauses, inverse, None if make_matcher is None else make_matcher())

    def match(self, page: Page, places: NDArray[np.int64], budget: PatternBudget) -> Mask:
        """Return for each message at ``places`` of the page whether it passes this filter.

        The mask is shorter than ``places`` if the steps left in this pass are too few for the pattern.
        """
        if self._matcher is None:
            return self._mask(page)[places]
        matches: PatternMatches | None = page.columns.get(self)
        if matches is None:
            matches = page.columns[self] = PatternMatches(values(page, self.clauses[0][0]), self._matcher)
        matched = matches.match(places, budget)
        wanted: Mask = (self._find_present(page)[places[: len(matched)]] & matched) != self.inverse
        return wanted

    def _mask(self, page: Page) -> Mask:
        found: Mask | None = page.columns.get(self)
        if found is None:
            found = page.columns[self] = (self._find_present(page) & _TESTS[self.test](self, page)) != self.inverse
        return found

    @staticmethod
    def _find_present(page: Page) -> Mask:
        present: Mask | None = page.columns.get("headers")
        if present is None:
            present = page.columns["headers"] = _fit_to_page(page.with_headers(), page)
        return present

    def _match_exactly(self, page: Page) -> list[Mask]:
        page.load_texts(path_of(key)[0] for key, _ in self.clauses if ("key", key) not in page.columns)
        return [
            np.fromiter((value == text.encode() for value in values(page, key)), np.bool_, len(page.offsets))
            for key, text in self.clauses
        ]


def _fit_to_page(mask: Mask, page: Page) -> Mask:
    """Return the mask, or an empty match for a page that cannot be decoded, and so has no headers."""
    return mask if len(mask) == len(page.offsets) else np.zeros(len(page.offsets), np.bool_)


def _make_regex(pattern: str, shown: str) -> Matcher:
    """Return the matcher of a pattern, which errors show as ``shown``. Raises FilterError if it is invalid
    or costly.
    """
    _require_short(pattern)
    if is_literal(pattern):
        return LiteralMatcher(pattern)
    if (cost := pattern_cost(pattern)) > PATTERN_COST_MAX:
        raise FilterError(
            f"pattern {shown!r}: {cost} parts with all its repetitions; the limit is {PATTERN_COST_MAX}; repeat less"
        )
    matcher = RegexMatcher(pattern, cost)
    try:
        matcher.match((b"",))
    except pa.ArrowInvalid as error:
        raise FilterError(f"{shown!r} is not a valid pattern: {error}") from None
    return matcher


def _make_glob(pattern: str) -> Matcher:
    if not has_only_simple_wildcards(pattern):
        return _make_regex(glob_regex(pattern), pattern)
    _require_short(pattern)
    return GlobMatcher(pattern)


def _require_short(pattern: str) -> None:
    if (size_bytes := len(pattern.encode())) > PATTERN_BYTES_MAX:
        raise FilterError(f"a pattern has at most {PATTERN_BYTES_MAX} bytes, not {size_bytes}")


_WITH_TEXT: Final = frozenset({"exact", "regex", "glob"})
_TESTS: Final[Mapping[str, Callable[[HeaderFilter, Page], Mask]]] = MappingProxyType(
    {
        "exact": lambda one, page: one._match_exactly(page)[0],
        "any": lambda one, page: np.logical_or.reduce(one._match_exactly(page)),
        "all": lambda one, page: np.logical_and.reduce(one._match_exactly(page)),
    }
)


def values(page: Page, key: str) -> list[bytes | None]:
    """Return for each message the text at a key: of the header with that name, or inside a header's JSON value."""
    cached: list[bytes | None] | None = page.columns.get(("key", key))
    if cached is None:
        path = path_of(key)
        texts = page.texts(path[0])
        cached = _find_in_documents(page, path, texts) if path[1:] else _no_json(page, path[0], texts)
        cached += [None] * (len(page.offsets) - len(cached))
        page.columns["key", key] = cached
    return cached


def _no_json(page: Page, name: str, texts: list[bytes | None]) -> list[bytes | None]:
    """Return the texts, with None for objects, arrays and numbers: these are not text for filters."""
    if not any(text and text[:1] in _JSON_STARTS for text in texts):
        return texts
    marks = page.texts(json_mark.NAME)
    return [
        None if text and mark and json_mark.tells(mark, Header(name, int(Kind.STRING), text)) else text
        for text, mark in zip(texts, marks, strict=True)
    ]


def path_of(key: str) -> list[str]:
    """Return the parts of a key between its dots; a backslash makes the next character an ordinary one."""
    parts = [""]
    letters = iter(key)
    for letter in letters:
        if letter == ".":
            parts.append("")
        else:
            parts[-1] += next(letters, "") if letter == "\\" else letter
    return parts


def _find_in_documents(page: Page, path: Sequence[str], texts: Sequence[bytes | None]) -> list[bytes | None]:
    documents: list[Any] | None = page.columns.get(("json", path[0]))
    if documents is None:
        # parsed once for all filters and all their tests: 256 tests of one large object would hold up the loop
        documents = page.columns["json", path[0]] = [_parse_json(text) for text in texts]
    return [_string_at(document, path[1:]) for document in documents]


def _parse_json(text: bytes | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _string_at(found: Any, path: Sequence[str]) -> bytes | None:
    """Return the string at a path into a JSON value, or None."""
    for part in path:
        if isinstance(found, dict):
            name = part if part in found or not _WILD.search(part) else _first_name(found, part)
            if name not in found:
                return None
            found = found[name]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found.encode(errors="surrogatepass") if isinstance(found, str) else None


def _first_name(found: Mapping[str, Any], part: str) -> str | None:
    return next((name for name in islice(found, WILD_MEMBERS_MAX) if fnmatchcase(name, part)), None)


def glob_regex(pattern: str) -> str:
    """Return a glob as a pattern for the whole text. Raises FilterError if a bracket or brace is not closed."""
    out, depth, at = ["(?s)^(?:"], 0, 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == "*":
            out.append(".*")
        elif letter == "?":
            out.append(".")
        elif letter == "\\":
            out.append(re.escape(pattern[at : at + 1]))
            at += 1
        elif letter == "[":
            end = pattern.find("]", at + 1)
            if end < 0:
                raise FilterError(f"the glob {pattern!r} has a [ that is not closed")
            inside = pattern[at:end]
            negated = inside.startswith("!")
            out.append("[" + "^" * negated + re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[negated:]) + "]")
            at = end + 1
        elif letter == "{":
            depth += 1
            out.append("(?:")
        elif letter == "}" and depth:
            depth -= 1
            out.append(")")
        elif letter == "," and depth:
            out.append("|")
        else:
            out.append(re.escape(letter))
    if depth:
        raise FilterError(f"the glob {pattern!r} has a {{ that is not closed")
    return "".join([*out, ")$"])
