"""Every page that the source cites is in the repository, and so is the section that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PROTOCOLS: Final = DOCS / "reference" / "protocols"
CITED: Final = re.compile(r"\b([a-z][a-z_/-]*)\.md\b((?:(?:,| and| to|) ?(?:[ABMN]\d*|\d(?:\.\d+)?)\b)*)")
SECTION: Final = re.compile(r"[ABMN]\d*|\d(?:\.\d+)?")
DESIGN: Final = re.compile(r"\bdesign\.md ([A-Z][a-z]+)(?: and ([A-Z][a-z]+))?")
NAMED: Final = re.compile(r'"""See ([a-z_]+)\.([A-Z][A-Za-z]+)\.([a-z_]+)')
PREFIX: Final = {"iggy": "", "iggy-current": "", "kafka": "k", "nsq": "n"}


def _sources() -> Iterator[Path]:
    for room in ("src", "tests", "bench"):
        yield from sorted((ROOT / room).rglob("*.py"))


def _anchor(page: str, section: str) -> str:
    if section[0].isalpha():
        return section.lower()
    return PREFIX[page] + section.replace(".", "-")


@pytest.mark.parametrize("room", ["src", "tests", "bench"])
def test_every_cited_page_and_section_exists(room: str) -> None:
    pages = {path.stem for path in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]}
    missing = []
    for path in sorted((ROOT / room).rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for cited, sections in CITED.findall(line):
                where = f"{path.relative_to(ROOT)}:{number}: {cited}.md"
                page = cited.rsplit("/", 1)[-1]
                if page not in pages:
                    missing.append(where)
                elif page in PREFIX and sections:
                    text = (PROTOCOLS / f"{page}.md").read_text()
                    missing += [
                        f"{where} {section}"
                        for section in SECTION.findall(sections)
                        if f'<a id="{_anchor(page, section)}"></a>' not in text
                    ]
            for headings in DESIGN.findall(line):
                text = (DOCS / "explanation" / "design.md").read_text()
                missing += [
                    f"{path}:{number}: design.md {one}" for one in headings if one and f"\n## {one}\n" not in text
                ]
    assert not missing, "\n".join(missing)


def test_nothing_cites_a_plan_that_is_not_here() -> None:
    plan = re.compile(r"\bDESIGN\b|_measured\.md")
    citing = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _sources()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if plan.search(line)
    ]
    assert not citing


def test_a_method_that_another_docstring_names_is_there() -> None:
    """``See registry.Dialect.decode`` names a module, a class in it and a method of that."""
    missing = []
    for path in (ROOT / "src").rglob("*.py"):
        for module, class_, method in NAMED.findall(path.read_text()):
            texts = [one.read_text() for one in (ROOT / "src").rglob(f"{module}.py")]
            if not any(f"class {class_}(" in text and f"def {method}(" in text for text in texts):
                missing.append(f"{path.relative_to(ROOT)}: {module}.{class_}.{method}")
    assert not missing, "\n".join(missing)
