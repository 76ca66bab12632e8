"""Home page and documentation of an installation, as ``pip show`` reports them: those of the clone that it came from.

Lading has no page on the web yet. A source distribution has no clone, and names no pages.
"""

from __future__ import annotations

from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {"Homepage": "README.md", "Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}


class ProjectUrls(MetadataHookInterface):
    """Adds the project's URLs to the metadata of a build."""

    def update(self, metadata: dict[str, object]) -> None:
        """Set ``urls``."""
        metadata["urls"] = find_urls(Path(self.root))


def find_urls(root: Path) -> dict[str, str]:
    """Return the pages of a clone by the names that pip knows; none in an unpacked source distribution."""
    if (root / "PKG-INFO").exists():
        return {}
    return {name: (root / page).as_uri() for name, page in PAGES.items()}
