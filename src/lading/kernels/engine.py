"""Compilation of kernels: by which process, when, and into which directory; importing this imports no Numba.

A home is the dotted name of a module of kernels, such as ``lading.dialects.iggy.classic.kernels``. Its functions
have explicit signatures, so that they are compiled once for all processes (seconds), and linked from a file by each
(a millisecond, and 50 for the first home). Beside each home stands a fallback: plain Python functions of the same names
and signatures.

Two ways of working, a policy of the process:
* readers (the default): small work runs on the fallback, bulk work waits for the kernels once;
* a broker (after ``load_in_background``): nothing waits, the fallback serves until the kernels are loaded. A thread
  loads those of a home when they are first asked for, as most brokers never meet most protocols and releases.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import platform
import queue
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ..model.cache_directory import find_cache_directory
from . import machine_code

log = logging.getLogger(__name__)

PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = Path(sys.prefix) / "share" / "lading"
"""Caches that came with the environment, as ``lading pipeline package`` builds it; used if one fits."""
COMPLETE: Final = "complete"
"""The file that says that a cache holds all kernels."""
BULK_BYTES = 256 << 10
"""Fallbacks do the first bytes of work of a process, up to this many: that costs less than loading the kernels."""

USED_BY_ALL: Final = (f"{PACKAGE.name}.kernels.sync", f"{PACKAGE.name}.chunk.kernels")
"""Modules whose kernels every message passes, of whatever protocol: loaded before the first of the others. LLVM's
linker comes with them, which takes longer to load than the kernels of any protocol."""

_OF_LINUX: Final = ("socket_kernels.py", "lent_kernels.py")
"""Modules that call what only Linux has."""
_IMPORT: Final = re.compile(r"^from (\.*)([\w.]*) import (\([^)]*\)|[^\n#]*)", re.MULTILINE)

_loaded: dict[str, ModuleType] = {}
_loading = threading.RLock()
_background: threading.Thread | None = None
_requested: set[str] = set()
"""The homes that were asked for since ``load_in_background``."""
_requests: queue.SimpleQueue[str] = queue.SimpleQueue()
_fallback_bytes = 0
_is_compiling = False


def list_kernel_modules() -> list[str]:
    """Every module of kernels in the package: each ``kernels.py``, and the sync loop."""
    rooms = sorted(PACKAGE.rglob("*kernels.py"))
    if sys.platform != "linux":
        rooms = [path for path in rooms if path.name not in _OF_LINUX]
    found = [".".join((PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts)) for path in rooms]
    return [*found, f"{PACKAGE.name}.kernels.sync"]


def get_loaded(home: str) -> ModuleType | None:
    """Return the kernels of ``home`` if this process has them; never blocks. A broker then loads them."""
    kernels = _loaded.get(home)
    if kernels is None and _background is not None:
        _request(home)
    return kernels


def count_loaded() -> int:
    """Return of how many homes this process has the kernels."""
    return len(_loaded)


def is_loading() -> bool:
    """Return whether a broker uses the fallback of some requested kernels, because they are still being loaded."""
    return not _requested <= _loaded.keys()


def is_expected(home: str) -> bool:
    """Return whether this process does not have the kernels of ``home`` yet, and a broker's thread will load them."""
    return home not in _loaded and _background is not None and _background.is_alive()


def is_unavailable(home: str) -> bool:
    """Return whether a broker has to do without the kernels of ``home``: they could not be compiled or loaded."""
    return home not in _loaded and _background is not None and not _background.is_alive()


def is_compiling() -> bool:
    """Return whether a broker's thread fills a cold cache first, which takes a minute; loading takes a moment."""
    return _is_compiling


def select(home: str, fallback: ModuleType, size_bytes: int) -> Any:
    """Return the kernels of ``home`` or their ``fallback``, as the policy of this process (see above) has it."""
    global _fallback_bytes
    kernels = _loaded.get(home)
    if kernels is not None:
        return kernels
    if _background is not None:
        _request(home)
        return fallback
    # many small pieces are bulk work too
    _fallback_bytes += size_bytes
    return fallback if _fallback_bytes < BULK_BYTES else load(home)


