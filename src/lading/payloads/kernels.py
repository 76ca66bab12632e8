"""JSON payloads in bulk: each is validated whole, and the values of wanted paths are located; see ``fallback.py``.

In bounds: payloads are inside ``data``, as the caller has checked. Each load of a byte comes after a test that it is
before ``end``, the end of its payload, or is inside a value that was validated before; words of 8 bytes are tested
against the end of ``data``. Tables of paths are made by ``paths.py``, which keeps what they refer to inside them.
"""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Ints, Kinds, KindTable, Longs, Table
from lading.kernels.signature import (
    BYTES,
    KINDS,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_INTS,
    OUT_KIND_TABLE,
    OUT_KINDS,
    OUT_LONGS,
    OUT_TABLE,
    TABLE,
    Address,
    int64,
    kernel,
    routine,
    step,
    uint64,
)

from ..kernels.json_text import skip_space, unescape
from ..kernels.memory import base, load8, load64, memcpy, store8, trailing_zeros
from ..kernels.text import find_bad_utf8
from .layout import (
    ABSENT,
    BROKEN,
    JSON_DEPTH_MAX,
    JSON_ESCAPED,
    JSON_FALSE,
    JSON_INTEGER,
    JSON_NESTED,
    JSON_NOTHING,
    JSON_PLAIN,
    JSON_REAL,
    JSON_TRUE,
    JSON_WIDE,
    KEY_LEAF,
    KEY_NODE,
    KEY_PLAIN,
    KEY_SIZE,
    KEY_START,
    KEY_WORD,
    NODE_KEYS,
    NODE_KEYS_END,
    NODE_LEAF,
    NODE_LEAVES,
    NODE_LEAVES_END,
    NODE_OWN_KEY,
    NODE_PARENT,
    NULL,
    SEEN_BROKEN,
    VERDICT_CONTROL,
    VERDICT_CUT,
    VERDICT_DEPTH,
    VERDICT_EMPTY,
    VERDICT_ESCAPE,
    VERDICT_GOOD,
    VERDICT_NOT_OBJECT,
    VERDICT_NUMBER,
    VERDICT_SYNTAX,
    VERDICT_TOMBSTONE,
    VERDICT_TRAILING,
    VERDICT_UTF8,
)

_QUOTE, _BACKSLASH, _COLON, _COMMA, _OBJECT, _ARRAY, _OBJECT_END, _ARRAY_END = b'"\\:,{[}]'
_0, _9, _DOT, _MINUS, _PLUS, _SLASH, _SPACE = b"09.-+/ "
_A, _B, _E, _F, _L, _N, _R, _S, _T, _U = b"abeflnrstu"
_LOWER = 32
_LOW, _HIGH, _SPACES = uint64(0x0101010101010101), uint64(0x8080808080808080), uint64(0x2020202020202020)
_QUOTES, _SLASHES = uint64(0x2222222222222222), uint64(0x5C5C5C5C5C5C5C5C)
_ZERO, _ONES = uint64(0), uint64(0xFFFFFFFFFFFFFFFF)


@step
def _string_end(data: Address, at: int, end: int, limit: int) -> tuple[int, int]:
    """Return the position of the closing quote and the kind; for an error its position and the negative verdict."""
    start = at
    high = _ZERO
    escaped = False
    while at < end:
        if at + 8 <= limit:
            word = load64(data, at)
            quotes, slashes = word ^ _QUOTES, word ^ _SLASHES
            # a false match after a true one does not matter: only the first is used
            stop = (((quotes - _LOW) & ~quotes) | ((slashes - _LOW) & ~slashes) | ((word - _SPACES) & ~word)) & _HIGH
            if stop == _ZERO:
                high |= word
                at += 8
                continue
            skip = trailing_zeros(stop) >> uint64(3)
            high |= word & ~(_ONES << (skip << uint64(3)))
            at += int64(skip)
            if at >= end:
                break
        here = int64(load8(data, at))
        if here == _QUOTE:
            if high & _HIGH != _ZERO:
                wrong = find_bad_utf8(data, start, at - start)
                if wrong >= 0:
                    return wrong, -VERDICT_UTF8
            return at, JSON_ESCAPED if escaped else JSON_PLAIN if high & _HIGH == _ZERO else JSON_WIDE
        if here == _BACKSLASH:
            if at + 1 >= end:
                break
            kind = int64(load8(data, at + 1))
            if kind == _U:
                for digit in range(2, 6):
                    if at + digit >= end:
                        return end, -VERDICT_CUT
                    letter = int64(load8(data, at + digit))
                    if not (_0 <= letter <= _9 or _A <= (letter | _LOWER) <= _F):
                        return at, -VERDICT_ESCAPE
                at += 6
            elif kind in (_QUOTE, _BACKSLASH, _SLASH) or kind in (_B, _F, _N, _R, _T):
                at += 2
            else:
                return at, -VERDICT_ESCAPE
            escaped = True
        elif here < _SPACE:
            return at, -VERDICT_CONTROL
        else:
            high |= uint64(here)
            at += 1
    return end, -VERDICT_CUT


