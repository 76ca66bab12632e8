"""Kernels load and store by address, unchecked: here each array of a call lies beside a page that nobody may touch.

An access that leaves an array ends the process at once (SIGSEGV), with Python's stack from faulthandler, instead of
reading what lies next to it. Each call is made twice: with arrays that begin at such a page, which finds what is a byte
too early, then with arrays that end at one. What a kernel only reads is read-only while it runs. Scratch arrays that a
kernel makes lie so too, and become untouchable once they are freed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from types import ModuleType
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.kernels import machine_code
from lading.kernels.machine_code import CompiledKernel
from tests import kernel_arguments

Side = Literal["end", "begin"]
"""Where arrays touch the page."""
VARIABLE: Final = "LADING_TEST_GUARD_PAGES"
"""1 has all kernels of a run of tests guarded."""
CALLED_ONCE: Final = ("lading.kernels.sync", "lading.kernels.socket_kernels", "lading.dialects.nsq.lent_kernels")
"""The homes of kernels that read and write pipes and sockets; all others do the same when they are called again."""
COPIED_BYTES_MAX: Final = 8 << 20
"""More than this, such as a map of a large file, is given as it is, twice: copies for each call would take minutes."""

_PAGE_BYTES: Final = mmap.PAGESIZE
_UNSET: Final = 0xCB
"""What scratch arrays hold before anything is written there."""
_FREED_MAX: Final = 64
"""So many freed arrays stay untouchable, the last ones."""
_ALLOCATE: Final = "NRT_MemInfo_alloc_aligned"

_mprotect: Any = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_NONE: Final = 0


class Guarded:
    """Memory between two untouchable pages."""

    def __init__(self, size_bytes: int) -> None:
        self.pages_bytes = -(-max(size_bytes, 1) // _PAGE_BYTES) * _PAGE_BYTES
        # private: a forked process has its own
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = mmap.mmap(-1, self.pages_bytes + 2 * _PAGE_BYTES, flags=flags)
        before = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.address = before + _PAGE_BYTES
        protect(before, _PAGE_BYTES, _NONE)
        protect(self.address + self.pages_bytes, _PAGE_BYTES, _NONE)

    def place(self, size_bytes: int, side: Side) -> int:
        """Return the address of so many bytes that touch an untouchable page."""
        return self.address if side == "begin" else self.address + self.pages_bytes - size_bytes

    def holding(self, data: bytes | bytearray) -> NDArray[np.uint8]:
        """The data, right up to the second page; good until the next call."""
        array = np.frombuffer(self.memory, np.uint8, len(data), _PAGE_BYTES + self.pages_bytes - len(data))
        array[:] = np.frombuffer(data, np.uint8)
        return array


def protect(address: int, size_bytes: int, mode: int) -> None:
    """Change what may be done with the pages that hold these bytes."""
    before = address % _PAGE_BYTES
    if _mprotect(address - before, before + size_bytes, mode):
        raise OSError(ctypes.get_errno(), "mprotect")


_Free: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class _Allocator(ctypes.Structure):
    """What Numba frees an array with that it has not allocated itself (numba/core/runtime/nrt_external.h)."""

    _fields_ = (
        ("malloc", ctypes.c_void_p), ("realloc", ctypes.c_void_p), ("free", _Free), ("argument", ctypes.c_void_p),
    )  # fmt: skip


class _Head(ctypes.Structure):
    """Numba's head of an array that a kernel makes (``MemInfo`` in numba/core/runtime/nrt.cpp)."""

    _fields_ = (
        ("references", ctypes.c_size_t), ("destructor", ctypes.c_void_p), ("argument", ctypes.c_void_p),
        ("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("allocator", ctypes.POINTER(_Allocator)),
    )  # fmt: skip


class _Scratch:
    """Allocates what kernels allocate."""

    def __init__(self) -> None:
        from llvmlite import binding

        machine_code._make_linker()
        self._held: dict[int, tuple[_Head, Guarded]] = {}
        self._freed: deque[Guarded] = deque(maxlen=_FREED_MAX)
        self._allocator = _Allocator(None, None, _Free(self._free), None)
        self._function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32)(self._allocate)
        self._add_symbol: Any = binding.add_symbol

    def offer(self) -> None:
        """Have what is linked from now on allocate here."""
        self._add_symbol(_ALLOCATE, ctypes.cast(self._function, ctypes.c_void_p).value)

    def _allocate(self, size_bytes: int, alignment: int) -> int:
        piece = Guarded(size_bytes)
        data = piece.place(size_bytes, _copies.side)
        ctypes.memset(piece.address, _UNSET, piece.pages_bytes)
        head = _Head(1, None, None, data, size_bytes, ctypes.pointer(self._allocator))
        self._held[ctypes.addressof(head)] = head, piece
        return ctypes.addressof(head)

    def _free(self, head: int, argument: int) -> None:
        _, piece = self._held.pop(head)
        protect(piece.address, piece.pages_bytes, _NONE)
        self._freed.append(piece)


