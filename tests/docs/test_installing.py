"""No page and no error advises an installation that does not work: Lading is installed from its clone."""

from __future__ import annotations

import re
import runpy
import sys
import tomllib
from importlib.metadata import metadata
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
UNPUBLISHED = re.compile(r"\b(install|uv add|uvx|pipx run) +(-{1,2}[A-Za-z-]+ +)*[\"'`]?lading\b(?![/.\w])")


def written_files() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    packaging = [path for path in ROOT.glob("packaging/**/*") if path.suffix in (".py", ".md", ".service")]
    return [*pages, *packaging, *ROOT.glob("src/**/*.py"), *ROOT.glob("bench/**/*.py")]


@pytest.mark.parametrize(
    "advice",
    [
        "pip install lading",
        "pip install -U 'lading[sql]'",
        "install lading[sql]",
        "uv add lading",
        "pipx run lading serve",
    ],
)
def test_each_form_of_the_advice_is_found(advice: str) -> None:
    assert UNPUBLISHED.search(advice)
    assert not UNPUBLISHED.search(advice.replace("lading", "./lading"))


def test_nothing_is_installed_from_an_index_that_does_not_have_it() -> None:
    advised = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in written_files()
        if path.name != "CHANGELOG.md"
        for line in path.read_text().splitlines()
        if UNPUBLISHED.search(line)
    }
    assert advised == set()


def test_pip_show_names_a_home_page_and_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the clone, as there are none on the web; the hook runs in builds, which have hatchling."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "urls" in project["project"]["dynamic"]
    interface = ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = object  # type: ignore[attr-defined]
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    hook = runpy.run_path(str(ROOT / project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["path"]))
    build, facts = hook["ProjectUrls"](), dict[str, dict[str, str]]()
    build.root = str(ROOT)
    build.update(facts)
    pages = {name: Path(unquote(urlsplit(url).path)) for name, url in facts["urls"].items()}
    assert {"Homepage", "Documentation"} <= set(pages)
    assert all(path.is_file() and path.is_relative_to(ROOT) for path in pages.values())
    (tmp_path / "PKG-INFO").touch()
    assert hook["find_urls"](tmp_path) == {}


def test_a_wheel_carries_what_the_pages_install() -> None:
    """Paths below share/lading of an environment: each is a file that a wheel puts there."""
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    carried = {
        f"{place}/{file.name}"
        for directory, place in targets["wheel"]["shared-data"].items()
        for file in (ROOT / directory).iterdir()
    }
    named = {
        path
        for page in (ROOT / "docs").rglob("*.md")
        for path in re.findall(r"share/lading/[\w./-]+\w", page.read_text())
    }
    assert len(named) >= 4 and named <= carried
    assert {path.rpartition("/")[2] for path in carried} >= {"lading.service", "lading-mirror.service"}


def test_pip_show_names_author_versions_and_licence() -> None:
    facts = metadata("lading")
    assert (facts["Author"], facts["License-Expression"]) == ("The Lading developers", "Apache-2.0")
    named = set(facts.get_all("Classifier") or ())
    running = f"Programming Language :: Python :: {sys.version_info.major}.{sys.version_info.minor}"
    assert {running, "Programming Language :: Python :: 3.14"} <= named