@step
def _digits_end(data: Address, at: int, end: int) -> int:
    while at < end and _0 <= int64(load8(data, at)) <= _9:
        at += 1
    return at


@step
def _word_end(data: Address, at: int, end: int, second: int, third: int, fourth: int, kind: int) -> tuple[int, int]:
    """Return the end of the rest of a word, which continues with these letters."""
    if at + 1 < end and int64(load8(data, at + 1)) != second:
        return at + 1, -VERDICT_SYNTAX
    if at + 2 < end and int64(load8(data, at + 2)) != third:
        return at + 2, -VERDICT_SYNTAX
    if at + 3 < end and int64(load8(data, at + 3)) != fourth:
        return at + 3, -VERDICT_SYNTAX
    if at + 4 > end:
        return end, -VERDICT_CUT
    return at + 4, kind


@step
def _scalar_end(data: Address, at: int, end: int) -> tuple[int, int]:
    """Return the end of a number or word and its kind; for an error its position and the negative verdict."""
    here = int64(load8(data, at))
    if here == _MINUS or _0 <= here <= _9:
        kind = JSON_INTEGER
        first = at + 1 if here == _MINUS else at
        at = _digits_end(data, first, end)
        if at == first:
            return at, -(VERDICT_CUT if at == end else VERDICT_NUMBER)
        if at > first + 1 and int64(load8(data, first)) == _0:
            return first + 1, -VERDICT_NUMBER
        if here == _MINUS and int64(load8(data, first)) == _0:
            kind = JSON_REAL
        if at < end and int64(load8(data, at)) == _DOT:
            kind, first = JSON_REAL, at + 1
            at = _digits_end(data, first, end)
            if at == first:
                return at, -(VERDICT_CUT if at == end else VERDICT_NUMBER)
        if at < end and (int64(load8(data, at)) | _LOWER) == _E:
            at += 1
            if at < end and (int64(load8(data, at)) == _PLUS or int64(load8(data, at)) == _MINUS):
                at += 1
            kind, first = JSON_REAL, at
            at = _digits_end(data, first, end)
            if at == first:
                return at, -(VERDICT_CUT if at == end else VERDICT_NUMBER)
        return at, kind
    if here == _T:
        return _word_end(data, at, end, _R, _U, _E, JSON_TRUE)
    if here == _N:
        return _word_end(data, at, end, _U, _L, _L, JSON_NOTHING)
    if here == _F:
        at, kind = _word_end(data, at, end, _A, _L, _S, JSON_FALSE)
        if kind < 0:
            return at, kind
        if at == end:
            return end, -VERDICT_CUT
        return (at + 1, JSON_FALSE) if int64(load8(data, at)) == _E else (at, -VERDICT_SYNTAX)
    return at, -VERDICT_SYNTAX


@routine
def _name_end(data: Address, at: int, end: int, limit: int) -> tuple[int, int]:
    """Return the position after the name and colon that come next."""
    at = skip_space(data, at, end)
    if at >= end:
        return end, -VERDICT_CUT
    if int64(load8(data, at)) != _QUOTE:
        return at, -VERDICT_SYNTAX
    at, found = _string_end(data, at + 1, end, limit)
    if found < 0:
        return at, found
    at = skip_space(data, at + 1, end)
    if at >= end:
        return end, -VERDICT_CUT
    if int64(load8(data, at)) != _COLON:
        return at, -VERDICT_SYNTAX
    return at + 1, found


