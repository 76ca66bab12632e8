"""Numbers that walkers and their callers share: tables of paths, lengths without a value, verdicts, kinds, programs."""

from __future__ import annotations

from typing import Final

ABSENT, NULL, BROKEN = -1, -2, -3
"""Lengths of missing values: absent, null, or the path leads through something that is not an object."""

NODE_KEYS, NODE_KEYS_END, NODE_LEAVES, NODE_LEAVES_END, NODE_PARENT, NODE_LEAF, NODE_OWN_KEY = range(7)
"""Columns of a node, an object on the way of a path: its keys; the leaves in and under it; the node it is a member of
(-1: none), the leaf of its own text (-1: none), and the key of the parent that leads to it."""
NODE_COLUMNS: Final = 7
KEY_START, KEY_SIZE, KEY_NODE, KEY_LEAF, KEY_WORD, KEY_PLAIN = range(6)
"""Columns of keys: name in the names, size; the node and the leaf it leads to (-1: none); its first 8 bytes; whether
JSON writes it without escapes."""
KEY_COLUMNS: Final = 6

(
    VERDICT_GOOD, VERDICT_TOMBSTONE, VERDICT_EMPTY, VERDICT_NOT_OBJECT, VERDICT_SYNTAX, VERDICT_TRAILING, VERDICT_CUT,
    VERDICT_CONTROL, VERDICT_ESCAPE, VERDICT_NUMBER, VERDICT_UTF8, VERDICT_DEPTH, VERDICT_VARINT, VERDICT_CHOICE,
    VERDICT_BOOLEAN, VERDICT_LENGTH, VERDICT_ITEMS, VERDICT_TAG, VERDICT_UNFRAMED, VERDICT_UNKNOWN, VERDICT_MISMATCH,
) = range(21)  # fmt: skip
"""Verdicts on a payload as a whole. From VERDICT_EMPTY on it is malformed, and none of its paths has a value."""
MALFORMED_FIRST: Final = VERDICT_EMPTY
SCHEMA_FIRST: Final = VERDICT_UNKNOWN
"""From this verdict on the payload itself was not read: its schema is unknown, or does not fit the columns."""

(
    JSON_NOTHING, JSON_PLAIN, JSON_WIDE, JSON_ESCAPED, JSON_INTEGER, JSON_REAL, JSON_TRUE, JSON_FALSE, JSON_NESTED,
) = range(9)  # fmt: skip
"""Kinds of located values of JSON: nothing or null; a string of ASCII, with other characters, with escapes; a number of
digits alone; minus zero, or a number with a fraction or exponent; both words; an object or array. Strings are without
their quotes."""

SEEN_BROKEN: Final = 1 << 9
"""A bit of ``seen``: a path led through something that is not an object. The other bits are those of kinds,
1 << kind.
"""

JSON_DEPTH_MAX: Final = 1000
"""Limit of nested objects and arrays in a payload."""

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
"""Limit of nested blocks of arrays and maps, and of records that contain themselves, in a payload."""
FRAME_WORDS: Final = 4
"""Numbers that a walker keeps of each of them: items left, or where to return to; the end of a block (-1: not given);
the position of its size. Of a message of Protobuf the end, node and next field of the one around it, and the field that
it is a group of (-1: it has a length)."""
EMPTY_ITEMS_MAX: Final = 1000
"""Limit of items without bytes, such as nulls in an array, in a payload: their number alone would take memory."""

(
    KIND_INT64, KIND_INT32, KIND_UINT32, KIND_SINT32, KIND_SINT64, KIND_BOOL, KIND_ENUM, KIND_FIXED32, KIND_SFIXED32,
    KIND_FIXED64, KIND_STRING, KIND_BYTES, KIND_MESSAGE, KIND_GROUP,
) = range(14)  # fmt: skip
"""Kinds of fields of Protobuf by how their bytes become a number: KIND_INT64 is also uint64, KIND_FIXED32 also float,
KIND_FIXED64 all of 64 bits. Up to KIND_ENUM they are varints, from KIND_STRING on they have a length, but for
KIND_GROUP, a message between two tags."""
(
    FIELD_TAG, FIELD_KIND, FIELD_NODE, FIELD_LEAF, FIELD_REPEATED, FIELD_CLEARS, FIELD_CLEARS_END, FIELD_NUMBERS,
    FIELD_NUMBERS_END,
) = range(9)  # fmt: skip
"""Columns of a field: its number and wire type as the tag before a single value; kind; the node of the message in it
and the leaf of its value (-1: none); whether it is repeated; what it clears, as one of a oneof; the numbers of a closed
enum, if there are any."""
FIELD_COLUMNS: Final = 9
MESSAGE_FIELDS, MESSAGE_FIELDS_END, MESSAGE_SLOT, MESSAGE_DEFAULTS, MESSAGE_DEFAULTS_END = range(5)
"""Columns of a node, a message on the way of a path or not: its fields, in the order of their numbers; its slot, if
paths lead through it (else -1); the defaults of its leaves."""
MESSAGE_COLUMNS: Final = 5
DEFAULT_LEAF, DEFAULT_START, DEFAULT_LENGTH = range(3)
"""Columns of a default: leaf, start and length of a field without presence that is not in a message which is there."""
DEFAULT_COLUMNS: Final = 3
DENSE_NUMBERS: Final = 32
"""Fields with lower numbers are found directly, others by search."""
PROTOBUF_DEPTH_MAX: Final = 1000
"""Limit of nested messages and groups in a payload."""
WIRE_VARINT, WIRE_FIXED64, WIRE_SIZED, WIRE_GROUP, WIRE_GROUP_END, WIRE_FIXED32 = range(6)
SIZE_BYTES_MAX: Final = 5
"""Size limit of a tag or a length."""
SIZE_MAX: Final = (1 << 31) - 1
