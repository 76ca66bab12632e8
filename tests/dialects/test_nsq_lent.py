"""Reading sockets whose next bytes are known, kernel and fallback: what is one whole publication, and what is not."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import select
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from lading.dialects.nsq import lent_fallback
from lading.kernels import engine, lent_layout, machine_code, socket_fallback
from lading.kernels.lent_layout import (
    BUSY,
    COUNT,
    ENDED,
    HEARD_US,
    LINE_BYTES_MAX,
    OTHER_COLUMNS,
    PASS_BYTES_MAX,
    READ_BYTES_MAX,
    ROW_COLUMNS,
    SCRATCH_BYTES,
    UNKNOWN,
)
from tests.endpoints.nsq_client import pub

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="only Linux has epoll")

LENT: Final = "lading.dialects.nsq.lent_kernels"
SEND: Final = "lading.kernels.socket_kernels"
LINES: Final = (b"PUB t\n", b"PUB a.longer_topic 3\n")
WHOLE: Final = -1
"""State of a socket whose read was one whole publication."""
NOW_US: Final = 7_000_000
Seen = dict[int, tuple[int, bytes]]
"""State and bytes, by the index of the client."""


class Kernels(NamedTuple):
    receive_publications: Any
    send_responses: Any
    receive_ready: Any


def load(name: str) -> Kernels:
    if name == "fallback":
        return Kernels(
            lent_fallback.receive_publications, socket_fallback.send_responses, socket_fallback.receive_ready
        )
    sockets = engine.load(SEND)
    return Kernels(engine.load(LENT).receive_publications, sockets.send_responses, sockets.receive_ready)


@pytest.fixture(params=["kernel", "fallback"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return load(request.param)


class Sockets:
    """Lent sockets, the clients at their other ends, and the arrays of a pass over them."""

    def __init__(self, lines: Sequence[int], sockets_max: int = 16) -> None:
        """``lines``: the number of each client's line."""
        self.epoll = select.epoll()
        pairs = [socket.socketpair() for _ in lines]
        self.ours, self.clients = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self.rows = np.zeros((max(each.fileno() for each in self.ours) + 1, ROW_COLUMNS), np.int64)
        self.index = {each.fileno(): number for number, each in enumerate(self.ours)}
        for line, each in zip(lines, self.ours, strict=True):
            each.setblocking(False)
            self.epoll.register(each.fileno(), select.EPOLLIN)
            self.rows[each.fileno()] = 1, line, 0, 0, 0
        self.text = np.zeros(len(LINES) * LINE_BYTES_MAX, np.uint8)
        for number, text in enumerate(LINES):
            self.text[number * LINE_BYTES_MAX :][: len(text)] = np.frombuffer(text, np.uint8)
        self.sizes = np.array([len(line) for line in LINES])
        self.events = np.zeros(sockets_max * lent_layout.EVENT_BYTES, np.uint8)
        self.scratch = np.zeros(SCRATCH_BYTES, np.uint8)
        self.files = np.zeros(sockets_max, np.int64)
        self.spans = np.zeros((sockets_max, 2), np.int64)
        self.others = np.zeros((sockets_max, OTHER_COLUMNS), np.int64)

    def row(self, client: int) -> Any:
        return self.rows[self.ours[client].fileno()]

    def call(self, kernels: Kernels) -> tuple[int, int, int, int, int]:
        result: tuple[int, int, int, int, int] = kernels.receive_publications(
            self.epoll.fileno(), self.events, self.rows, self.text, self.sizes, self.scratch, self.files, self.spans,
            self.others, NOW_US,
        )  # fmt: skip
        return result

    def look(self, kernels: Kernels) -> tuple[Seen, int]:
        """Serve the sockets once. Returns what was found, and the line that all publications have, or -1."""
        taken, rest, size, line, _ = self.call(kernels)
        spans = self.spans[:taken].tolist()
        # one after the other, from the front on
        assert [start for start, _ in spans] == [0, *(end for _, end in spans)][:taken]
        assert size == (spans[-1][1] if spans else 0)
        found: list[tuple[int, int, bytes]] = [
            (file, WHOLE, self.scratch[start:end].tobytes())
            for file, (start, end) in zip(self.files[:taken].tolist(), spans, strict=True)
        ]
        found += [
            (file, state, self.scratch[start:end].tobytes()) for file, start, end, state in self.others[:rest].tolist()
        ]
        assert len({file for file, _, _ in found}) == len(found)
        return {self.index[file]: (state, data) for file, state, data in found}, line

    def close(self) -> None:
        for each in (*self.ours, *self.clients):
            each.close()
        self.epoll.close()


