"""Machine code of kernels: a file for each home, and functions made of it without Numba.

Numba compiles kernels; to call them takes three of its extension modules and LLVM's linker. Numba's Python modules,
with a cache of its own, take eight times as long to be imported and to give the same functions.
"""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import marshal
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

SUFFIX: Final = ".machine-code"
DIGEST_BYTES: Final = 16
_EXTENSIONS: Final = ("numba._helperlib", "numba._dynfunc", "numba.core.runtime._nrt_python")
_PREFIXES: Final = ("numba_", "numba_", "NRT_")
"""By extension: the prefix of the names by which compiled code calls its exports; a name with ``_`` has none."""


class CompiledKernel(NamedTuple):
    """One function, compiled for one signature."""

    name: str
    signature: str
    """Types of its arguments and of what it returns, as Numba writes them."""
    entry: str
    """The symbol of the function that takes Python's arguments. It checks dimensions and sizes of items, no more."""
    environments: tuple[str, ...]
    """Symbols of pointers to an environment, which has to be there although our kernels look nothing up in it."""
    imports: tuple[str, ...]
    """Symbols that are defined elsewhere: in Python, in Numba's extensions, in the C library."""
    code: bytes
    """A relocatable object file."""


def write_kernels(path: Path, kernels: Sequence[CompiledKernel]) -> None:
    """Write the kernels of a home into a file of its own, whole or not at all. Raises OSError."""
    content = marshal.dumps([tuple(kernel) for kernel in kernels])
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        draft.write_bytes(_digest(content) + content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_kernels(path: Path) -> list[CompiledKernel] | None:
    """Return the kernels in a file; None if it does not exist or is damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, content = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    # a power cut may leave a file of zeros, and what is in it will be executed
    if digest != _digest(content):
        return None
    return [CompiledKernel(*fields) for fields in marshal.loads(content)]


def link_kernels(home: str, kernels: Sequence[CompiledKernel]) -> ModuleType:
    """Return a module named ``home`` that has these kernels as functions; they stay until the process ends.

    Unlike a function that Numba made, they take an array of the wrong type for one of theirs, as long as it has as many
    dimensions and items of the same size. So callers must pass the types of the signature, in contiguous memory. Raises
    ImportError if a symbol that they need is not in this process.
    """
    linker = _make_linker()
    missing = sorted({symbol for kernel in kernels for symbol in kernel.imports if not linker.defines(symbol)})
    if missing:
        raise ImportError(f"{home}: nothing in this process is called {', '.join(missing)}", name=home)
    module = ModuleType(home)
    vars(module).update(linker.link(module, kernels))
    return module


class _Linker:
    """Puts machine code into this process. Linked code is never taken out again: threads may be in it."""

    def __init__(self) -> None:
        from llvmlite import binding

        self._binding: Any = binding
        extensions = [_load_extension(name) for name in _EXTENSIONS]
        self._functions = extensions[1]
        # as Numba does when it is imported: its memory is Python's
        extensions[2].memsys_use_cpython_allocator()
        for symbol, address in _list_symbols(extensions):
            binding.add_symbol(symbol, address)
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        triple = binding.get_process_triple()
        target = binding.Target.from_triple(triple).create_target_machine(jit=True)
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(f'target triple = "{triple}"'), target)
        self._environments: list[Any] = []

    def defines(self, symbol: str) -> bool:
        """Return whether something in this process has this name; code that needs what is not there ends it."""
        return bool(self._binding.address_of_symbol(symbol))

    def link(self, module: ModuleType, kernels: Sequence[CompiledKernel]) -> Mapping[str, Any]:
        """Return the functions of ``module`` by their names."""
        for kernel in kernels:
            self._engine.add_object_file(self._binding.ObjectFileRef.from_data(kernel.code))
        self._engine.finalize_object()
        environment = self._functions.Environment(vars(module))
        self._environments.append(environment)
        found = {}
        for kernel in kernels:
            for symbol in kernel.environments:
                pointer = ctypes.c_void_p.from_address(self._engine.get_global_value_address(symbol))
                pointer.value = id(environment)
            address = self._engine.get_function_address(kernel.entry)
            found[kernel.name] = self._functions.make_function(
                module, kernel.name, kernel.signature, address, environment, ()
            )
        return found


@cache
def _make_linker() -> _Linker:
    return _Linker()


def _load_extension(name: str) -> Any:
    """Return an extension module of Numba's, without the packages around it, which find it when they are imported."""
    if name in sys.modules:
        return sys.modules[name]
    package, _, path = name.partition(".")
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ImportError(f"{package} is not installed", name=package)
    place = Path(found.origin).parent.joinpath(*path.split("."))
    for suffix in EXTENSION_SUFFIXES:
        file = place.with_name(place.name + suffix)
        if file.exists():
            break
    else:
        raise ImportError(f"{place} is not there as an extension module", name=name)
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _list_symbols(extensions: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """Yield symbols that compiled code refers to, with addresses, as Numba's linker has them (numba.core.base, nrt)."""
    for extension, prefix in zip(extensions, _PREFIXES, strict=True):
        for name, address in extension.c_helpers.items():
            is_internal = prefix == "NRT_" and name.startswith("_")
            yield name if is_internal else prefix + name, address
    # these names are those of the objects there, and not of pointers to them as in Python's library
    yield "_Py_NoneStruct", id(None)
    for name, value in vars(builtins).items():
        if isinstance(value, type) and issubclass(value, BaseException):
            yield f"PyExc_{name}", id(value)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
