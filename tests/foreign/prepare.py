"""Fetch and build suites: the command of each, what it runs in, and how its output is read."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.foreign.results import read_go_events, read_librdkafka, read_pytest
from tests.foreign.suites import GoSuite, LibrdkafkaSuite, PytestSuite, Suite
from tests.interop import go_programs, wheels
from tests.interop.go_programs import Unavailable

PYTHON: Final = "3.11"
BUILD_TIMEOUT_S: Final = 1_800
LIBRDKAFKA_CONFIG: Final = "metadata.broker.list=127.0.0.1:9092\ntest.topic.random=true\ntest.timeout.multiplier=2\n"


class PreparedSuite(NamedTuple):
    """What runs a suite: a command, its directory and variables, and the reader of its output."""

    command: list[str]
    directory: Path
    environment: Mapping[str, str]
    read: Callable[[str], dict[str, str]]


def prepare(suite: Suite) -> PreparedSuite:
    """Return a suite that is fetched and built, once into the user's cache. Raises Unavailable if it cannot be."""
    match suite:
        case GoSuite():
            return _prepare_go(suite)
        case PytestSuite():
            return _prepare_pytest(suite)
        case LibrdkafkaSuite():
            return _prepare_librdkafka(suite)


def _prepare_go(suite: GoSuite) -> PreparedSuite:
    tests, place = go_programs.compile_tests(suite.module, suite.version, suite.package)
    command = [
        "go", "tool", "test2json", "-t", str(tests), "-test.v=test2json", f"-test.timeout={suite.timeout_s}s",
        *([f"-test.skip=^({'|'.join(suite.not_run)})$"] if suite.not_run else []), *suite.arguments,
    ]  # fmt: skip
    return PreparedSuite(command, place, suite.environment, lambda text: read_go_events(text.splitlines()))


def _prepare_pytest(suite: PytestSuite) -> PreparedSuite:
    try:
        python = wheels.install(suite.package, suite.version, PYTHON, beside=("pytest", "pytest-timeout", *suite.needs))
    except wheels.Unavailable as error:
        raise Unavailable(str(error)) from None
    place = _unpack_source(suite, python) / suite.directory
    for name, text in suite.added_files.items():
        if not (place / name).exists():
            (place / name).write_text(text)
    command = [
        str(python), "-m", "pytest", "-p", "no:cacheprovider", "-v", "--tb=short", "--color=no", "-rN",
        *suite.arguments,
        *(["-k", " and ".join(f"not {name}" for name in suite.not_run)] if suite.not_run else []), *suite.paths,
    ]  # fmt: skip
    return PreparedSuite(command, place, suite.environment, read_pytest)


def _unpack_source(suite: PytestSuite, python: Path) -> Path:
    """Return the directory of a package's source distribution, which is fetched if need be."""
    cache = _make_cache(f"sdist-{suite.package}-{suite.version}")
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        source = cache / "source"
        if not source.exists():
            fetch = [str(python), "-m", "pip", "download", "--quiet", "--no-deps"]
            _run([*fetch, "--no-binary", suite.package, f"{suite.package}=={suite.version}"], cache)
            (archive,) = cache.glob("*.tar.gz")
            shutil.rmtree(cache / "unpacked", ignore_errors=True)
            with tarfile.open(archive) as packed:
                packed.extractall(cache / "unpacked", filter="data")
            (root,) = (cache / "unpacked").iterdir()
            root.rename(source)
    return source


def _prepare_librdkafka(suite: LibrdkafkaSuite) -> PreparedSuite:
    cache = _make_cache(f"{suite.name}-{suite.version}")
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        source = cache / "source"
        tests = source / "tests"
        if not (tests / "test-runner").exists():
            shutil.rmtree(source, ignore_errors=True)
            shutil.copytree(_fetch_crate(suite, cache) / "librdkafka", source)
            for command in (["./configure"], ["make", "-j2", "libs"], ["make", "-j2", "-C", "tests", "test-runner"]):
                _run(command, source)
        config = cache / "test.conf"
        config.write_text(LIBRDKAFKA_CONFIG)
    environment = {
        "RDKAFKA_TEST_CONF": str(config), "TEST_KAFKA_VERSION": "4.1.0",
        "LD_LIBRARY_PATH": f"{source / 'src'}:{source / 'src-cpp'}", "TESTS_SKIP": ",".join(suite.not_run),
    }  # fmt: skip
    # -L: not the tests that start brokers of their own; -Q: the short form of each; -p2: two at once
    return PreparedSuite(["./test-runner", "-L", "-Q", "-p2"], tests, environment, read_librdkafka)


def _fetch_crate(suite: LibrdkafkaSuite, cache: Path) -> Path:
    """Return where cargo's cache has the source of a crate."""
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(Path("~/.cargo/bin").expanduser()))
    if cargo is None:
        raise Unavailable("cargo is not installed")
    (cache / "src").mkdir(exist_ok=True)
    (cache / "src" / "lib.rs").touch()
    (cache / "Cargo.toml").write_text(
        '[package]\nname = "source"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[dependencies]\n{suite.crate} = "={suite.crate_version}"\n'
    )
    _run([cargo, "fetch", "--quiet"], cache)
    kept = Path(os.environ.get("CARGO_HOME") or "~/.cargo").expanduser() / "registry" / "src"
    found = sorted(kept.glob(f"*/{suite.crate}-{suite.crate_version}*"))
    if not found:
        raise Unavailable(f"cargo fetched {suite.crate} {suite.crate_version}, and its source is not in {kept}")
    return found[0]


def _make_cache(name: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lading" / f"foreign-{name}"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _run(command: list[str], directory: Path) -> None:
    try:
        done = subprocess.run(
            ["nice", *command], cwd=directory, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} did not end within {BUILD_TIMEOUT_S} s") from None
    if done.returncode:
        raise Unavailable(f"{' '.join(command[:3])} fails here: {(done.stdout + done.stderr).strip()[-300:]}")
