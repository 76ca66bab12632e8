"""Text from messages and names, escaped for terminals: nothing in it moves the cursor, hides or reorders text."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Final

# control characters (C0, DEL, C1), line and paragraph separators, lone surrogates, and format characters such as those
# that reorder text; the joiners of scripts and emoji (U+200C, U+200D) are text
_UNSEEN: Final = (
    "\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
_UNSEEN_CHARACTER: Final = re.compile(f"[{_UNSEEN}]")
_UNSEEN_IN_LINES: Final = re.compile(f"(?!\n)[{_UNSEEN}]")


def escape_unseen(text: str) -> str:
    r"""Return ``text`` with escapes such as ``\x1b``, ``\n`` or ``\u202e`` for what a terminal would act on."""
    return _UNSEEN_CHARACTER.sub(_escape_match, text)


def escape_unseen_in_lines(text: str) -> str:
    """Return what ``escape_unseen`` does, but keep line ends: for text of several lines."""
    return _UNSEEN_IN_LINES.sub(_escape_match, text)


def escape_unseen_in_json(document: str) -> str:
    """Return a JSON document that means the same and has no such characters, except between its values."""
    return _UNSEEN_IN_LINES.sub(lambda found: json.dumps(found[0])[1:-1], document)


def quote_for_shell(text: str) -> str:
    r"""Return a word of a command line that shells read as ``text``, and that a terminal shows as it is.

    Characters that a terminal would act on are written as bash, ksh and zsh read them, such as ``$'a\nb'``. No shell
    can pass a NUL.
    """
    if _UNSEEN_CHARACTER.search(text) is None:
        return shlex.quote(text)
    plain = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNSEEN_CHARACTER.sub(_escape_for_shell, plain)}'"


def join_for_shell(words: Iterable[str]) -> str:
    """Return a command line of words."""
    return " ".join(map(quote_for_shell, words))


def shorten_bytes(data: bytes | None, bytes_max: int) -> str:
    """Return the first bytes as a Python literal with the number of the others; ``null`` for None."""
    if data is None:
        return "null"
    rest = f" and {len(data) - bytes_max:,} bytes more" if len(data) > bytes_max else ""
    return f"{data[:bytes_max]!r}{rest}"


def _escape_for_shell(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _escape_match(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "backslashreplace").decode("ascii")
