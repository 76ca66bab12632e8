"""What `make docs` does beside MkDocs: adds pages outside docs/ and the source of each, and keeps the network out."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
SHIM = "assets/iframe_worker.js"
"""iframe-worker 1.0.4 (MIT): what the search needs where a browser opens files, which lets no workers start."""
SHIM_SOURCE = re.compile(r'"https://[^"]*/iframe-worker/shim"')
"""From where the theme would load it."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages, with links as they are in the site."""
    for name in BESIDE:
        text = (ROOT / name).read_text().replace("](docs/reference/protocols)", "](docs/reference/protocols/iggy.md)")
        files.append(File.generated(config, name, content=text.replace("](docs/", "](")))
    files.append(File.generated(config, SHIM, content=(Path(__file__).parent / "iframe_worker.js").read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to these pages."""
    depth = page.file.src_uri.count("/")
    for name in BESIDE:
        markdown = markdown.replace(f"]({'../' * (depth + 1)}{name}", f"]({'../' * depth}{name}")
    return markdown


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Say below each page of which version it is, and which file of the clone one changes to change it."""
    source = page.file.src_uri if page.file.src_uri in BESIDE else f"docs/{page.file.src_uri}"
    return f"{html}<hr><p><small>Lading {VERSION}. The source of this page is <code>{source}</code>.</small></p>"


@event_priority(-100)
def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Take the shim from the site; raise ValueError if the page would load anything else from the network."""
    text = SHIM_SOURCE.sub(f'"{get_relative_url(SHIM, page.url)}"', output)
    if 'src="http' in text or "src=http" in text:
        raise ValueError(f"{page.file.src_uri}: loads a script or picture from the network")
    return text