@routine
def _find_nested_end(data: Address, at: int, end: int, limit: int, depth: int, stack: Address) -> tuple[int, int]:
    """Return the position after the object or array that begins here; ``depth`` others are open around it."""
    outside = depth
    while True:
        at = skip_space(data, at, end)
        if at >= end:
            return end, -VERDICT_CUT
        here = int64(load8(data, at))
        if here in (_OBJECT, _ARRAY):
            if depth == JSON_DEPTH_MAX:
                return at, -VERDICT_DEPTH
            store8(stack, depth, here)
            depth += 1
            at = skip_space(data, at + 1, end)
            if at >= end:
                return end, -VERDICT_CUT
            if int64(load8(data, at)) != here + 2:
                if here == _OBJECT:
                    at, found = _name_end(data, at, end, limit)
                    if found < 0:
                        return at, found
                continue
            at += 1
            depth -= 1
        else:
            if here == _QUOTE:
                at, found = _string_end(data, at + 1, end, limit)
                if found < 0:
                    return at, found
                at += 1
            else:
                at, found = _scalar_end(data, at, end)
                if found < 0:
                    return at, found
        more = False
        while depth > outside and not more:
            at = skip_space(data, at, end)
            if at >= end:
                return end, -VERDICT_CUT
            here = int64(load8(data, at))
            opener = int64(load8(stack, depth - 1))
            if here == _COMMA:
                at += 1
                if opener == _OBJECT:
                    at, found = _name_end(data, at, end, limit)
                    if found < 0:
                        return at, found
                more = True
            elif here == opener + 2:
                at += 1
                depth -= 1
            else:
                return at, -VERDICT_SYNTAX
        if depth == outside:
            return at, JSON_NESTED


@step
def _value_end(data: Address, at: int, end: int, limit: int, depth: int, stack: Address) -> tuple[int, int]:
    """Return the end of the value that begins here and its kind; for an error its position and the negative verdict."""
    if at >= end:
        return end, -VERDICT_CUT
    here = int64(load8(data, at))
    if here == _QUOTE:
        at, found = _string_end(data, at + 1, end, limit)
        return (at + 1 if found > 0 else at), found
    if here in (_OBJECT, _ARRAY):
        return _find_nested_end(data, at, end, limit, depth, stack)
    return _scalar_end(data, at, end)


@step
def _first_word(data: Address, at: int, size: int, limit: int) -> int:
    """Return the first eight bytes of a name, with zeros after a shorter one."""
    if at + 8 <= limit:
        word = uint64(load64(data, at))
        return word if size >= 8 else word & ~(_ONES << uint64(8 * size))
    word = _ZERO
    for place in range(min(size, 8)):
        word |= uint64(load8(data, at + place)) << uint64(8 * place)
    return word


@step
def _is_key(data: Address, at: int, size: int, word: int, keys: Table, key: int, names: Address) -> bool:
    if size != keys[key, KEY_SIZE] or int64(word) != keys[key, KEY_WORD]:
        return False
    start = keys[key, KEY_START]
    for place in range(8, size):  # noqa: SIM110
        if load8(data, at + place) != load8(names, start + place):
            return False
    return True


@step
def _find_expected_end(data: Address, at: int, end: int, limit: int, keys: Table, key: int, names: Address) -> int:
    """Return the position after the colon if the name of ``key`` is here, in its shortest form, else -1."""
    size = keys[key, KEY_SIZE]
    # a quote, the name, a quote and a colon
    stop = at + size + 3
    if stop > end or at + 9 > limit or keys[key, KEY_PLAIN] != 1 or int64(load8(data, at)) != _QUOTE:
        return int64(-1)
    word = uint64(load64(data, at + 1))
    if size < 8:
        word &= ~(_ONES << uint64(8 * size))
    if int64(word) != keys[key, KEY_WORD] or int64(load8(data, stop - 2)) != _QUOTE:
        return int64(-1)
    start = keys[key, KEY_START]
    for place in range(8, size):
        if load8(data, at + 1 + place) != load8(names, start + place):
            return int64(-1)
    return stop if int64(load8(data, stop - 1)) == _COLON else int64(-1)