def load(home: str) -> ModuleType:
    """The kernels of ``home``; waits until they are compiled or loaded from the cache.

    Processes that start together compile each home once: the first one holds its file lock, the others then load its
    result.
    """
    kernels = _loaded.get(home)
    if kernels is not None:
        return kernels
    with _loading:
        if home not in _loaded:
            _loaded[home] = _load(home)
        return _loaded[home]


def load_in_background() -> None:
    """Load kernels in the background once they are asked for; from now on ``select`` never blocks in this process.

    A cold cache is filled by a child process, so that the compiler does not hold this interpreter's lock.
    Without a compiler (or disk) the fallbacks go on serving, and the log says why.
    """
    global _background
    if _background is None:
        _background = threading.Thread(target=_load_requested, name="kernels", daemon=True)
        for home in USED_BY_ALL:
            _request(home)
        _background.start()


def _request(home: str) -> None:
    if home not in _requested:
        _requested.add(home)
        _requests.put(home)


def cache_dir() -> Path:
    """Return the directory of compiled kernels: ``XDG_CACHE_HOME`` (or ``~/.cache``) ``/lading/kernels-…``.

    The name holds a hash of all kernel sources and the modules of ours that they import, the versions of Python and
    Numba, and the CPU. A file of machine code records none of these: it would not show a change in an inline function
    or in a constant of a layout, nor that different machines share the home directory. The directory of the sources
    does not count. A complete cache of that name that came with the environment (``SHIPPED``) is used first. If no
    directory is writable, or other users may write there, the cache is a temporary directory of this process, with one
    warning.
    """
    return _cache_dir(os.environ.get("XDG_CACHE_HOME", ""))


def mark_complete() -> None:
    """Note that all kernels are in the cache, so that no process starts a compiler to fill it."""
    (cache_dir() / COMPLETE).touch()