@pytest.fixture
def open_sockets() -> Iterator[Callable[..., Sockets]]:
    opened: list[Sockets] = []

    def open_them(*arguments: Any) -> Sockets:
        opened.append(Sockets(*arguments))
        return opened[-1]

    yield open_them
    for each in opened:
        each.close()


def classify(data: bytes, line: bytes) -> int:
    """What nsqd's specification says: a line, a size of four bytes, and as many bytes; nothing else in the read."""
    if not data.startswith(line) or len(data) < len(line) + 4:
        return UNKNOWN
    (size,) = struct.unpack_from(">i", data, len(line))
    return WHOLE if size > 0 and len(data) == len(line) + 4 + size else UNKNOWN


def test_publications_of_several_sockets_lie_side_by_side(kernels: Kernels, open_sockets: Any) -> None:
    sockets = open_sockets([0, 0, 0])
    bodies = [b"one", b"two and more", b"3"]
    for client, body in zip(sockets.clients, bodies, strict=True):
        client.sendall(pub("t", body))
    seen, line = sockets.look(kernels)
    assert seen == {number: (WHOLE, pub("t", body)) for number, body in enumerate(bodies)}
    assert line == 0
    assert [(row[COUNT], row[HEARD_US]) for row in map(sockets.row, range(3))] == [(1, NOW_US)] * 3
    assert sockets.look(kernels) == ({}, -1)


def test_several_lines_are_told(kernels: Kernels, open_sockets: Any) -> None:
    sockets = open_sockets([0, 1])
    sockets.clients[0].sendall(pub("t", b"x"))
    sockets.clients[1].sendall(LINES[1] + b"\0\0\0\2yz")
    seen, line = sockets.look(kernels)
    assert (len(seen), line) == (2, -1)


@pytest.mark.parametrize(
    "data",
    [
        pub("t", b"body")[:-1], pub("t", b"body") + b"P", pub("t", b"a") * 2, pub("u", b"body"), b"NOP\n", LINES[0],
        LINES[0] + b"\0\0\0\0", LINES[0] + b"\xff\xff\xff\xffx", LINES[0] + b"\0\0\0", b"P", LINES[1] + b"\0\0\0\1x",
    ],
)  # fmt: skip
def test_all_else_is_given_back_as_it_came(kernels: Kernels, open_sockets: Any, data: bytes) -> None:
    sockets = open_sockets([0])
    sockets.clients[0].sendall(data)
    assert sockets.look(kernels) == ({0: (UNKNOWN, data)}, -1)
    assert sockets.row(0)[COUNT] == 0


def test_a_socket_that_waits_for_its_response_is_not_read(kernels: Kernels, open_sockets: Any) -> None:
    sockets = open_sockets([0])
    sockets.row(0)[lent_layout.OWED] = 5
    sockets.clients[0].sendall(pub("t", b"x"))
    assert sockets.look(kernels) == ({0: (BUSY, b"")}, -1)
    assert sockets.ours[0].recv(100) == pub("t", b"x")


def test_the_end_of_a_client_and_a_reset(kernels: Kernels, open_sockets: Any) -> None:
    sockets = open_sockets([0, 0])
    sockets.clients[0].sendall(pub("t", b"last"))
    sockets.clients[0].shutdown(socket.SHUT_WR)
    # what one side did not read when it closes is a reset for the other
    sockets.ours[1].send(b"unread")
    sockets.clients[1].close()
    assert sockets.look(kernels)[0] == {0: (WHOLE, pub("t", b"last")), 1: (ENDED, b"")}
    assert sockets.look(kernels)[0][0] == (ENDED, b"")


