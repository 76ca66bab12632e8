"""Numbers that walkers and their callers share: tables of paths, lengths without a value, verdicts, kinds of JSON."""

from __future__ import annotations

from typing import Final

ABSENT, NULL, BROKEN = -1, -2, -3
"""Lengths of what has no bytes: not there, null, or the path leads through something that is not an object."""

NODE_KEYS, NODE_KEYS_END, NODE_LEAVES, NODE_LEAVES_END, NODE_PARENT, NODE_LEAF, NODE_GUESS = range(7)
"""Columns of a node, an object on the way of a path: its keys; the leaves in and under it; the node it is a member of
(-1: none), the leaf of its own text (-1: none), and the key of the parent that most probably comes next."""
NODE_COLUMNS: Final = 7
KEY_START, KEY_SIZE, KEY_NODE, KEY_LEAF, KEY_WORD = range(5)
"""Columns of keys: name in the names, size; the node and the leaf it leads to (-1: none); its first 8 bytes."""
KEY_COLUMNS: Final = 5

(
    VERDICT_GOOD, VERDICT_TOMBSTONE, VERDICT_EMPTY, VERDICT_NOT_OBJECT, VERDICT_SYNTAX, VERDICT_TRAILING, VERDICT_CUT,
    VERDICT_CONTROL, VERDICT_ESCAPE, VERDICT_NUMBER, VERDICT_UTF8, VERDICT_DEPTH,
) = range(12)  # fmt: skip
"""Verdicts on a payload as a whole. From VERDICT_EMPTY on it is malformed, and none of its paths has a value."""
MALFORMED_FIRST: Final = VERDICT_EMPTY

(
    JSON_NOTHING, JSON_PLAIN, JSON_WIDE, JSON_ESCAPED, JSON_INTEGER, JSON_REAL, JSON_TRUE, JSON_FALSE, JSON_NESTED,
) = range(9)  # fmt: skip
"""Kinds of located values of JSON: nothing or null; a string of ASCII, with other characters, with escapes; a number of
digits alone; minus zero, or a number with a fraction or exponent; both words; an object or array. Strings are without
their quotes."""

JSON_DEPTH_MAX: Final = 1000
"""Nested objects and arrays in a payload."""