@routine
def _walk_object(
    data: Address, at: int, end: int, limit: int, nodes: Table, keys: Table, names: Address, names_size: int,
    row: int, start: Table, length: Table, kind: KindTable, stack: Address, name_room: Address, after: Longs,
    seen: Longs,
) -> tuple[int, int]:  # fmt: skip
    """Return the verdict on one payload and the position of its error; locates the values of ``row``."""
    at = skip_space(data, at, end)
    if at >= end:
        return VERDICT_EMPTY, at
    if int64(load8(data, at)) != _OBJECT:
        first = at
        at, found = _value_end(data, at, end, limit, 0, stack)
        if found < 0:
            return -found, at
        at = skip_space(data, at, end)
        return (VERDICT_NOT_OBJECT, first) if at == end else (VERDICT_TRAILING, at)
    node, depth = int64(0), 1
    at = skip_space(data, at + 1, end)
    # the key that came after this one in an earlier payload, or first in its object
    place = int64(0)
    no_member = at < end and int64(load8(data, at)) == _OBJECT_END
    while True:
        if not no_member:
            if at >= end:
                return VERDICT_CUT, end
            hit = after[place]
            name_end = int64(-1)
            if hit >= 0:
                name_end = _find_expected_end(data, at, end, limit, keys, hit, names)
            if name_end >= 0:
                at = skip_space(data, name_end, end)
                if at >= end:
                    return VERDICT_CUT, end
            else:
                if int64(load8(data, at)) != _QUOTE:
                    return VERDICT_SYNTAX, at
                name = at + 1
                at, found = _string_end(data, name, end, limit)
                if found < 0:
                    return -found, at
                name_stop, name_size = at, at - name
                at = skip_space(data, at + 1, end)
                if at >= end:
                    return VERDICT_CUT, end
                if int64(load8(data, at)) != _COLON:
                    return VERDICT_SYNTAX, at
                at = skip_space(data, at + 1, end)
                if at >= end:
                    return VERDICT_CUT, end
                hit = int64(-1)
                source, source_limit = data, limit
                if found == JSON_ESCAPED:
                    # in bounds: the room is as long as all names together, and a longer name is not a key
                    name_size = unescape(0, 0, data, name, name_stop)
                    if 0 <= name_size <= names_size:
                        unescape(name_room, 0, data, name, name_stop)
                    source, source_limit, name = name_room, 0, int64(0)
                if 0 <= name_size <= names_size:
                    word = _first_word(source, name, name_size, source_limit)
                    for key in range(nodes[node, NODE_KEYS], nodes[node, NODE_KEYS_END]):
                        if _is_key(source, name, name_size, word, keys, key, names):
                            hit = int64(key)
                            after[place] = hit
                            break
            if hit >= 0:
                place = nodes.shape[0] + hit
            inner = keys[hit, KEY_NODE] if hit >= 0 else int64(-1)
            if inner >= 0:
                # of several members with one name the last one counts, with everything in it
                for leaf in range(nodes[inner, NODE_LEAVES], nodes[inner, NODE_LEAVES_END]):
                    length[leaf, row], kind[leaf, row] = ABSENT, JSON_NOTHING
                if int64(load8(data, at)) == _OBJECT:
                    if nodes[inner, NODE_LEAF] >= 0:
                        start[nodes[inner, NODE_LEAF], row] = at
                    node = inner
                    place = node
                    depth += 1
                    at = skip_space(data, at + 1, end)
                    no_member = at < end and int64(load8(data, at)) == _OBJECT_END
                    continue
            value = at
            at, found = _value_end(data, at, end, limit, depth, stack)
            if found < 0:
                return -found, at
            if hit >= 0:
                if inner >= 0:
                    for leaf in range(nodes[inner, NODE_LEAVES], nodes[inner, NODE_LEAVES_END]):
                        length[leaf, row] = NULL if found == JSON_NOTHING else BROKEN
                        seen[leaf] |= SEEN_BROKEN
                leaf = keys[hit, KEY_LEAF]
                if leaf >= 0:
                    quotes = 1 if JSON_PLAIN <= found <= JSON_ESCAPED else 0
                    start[leaf, row] = value + quotes
                    length[leaf, row] = NULL if found == JSON_NOTHING else at - value - 2 * quotes
                    kind[leaf, row] = found
                    seen[leaf] |= 1 << found
        no_member = False
        while True:
            at = skip_space(data, at, end)
            if at >= end:
                return VERDICT_CUT, end
            sign = int64(load8(data, at))
            if sign != _COMMA and sign != _OBJECT_END:
                return VERDICT_SYNTAX, at
            at += 1
            if sign == _COMMA:
                at = skip_space(data, at, end)
                break
            if node == 0:
                at = skip_space(data, at, end)
                return (VERDICT_GOOD, at) if at == end else (VERDICT_TRAILING, at)
            leaf = nodes[node, NODE_LEAF]
            if leaf >= 0:
                length[leaf, row] = at - start[leaf, row]
                kind[leaf, row] = JSON_NESTED
                seen[leaf] |= 1 << JSON_NESTED
            place = nodes.shape[0] + nodes[node, NODE_OWN_KEY]
            node = nodes[node, NODE_PARENT]
            depth -= 1