@cache
def _cache_dir(xdg_cache_home: str) -> Path:
    name = f"kernels-{_fingerprint()}"
    shipped = SHIPPED / name
    if (shipped / COMPLETE).exists() and unsafe_path(shipped) is None:
        return shipped
    path = find_cache_directory(xdg_cache_home) / name
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
        unsafe = unsafe_path(path)
        if unsafe is None:
            return path
        problem = f"{unsafe} may be changed by other users, and what lies there is executed"
        remedy = f"look at who owns it and what lies there, then run chmod go-w {unsafe}"
    except (OSError, RuntimeError) as error:
        problem = str(error.strerror if isinstance(error, OSError) else error)
        remedy = "make it writable"
    # a directory of our own with a name that cannot be guessed
    own = Path(tempfile.mkdtemp(prefix="lading-kernels-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    log.warning(
        "compiled kernels cannot be kept in %s (%s), so every process compiles them anew; %s or set XDG_CACHE_HOME",
        path.parents[1], problem, remedy,
    )  # fmt: skip
    return own


def unsafe_path(directory: Path) -> Path | None:
    """Return the first of ``directory``, its files and its parents that other users may change, or None.

    The rule is that of ssh for keys: owned by this user or root, and not writable by other users. A parent with the
    sticky bit, as /tmp has it, is good enough, and so is a group that has no other member.
    """
    directory = directory.resolve()
    with os.scandir(directory) as entries:
        for entry in entries:
            if _may_others_write(entry.stat(follow_symlinks=False), sticky=False):
                return Path(entry.path)
    for number, path in enumerate((directory, *directory.parents)):
        if _may_others_write(path.stat(), sticky=number > 0):
            return path
    return None


def _may_others_write(facts: os.stat_result, *, sticky: bool) -> bool:
    if facts.st_uid not in (0, os.geteuid()):
        return True
    if sticky and facts.st_mode & stat.S_ISVTX:
        return False
    return bool(facts.st_mode & 0o002) or (bool(facts.st_mode & 0o020) and not _is_own_group(facts.st_gid))


def _is_own_group(gid: int) -> bool:
    """Whether a group is this user's private one, as many systems make them, or root's."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid in (0, user.pw_gid) and group.gr_name in ("root", user.pw_name) and set(group.gr_mem) <= {user.pw_name}


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for path, source in sorted(read_frozen_sources().items()):
        digest.update(path.removeprefix(f"{PACKAGE}{os.sep}").encode() + b"\0" + source + b"\0")
    facts = (sys.version, version("numba"), version("llvmlite"), platform.machine(), _cpu(), *_numba_settings())
    digest.update("\0".join(facts).encode())
    return digest.hexdigest()[:16]


def read_frozen_sources() -> dict[str, bytes]:
    """Read the kernel modules and all that they import, directly or not: their constants are frozen into kernels.

    Returns sources by their paths.
    """
    # paths as texts, and each file read once by one call: a broker has just begun to serve while this runs
    modules = set(_list_modules(str(PACKAGE)))
    engine = f"{PACKAGE / 'kernels'}{os.sep}"
    found: dict[str, bytes] = {}
    left = [path for path in modules if path.endswith("kernels.py") or path.startswith(engine)]
    while left:
        path = left.pop()
        if path not in found:
            with open(path, "rb", buffering=0) as file:
                found[path] = file.readall()
            left += _find_imports(path, found[path].decode(), modules)
    return found


def _list_modules(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _list_modules(entry.path)


def _find_imports(path: str, source: str, modules: Set[str]) -> Iterator[str]:
    """The modules of ours that a module imports at its top level, by its text."""
    for dots, module, names in _IMPORT.findall(source):
        if dots:
            root = path.rsplit(os.sep, len(dots))[0]
        elif module.partition(".")[0] == PACKAGE.name:
            root, module = str(PACKAGE), module.partition(".")[2]
        else:
            continue
        place = f"{root}{os.sep}{module.replace('.', os.sep)}" if module else root
        listed = [name.split()[0] for name in names.strip("()").replace("\n", " ").split(",") if name.strip()]
        for candidate in (place, *(f"{place}{os.sep}{name}" for name in listed)):
            for found in (f"{candidate}.py", f"{candidate}{os.sep}__init__.py"):
                if found in modules and found.rpartition(os.sep)[0] != str(PACKAGE):
                    yield found


def _numba_settings() -> list[str]:
    return [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NUMBA_CPU_")]


def _cpu() -> str:
    """Model and instruction sets, as far as the system reports them without a compiler."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _load(home: str) -> ModuleType:
    directory = cache_dir()
    path = directory / f"{home}{machine_code.SUFFIX}"
    with _lock_home(directory, home):
        kernels = machine_code.read_kernels(path)
        if kernels is None:
            log.debug("compiling %s", home)
            kernels = import_module(f"{__package__}.signature").compile_kernels(home)
            try:
                machine_code.write_kernels(path, kernels)
            except OSError as error:
                log.warning(
                    "%s: compiled kernels cannot be kept (%s), so every process compiles them anew", path, error
                )
    return machine_code.link_kernels(home, kernels)


@contextmanager
def _lock_home(directory: Path, home: str) -> Iterator[None]:
    """Hold a home's file lock, unless the cache is complete; a directory that cannot be locked is used unlocked."""
    try:
        import fcntl

        file = (directory / f"{home}.lock").open("w") if not (directory / COMPLETE).exists() else None
    except (ImportError, OSError):
        file = None
    if file is None:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _load_requested() -> None:
    global _is_compiling
    try:
        if not (cache_dir() / COMPLETE).exists():
            _is_compiling = True
            _fill_cache()
            _is_compiling = False
        while True:
            load(_requests.get())
    except Exception as error:
        log.warning("kernels are not available, plain Python serves instead (slower): %s", error)


def _fill_cache() -> None:
    """Compile in a child process, which ends with this one and holds none of its streams; RuntimeError if it fails."""
    command = [sys.executable, "-m", "lading.kernels.compile", "--beside"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True) as compiler:
        assert compiler.stderr is not None
        messages = compiler.stderr.read()
    if compiler.returncode:
        raise RuntimeError(messages.strip().rpartition("\n")[2] or f"the compiler ended with {compiler.returncode}")