def test_a_socket_that_is_not_lent_is_not_read(kernels: Kernels, open_sockets: Any) -> None:
    sockets = open_sockets([0, 0])
    sockets.row(0)[lent_layout.IS_LENT] = 0
    for client in sockets.clients:
        client.sendall(pub("t", b"x"))
    assert list(sockets.look(kernels)[0]) == [1]
    # nor is one without a row
    sockets.rows = sockets.rows[:1]
    assert sockets.look(kernels) == ({}, -1)
    assert sockets.ours[0].recv(100) == pub("t", b"x")


def test_what_is_longer_than_one_read_is_given_back(kernels: Kernels, open_sockets: Any) -> None:
    sockets = open_sockets([0])
    fits = pub("t", bytes(READ_BYTES_MAX - len(LINES[0]) - 4))
    sockets.clients[0].sendall(fits)
    assert sockets.look(kernels)[0] == {0: (WHOLE, fits)}
    sockets.clients[0].sendall(pub("t", bytes(READ_BYTES_MAX)))
    assert sockets.look(kernels)[0] == {0: (UNKNOWN, pub("t", bytes(READ_BYTES_MAX))[:READ_BYTES_MAX])}


def test_a_pass_reads_so_much_and_the_next_one_the_rest(kernels: Kernels, open_sockets: Any) -> None:
    count = 2 * PASS_BYTES_MAX // READ_BYTES_MAX
    sockets = open_sockets([0] * count, 64)
    sent = {}
    for number, client in enumerate(sockets.clients):
        data = pub("t", b"%d" % number + bytes(READ_BYTES_MAX - 40))
        # every second one is not whole
        sent[number] = data if number % 2 else data[:-1]
        client.sendall(sent[number])
    seen: Seen = {}
    for _ in range(3):
        found, _ = sockets.look(kernels)
        assert sum(len(data) for _, data in found.values()) <= PASS_BYTES_MAX + READ_BYTES_MAX
        assert not seen.keys() & found.keys()
        seen |= found
    assert seen == {number: (WHOLE if number % 2 else UNKNOWN, data) for number, data in sent.items()}


@pytest.mark.parametrize("name", ["events", "rows", "text", "scratch", "spans", "others"])
def test_arrays_without_room_are_refused_before_anything_is_read(
    kernels: Kernels, open_sockets: Any, name: str
) -> None:
    sockets = open_sockets([0])
    sockets.clients[0].sendall(pub("t", b"x"))
    array = getattr(sockets, name)
    setattr(sockets, name, np.ascontiguousarray(array[:, :-1]) if name == "rows" else array[:-1].copy())
    assert sockets.call(kernels) == (0, 0, 0, -1, -1)
    assert sockets.ours[0].recv(100) == pub("t", b"x")


def _choose_piece(chance: random.Random, line: bytes) -> bytes:
    body = chance.randbytes(chance.choice((1, 2, 3, 100, 1000)))
    whole = line + struct.pack(">i", len(body)) + body
    kind = chance.randrange(8)
    if kind < 3:
        return whole
    if kind == 3:
        return whole[: chance.randrange(1, len(whole) + 1)]
    if kind == 4:
        return whole * chance.randrange(2, 4)
    if kind == 5:
        damaged = bytearray(whole)
        damaged[chance.randrange(len(line) + 4)] ^= 1 << chance.randrange(8)
        return bytes(damaged)
    if kind == 6:
        return whole + chance.randbytes(chance.randrange(1, 20))
    return chance.randbytes(chance.randrange(1, 200))


def _fuzz(seed: int, rounds: int) -> int:
    """Send the same to the kernel and to the fallback, and hold both against the specification; how much was sent."""
    chance = random.Random(seed)
    lines = [chance.randrange(len(LINES)) for _ in range(6)]
    sides = {name: Sockets(lines) for name in ("kernel", "fallback")}
    sent_count = 0
    try:
        for _ in range(rounds):
            expected: Seen = {}
            for client in chance.sample(range(6), chance.randrange(1, 7)):
                is_owed = chance.random() < 0.1
                data = _choose_piece(chance, LINES[lines[client]])
                for sockets in sides.values():
                    sockets.clients[client].send(data)
                    sockets.row(client)[lent_layout.OWED] = int(is_owed)
                expected[client] = (BUSY, b"") if is_owed else (classify(data, LINES[lines[client]]), data)
                sent_count += 1
            met = {lines[client] for client, (state, _) in expected.items() if state == WHOLE}
            for name, sockets in sides.items():
                seen, line = sockets.look(load(name))
                assert seen == expected, (seed, name)
                assert line == (met.pop() if len(met) == 1 else -1) or name == "fallback"
                for client, (state, _) in expected.items():
                    if state == BUSY:
                        sockets.row(client)[lent_layout.OWED] = 0
                        sockets.ours[client].recv(1 << 16)
        by_client = [[sockets.row(client).tolist() for client in range(6)] for sockets in sides.values()]
        assert by_client[0] == by_client[1]
    finally:
        for sockets in sides.values():
            sockets.close()
    return sent_count


