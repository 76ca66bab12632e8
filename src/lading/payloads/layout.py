"""Numbers that walkers and their callers share: tables of paths, lengths without a value, verdicts, kinds, programs."""

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
    VERDICT_CONTROL, VERDICT_ESCAPE, VERDICT_NUMBER, VERDICT_UTF8, VERDICT_DEPTH, VERDICT_VARINT, VERDICT_CHOICE,
    VERDICT_BOOLEAN, VERDICT_LENGTH, VERDICT_ITEMS, VERDICT_TAG, VERDICT_UNFRAMED, VERDICT_UNKNOWN, VERDICT_MISMATCH,
) = range(21)  # fmt: skip
"""Verdicts on a payload as a whole. From VERDICT_EMPTY on it is malformed, and none of its paths has a value."""
MALFORMED_FIRST: Final = VERDICT_EMPTY
SCHEMA_FIRST: Final = VERDICT_UNKNOWN
"""From here on the payload itself was not read: its schema is not known, or does not fit the columns."""

(
    JSON_NOTHING, JSON_PLAIN, JSON_WIDE, JSON_ESCAPED, JSON_INTEGER, JSON_REAL, JSON_TRUE, JSON_FALSE, JSON_NESTED,
) = range(9)  # fmt: skip
"""Kinds of located values of JSON: nothing or null; a string of ASCII, with other characters, with escapes; a number of
digits alone; minus zero, or a number with a fraction or exponent; both words; an object or array. Strings are without
their quotes."""

JSON_DEPTH_MAX: Final = 1000
"""Nested objects and arrays in a payload."""

(
    OP_NULL, OP_BOOLEAN, OP_INT, OP_LONG, OP_FLOAT, OP_DOUBLE, OP_BYTES, OP_STRING, OP_FIXED, OP_ENUM, OP_UNION,
    OP_JUMP, OP_BLOCKS, OP_NEXT, OP_LOST, OP_MARK, OP_SPAN, OP_CALL, OP_RETURN, OP_END,
) = range(20)  # fmt: skip
"""Instructions of programs for Avro: how ``avro_program.py`` writes a schema for walkers."""
CODE_OP, CODE_LEAF, CODE_TYPE, CODE_ONE, CODE_TWO = range(5)
"""Columns of an instruction: the leaf that gets the value (-1: none), the index of its type, and two numbers. ONE is
the size of a fixed value, the count of symbols or branches, the target of a jump or call, the first of the leaves that
are lost, or 0 for blocks whose items have no bytes; TWO is the first jump of a union, the instruction after blocks, or
the leaf after the last one that is lost, whose length is in TYPE."""
CODE_COLUMNS: Final = 5

AVRO_DEPTH_MAX: Final = 1000
"""Blocks of arrays and maps, and records that contain themselves, inside one another in a payload."""
FRAME_WORDS: Final = 3
"""Numbers that a walker keeps of each of them: items left, or where to return to; the end of a block (-1: not given);
the position of its size."""
EMPTY_ITEMS_MAX: Final = 1000
"""Items without bytes, such as nulls in an array, in a payload: their number alone would take memory."""