@kernel(
    LONG(
        BYTES, LONGS, LONGS, TABLE, TABLE, BYTES,
        OUT_BYTES, OUT_BYTES, OUT_TABLE, OUT_TABLE, OUT_KIND_TABLE, OUT_BYTES, OUT_LONGS,
        OUT_LONGS, OUT_LONGS,
    )
)  # fmt: skip
def walk_json(
    data: Bytes,
    begin: Longs,
    size: Longs,
    nodes: Table,
    keys: Table,
    names: Bytes,
    stack: Bytes,
    name_room: Bytes,
    start: Table,
    length: Table,
    kind: KindTable,
    verdict: Bytes,
    position: Longs,
    after: Longs,
    seen: Longs,
) -> int:
    """See ``fallback.walk_json``."""
    source, limit, leaves = base(data), data.size, length.shape[0]
    bad = 0
    for row in range(size.size):
        for leaf in range(leaves):
            start[leaf, row] = 0
            length[leaf, row] = ABSENT
            kind[leaf, row] = JSON_NOTHING
        position[row] = 0
        if size[row] < 0:
            verdict[row] = VERDICT_TOMBSTONE
            continue
        at = begin[row]
        found, stop = _walk_object(
            source, at, at + size[row], limit, nodes, keys, base(names), names.size, row, start, length, kind,
            base(stack), base(name_room), after, seen,
        )  # fmt: skip
        verdict[row] = found
        if found != VERDICT_GOOD:
            position[row] = stop - at
            bad += 1
            for leaf in range(leaves):
                length[leaf, row] = ABSENT
                kind[leaf, row] = JSON_NOTHING
    return bad


@kernel(
    LONG(
        BYTES, LONGS, LONGS, KINDS, LONG, OUT_BYTES, OUT_INTS,
        OUT_LONGS, OUT_LONGS, OUT_KINDS, OUT_LONGS, OUT_LONGS, OUT_KINDS,
    )
)  # fmt: skip
def list_items(
    data: Bytes,
    start: Longs,
    length: Longs,
    kind: Kinds,
    opener: int,
    stack: Bytes,
    ends: Ints,
    name_start: Longs,
    name_length: Longs,
    name_kind: Kinds,
    item_start: Longs,
    item_length: Longs,
    item_kind: Kinds,
) -> int:
    """See ``fallback.list_items``."""
    source, limit = base(data), data.size
    count = int64(0)
    ends[0] = 0
    for row in range(length.size):
        # in bounds: values were validated by ``walk_json``, so that each of these positions is inside of one
        if length[row] > 0 and kind[row] == JSON_NESTED and int64(load8(source, start[row])) == opener:
            end = start[row] + length[row]
            at = skip_space(source, start[row] + 1, end)
            while int64(load8(source, at)) != opener + 2:
                place = min(count, item_start.size - 1)
                if opener == _OBJECT:
                    name = at + 1
                    at, found = _string_end(source, name, end, limit)
                    name_start[place], name_length[place], name_kind[place] = name, at - name, found
                    at = skip_space(source, skip_space(source, at + 1, end) + 1, end)
                value = at
                at, found = _value_end(source, at, end, limit, 0, base(stack))
                quotes = 1 if JSON_PLAIN <= found <= JSON_ESCAPED else 0
                item_start[place], item_kind[place] = value + quotes, found
                item_length[place] = NULL if found == JSON_NOTHING else at - value - 2 * quotes
                count += 1
                at = skip_space(source, at, end)
                if int64(load8(source, at)) == _COMMA:
                    at = skip_space(source, at + 1, end)
        ends[row + 1] = count
    return count


@kernel(LONG(BYTES, LONGS, LONGS, KINDS, OUT_BYTES, OUT_LONGS, OUT_LONGS))
def unescape_strings(data: Bytes, start: Longs, length: Longs, kind: Kinds, out: Bytes, to: Longs, size: Longs) -> int:
    """See ``fallback.unescape_strings``."""
    source, target = base(data), base(out)
    end = int64(0)
    for row in range(length.size):
        to[row], size[row] = end, length[row]
        if length[row] > 0:
            # in bounds: ``out`` has room for all values, and none becomes longer
            if kind[row] == JSON_ESCAPED:
                held = unescape(target, end, source, start[row], start[row] + length[row])
                size[row] = held if held >= 0 else BROKEN
            else:
                memcpy(target, end, source, start[row], length[row])
            end += max(size[row], 0)
    return end