class _Group(NamedTuple):
    """Arguments that share memory, and so have to share their copy."""

    start: int
    end: int
    written: bool
    numbers: list[int]


class _Copies(threading.local):
    """Pieces of memory of a thread, each with room for one group of arguments."""

    def __init__(self) -> None:
        self.side: Side = "end"
        self._pieces: list[Guarded] = []

    def get(self, number: int, size_bytes: int) -> Guarded:
        while len(self._pieces) <= number:
            self._pieces.append(Guarded(0))
        if self._pieces[number].pages_bytes < size_bytes:
            self._pieces[number] = Guarded(2 * size_bytes)
        return self._pieces[number]


_copies: Final = _Copies()
called: Final[set[str]] = set()
"""The guarded kernels that were called in this process."""


def install() -> None:
    """Guard the arguments of all kernels that this process loads from now on."""
    scratch = _Scratch()

    def link_guarded(home: str, kernels: Sequence[CompiledKernel]) -> ModuleType:
        strange = {name for kernel in kernels for name in kernel.imports if name.startswith("NRT_MemInfo_alloc")}
        assert strange <= {_ALLOCATE}, f"{home}: {strange} would not be guarded"
        scratch.offer()
        module = kernel_arguments.link_checked(home, kernels)
        for kernel in kernels:
            written = [getattr(kind, "written", False) for kind in kernel_arguments.parse_arguments(kernel.signature)]
            function = vars(module)[kernel.name]
            vars(module)[kernel.name] = _guard(f"{home}.{kernel.name}", function, written, home in CALLED_ONCE)
        return module

    machine_code.link_kernels = link_guarded


def install_if_asked() -> None:
    """Guard kernels if the environment says so."""
    if os.environ.get(VARIABLE) == "1":
        install()


def _guard(name: str, function: Callable[..., Any], written: Sequence[bool], once: bool) -> Callable[..., Any]:
    """Return a function that gives ``function`` copies of its arrays, and writes back those that are ``written``."""

    @wraps(function)
    def guarded(*arguments: Any) -> Any:
        called.add(name)
        groups = list(_group(arguments, written))
        if not once:
            _call(function, arguments, groups, "begin")
        result, copies = _call(function, arguments, groups, "end")
        for group, at in copies:
            if group.written:
                ctypes.memmove(group.start, at, group.end - group.start)
        return result

    return guarded


def _call(
    function: Callable[..., Any], arguments: Sequence[Any], groups: Sequence[_Group], side: Side
) -> tuple[Any, list[tuple[_Group, int]]]:
    """Call a kernel with copies of its arrays; returns what it returns, and where the copy of each group lies."""
    given = list(arguments)
    copies = []
    for number, group in enumerate(groups):
        size_bytes = group.end - group.start
        piece = _copies.get(number, size_bytes)
        at = piece.place(size_bytes, side)
        ctypes.memmove(at, group.start, size_bytes)
        for index in group.numbers:
            given[index] = _view(piece, at - group.start, arguments[index])
        copies.append((group, at))
    closed = [(at, group.end - group.start) for group, at in copies if not group.written]
    for place in closed:
        protect(*place, mmap.PROT_READ)
    _copies.side = side
    try:
        return function(*given), copies
    finally:
        for place in closed:
            protect(*place, mmap.PROT_READ | mmap.PROT_WRITE)


def _group(arguments: Sequence[Any], written: Sequence[bool]) -> Iterable[_Group]:
    """Yield the arrays among the arguments, without what is too large to be copied."""
    spans = sorted((*_bounds(value), number) for number, value in enumerate(arguments) if isinstance(value, np.ndarray))
    last: _Group | None = None
    for start, end, number in spans:
        if last is not None and start < last.end:
            last = _Group(last.start, max(last.end, end), last.written or written[number], [*last.numbers, number])
            continue
        if last is not None and last.end - last.start <= COPIED_BYTES_MAX:
            yield last
        last = _Group(start, end, written[number], [number])
    if last is not None and last.end - last.start <= COPIED_BYTES_MAX:
        yield last


def _bounds(array: NDArray[Any]) -> tuple[int, int]:
    """Return the addresses where an array begins and ends."""
    low, high = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data,) * 2
    return low, high


def _view(piece: Guarded, moved: int, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in ``piece`` that is as ``array``, which lies ``moved`` bytes before it."""
    offset = array.ctypes.data + moved - (piece.address - _PAGE_BYTES)
    view: NDArray[Any] = np.ndarray(array.shape, array.dtype, piece.memory, offset, array.strides)
    view.flags.writeable = array.flags.writeable
    return view