@pytest.mark.timeout(1200)
def test_kernel_and_fallback_read_the_same(full: bool) -> None:
    wanted, sent = (1_000_000, 0) if full else (300, 0)
    seed = 1 if full else random.randrange(1 << 30)
    while sent < wanted:
        sent += _fuzz(seed, 5_000 if full else 100)
        seed += 1
    if full:
        print(f"{sent} inputs: the same")


# -- reading without a protocol


def _read(sockets: Sockets, kernels: Kernels) -> tuple[dict[int, bytes], dict[int, int], int]:
    """Read the sockets once: bytes and states of the others by client, and the number of ready sockets."""
    count, rest, ready = kernels.receive_ready(
        sockets.epoll.fileno(), sockets.events, sockets.rows, sockets.scratch, sockets.files, sockets.spans,
        sockets.others,
    )  # fmt: skip
    files, spans = sockets.files[:count].tolist(), sockets.spans[:count].tolist()
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][:count]
    read = {
        sockets.index[file]: sockets.scratch[start:end].tobytes()
        for file, (start, end) in zip(files, spans, strict=True)
    }
    others = {sockets.index[file]: state for file, _, _, state in sockets.others[:rest].tolist()}
    assert not read.keys() & others.keys()
    return read, others, ready


def test_all_that_is_ready_is_read_once(kernels: Kernels, open_sockets: Any) -> None:
    sockets = open_sockets([0] * 6)
    long = bytes(range(256)) * (READ_BYTES_MAX // 256 + 1)
    for client, data in zip(sockets.clients, (b"a", long, b"late", b"not lent"), strict=False):
        client.sendall(data)
    sockets.row(2)[lent_layout.OWED] = 5
    sockets.row(3)[lent_layout.IS_LENT] = 0
    sockets.clients[4].shutdown(socket.SHUT_WR)
    read, others, ready = _read(sockets, kernels)
    assert (read, others) == ({0: b"a", 1: long[:READ_BYTES_MAX]}, {2: BUSY, 4: ENDED})
    assert ready == 5
    assert _read(sockets, kernels)[0] == {1: long[READ_BYTES_MAX:]}
    assert [sockets.ours[client].recv(100) for client in (2, 3)] == [b"late", b"not lent"]
    # one without a row is not read
    sockets.rows = sockets.rows[:1]
    sockets.clients[0].sendall(b"b")
    assert _read(sockets, kernels)[:2] == ({}, {})


def test_a_pass_reads_a_bounded_amount(kernels: Kernels, open_sockets: Any) -> None:
    count = 2 * PASS_BYTES_MAX // READ_BYTES_MAX
    sockets = open_sockets([0] * count, 64)
    for client in sockets.clients:
        client.sendall(bytes(READ_BYTES_MAX))
    seen: dict[int, bytes] = {}
    for _ in range(3):
        read, _, _ = _read(sockets, kernels)
        assert sum(map(len, read.values())) <= PASS_BYTES_MAX + READ_BYTES_MAX
        assert not seen.keys() & read.keys()
        seen |= read
    assert len(seen) == count


@pytest.mark.parametrize("name", ["events", "rows", "scratch", "spans", "others"])
def test_nothing_is_read_into_arrays_without_room(kernels: Kernels, open_sockets: Any, name: str) -> None:
    sockets = open_sockets([0])
    sockets.clients[0].sendall(b"x")
    array = getattr(sockets, name)
    setattr(sockets, name, np.ascontiguousarray(array[:, :-1]) if name == "rows" else array[:-1].copy())
    assert _read(sockets, kernels) == ({}, {}, -1)
    assert sockets.ours[0].recv(100) == b"x"


# -- responses


def test_a_response_to_all(kernels: Kernels, open_sockets: Any) -> None:
    sockets = open_sockets([0] * 3)
    unsent = np.zeros((3, 2), np.int64)
    files = np.array([each.fileno() for each in sockets.ours])
    assert kernels.send_responses(files[:2], np.frombuffer(b"response", np.uint8), 8, unsent) == 0
    assert [client.recv(100) for client in sockets.clients[:2]] == [b"response"] * 2
    sockets.clients[2].setblocking(False)
    with pytest.raises(BlockingIOError):
        sockets.clients[2].recv(100)
    assert kernels.send_responses(files, np.frombuffer(b"response", np.uint8), 8, unsent[:2]) == -1


def test_a_response_to_each(kernels: Kernels, open_sockets: Any) -> None:
    sockets = open_sockets([0] * 3)
    unsent = np.zeros((3, 2), np.int64)
    files, data = np.array([each.fileno() for each in sockets.ours]), np.frombuffer(b"one.two.3rd.", np.uint8)
    # an array that has less than a response for each is refused before anything is sent
    assert kernels.send_responses(files, data[:11], 4, unsent) == -1
    assert kernels.send_responses(files, data, 4, unsent) == 0
    assert [client.recv(100) for client in sockets.clients] == [b"one.", b"two.", b"3rd."]
    sockets.clients[1].close()
    assert kernels.send_responses(files, data, 4, unsent) == 1
    assert unsent[0].tolist() == [1, 0]
    assert sockets.clients[2].recv(100) == b"3rd."


def test_who_does_not_read_or_is_gone_is_named(kernels: Kernels, open_sockets: Any) -> None:
    sockets = open_sockets([0] * 4)
    files = np.array([each.fileno() for each in sockets.ours])
    # nothing fits, a part fits, gone
    while True:
        try:
            sockets.ours[0].send(bytes(1000))
        except BlockingIOError:
            break
    data = np.frombuffer(bytes(8 << 20), np.uint8)
    sockets.clients[2].close()
    unsent = np.zeros((4, 2), np.int64)
    assert kernels.send_responses(files[:3], data, data.size, unsent) == 3
    assert unsent[:3, 0].tolist() == [0, 1, 2]
    assert unsent[0, 1] == unsent[2, 1] == 0
    got = 0
    sockets.clients[1].setblocking(False)
    while got < unsent[1, 1]:
        got += len(sockets.clients[1].recv(1 << 20))
    assert 0 < got == unsent[1, 1] < data.size
    with pytest.raises(BlockingIOError):
        sockets.clients[1].recv(1)


# -- faults of system calls, injected into the compiled code

_CALLS: Final = {
    "recv": (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    "send": (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    "epoll_wait": (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
}


class Faults:
    """Compiled kernels whose system calls first give the results that are listed: a count, or a number of an error."""

    def __init__(self) -> None:
        from llvmlite import binding

        machine_code._make_linker()
        library = ctypes.CDLL(None, use_errno=True)
        self.scripted: dict[str, list[int]] = {name: [] for name in _CALLS}
        self.calls = dict.fromkeys(_CALLS, 0)
        self._kept = []
        for name, types in _CALLS.items():
            kind = ctypes.CFUNCTYPE(*types, use_errno=True)
            real = kind((name, library))
            replaced = kind(self._replace(name, real))
            self._kept.append(replaced)
            binding.add_symbol(name, ctypes.cast(replaced, ctypes.c_void_p).value)
        # a second copy of the kernels, beside the one that the process has; its linker holds the code
        self._linker = machine_code._Linker()
        loaded = {}
        try:
            for home in (LENT, SEND):
                engine.load(home)
                found = machine_code.read_kernels(engine.cache_dir() / f"{home}{machine_code.SUFFIX}")
                assert found is not None
                loaded[home] = self._linker.link(ModuleType(home), found)
        finally:
            for name in _CALLS:
                binding.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
        self.kernels = Kernels(
            loaded[LENT]["receive_publications"], loaded[SEND]["send_responses"], loaded[SEND]["receive_ready"]
        )

    def _replace(self, name: str, real: Any) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls[name] += 1
            script = self.scripted[name]
            if script:
                result = script.pop(0)
                if result < 0:
                    ctypes.set_errno(-result)
                    return -1
                if name == "send":
                    return int(real(arguments[0], arguments[1], result, arguments[3]))
                return result
            return int(real(*arguments))

        return call


@pytest.fixture(scope="module")
def faults() -> Faults:
    if os.environ.get("LADING_TEST_GUARD_PAGES") == "1":
        pytest.skip("the copies with faults are linked without guards")
    return Faults()


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN, errno.ENOMEM])
def test_a_read_that_fails(faults: Faults, open_sockets: Any, number: int) -> None:
    sockets = open_sockets([0, 0])
    for client in sockets.clients:
        client.sendall(pub("t", b"x"))
    faults.scripted["recv"] = [-number]
    seen, _ = sockets.look(faults.kernels)
    assert faults.scripted["recv"] == []
    failed = next(client for client in (0, 1) if seen.get(client, (0, b""))[0] != WHOLE)
    assert seen[1 - failed] == (WHOLE, pub("t", b"x"))
    # nothing is lost: what is ready again is read in the next pass, by whoever has the socket then
    assert seen.get(failed) == (None if number == errno.EAGAIN else (ENDED, b""))
    assert sockets.look(faults.kernels)[0] == {failed: (WHOLE, pub("t", b"x"))}


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN, errno.ENOMEM])
def test_a_read_without_a_protocol_that_fails(faults: Faults, open_sockets: Any, number: int) -> None:
    sockets = open_sockets([0, 0])
    for client in sockets.clients:
        client.sendall(b"x")
    faults.scripted |= {"epoll_wait": [-errno.EINTR], "recv": [-errno.EINTR, -number]}
    read, others, ready = _read(sockets, faults.kernels)
    assert not any(faults.scripted.values())
    (done,) = read
    assert (ready, others) == (2, {} if number == errno.EAGAIN else {1 - done: ENDED})
    assert _read(sockets, faults.kernels)[0] == {1 - done: b"x"}
    faults.scripted["epoll_wait"] = [-errno.EBADF]
    assert _read(sockets, faults.kernels) == ({}, {}, -errno.EBADF)


def test_calls_that_a_signal_interrupts_are_made_again(faults: Faults, open_sockets: Any) -> None:
    sockets = open_sockets([0])
    sockets.clients[0].sendall(pub("t", b"x"))
    faults.scripted |= {"epoll_wait": [-errno.EINTR] * 2, "recv": [-errno.EINTR] * 3, "send": [-errno.EINTR] * 2}
    assert sockets.look(faults.kernels)[0] == {0: (WHOLE, pub("t", b"x"))}
    files, data = np.array([sockets.ours[0].fileno()]), np.frombuffer(b"response", np.uint8)
    assert faults.kernels.send_responses(files, data, data.size, np.zeros((1, 2), np.int64)) == 0
    assert sockets.clients[0].recv(100) == b"response"
    assert not any(faults.scripted.values())


def test_an_epoll_that_fails_reads_nothing(faults: Faults, open_sockets: Any) -> None:
    sockets = open_sockets([0])
    sockets.clients[0].sendall(pub("t", b"x"))
    faults.scripted["epoll_wait"] = [-errno.EBADF]
    before = faults.calls["recv"]
    assert sockets.call(faults.kernels) == (0, 0, 0, -1, -errno.EBADF)
    assert faults.calls["recv"] == before


@pytest.mark.parametrize("result", [-errno.EAGAIN, -errno.ECONNRESET, -errno.EPIPE, -errno.ENOBUFS, 3])
def test_a_response_that_is_not_sent_whole(faults: Faults, open_sockets: Any, result: int) -> None:
    sockets = open_sockets([0, 0])
    files, data = np.array([each.fileno() for each in sockets.ours]), np.frombuffer(b"response", np.uint8)
    unsent = np.zeros((2, 2), np.int64)
    faults.scripted["send"] = [result]
    assert faults.kernels.send_responses(files, data, data.size, unsent) == 1
    assert unsent[0].tolist() == [0, max(result, 0)]
    assert sockets.clients[1].recv(100) == b"response"
