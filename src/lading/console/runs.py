"""Pipelines with their runs, and mirrors with their fidelity tables, from the files that both keep."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..mirror.state import DATABASE, MirrorState, is_running
from ..model.errors import LadingError
from ..pipeline.reasons import expectation_of, reason_of
from ..pipeline.settings import PipelineSettings
from ..pipeline.state import existing
from .mirror_services import describe_service
from .responses import Document, json_answer
from .settings import ConsoleSettings

BATCHES_MAX: Final = 200
"""The number of newest batches that a page shows."""
REPORT_BYTES_MAX: Final = 16 << 20


class RunPages:
    """Handlers."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings

    def routes(self) -> list[Route]:
        """Return the table for the router."""
        return [Route("/api/pipelines", self._list_pipelines), Route("/api/mirrors", self._list_mirrors)]

    def _list_pipelines(self, request: Request) -> Response:
        files = self._settings.pipelines if self._settings.shows_files else ()
        return json_answer({"pipelines": [_describe_pipeline(file) for file in files]})

    def _list_mirrors(self, request: Request) -> Response:
        if not self._settings.shows_files:
            return json_answer({"mirrors": []})
        services = [describe_service(url) for url in self._settings.mirror_services]
        # with services, those that this user ran by hand are shown if they are named
        shows_own = self._settings.shows_own_mirrors and not services
        paths = self._settings.mirrors or (_own_mirrors() if shows_own else ())
        return json_answer({"mirrors": [*services, *(_describe_mirror(path) for path in paths)]})


def _describe_pipeline(file: Path) -> Document:
    found: Document = {"name": str(file), "id": file.stem}
    try:
        settings = PipelineSettings.load(file)
        found |= {"id": settings.id, "sources": [one.topic for one in settings.document.source]}
        found |= {"good": str(settings.document.good.to), "quarantine": str(settings.quarantine_table)}
        manifests = existing(settings).manifests
        read = [manifests.read(number) for number in manifests.numbers()[-BATCHES_MAX:]]
    except LadingError as error:
        return found | {"error": str(error)}
    totals: Counter[str] = Counter()
    for manifest in read:
        totals.update(manifest.counts)
    expectations = [name for key in totals if (name := expectation_of(key)) is not None]
    batches = [
        {
            "number": one.number, "run": one.run, "written_us": str(one.written_us),
            "read": one.counts.get("read", 0), "good": one.counts.get("good", 0),
            "routed": one.counts.get("routed", 0), "quarantined": one.counts.get("quarantined", 0),
            "expectations": {name: one.counts.get(f"expect.{name}", 0) for name in expectations},
        }
        for one in read
    ]  # fmt: skip
    reasons = [
        {"reason": told[0], "header": told[1], "messages": count}
        for key, count in totals.most_common()
        if (told := reason_of(key)) is not None
    ]
    to = {key.removeprefix("to."): count for key, count in totals.items() if key.startswith("to.")}
    return found | {
        "batches": batches,
        "totals": dict(totals),
        "reasons": reasons,
        "to": to,
        "expectations": expectations,
    }


def _own_mirrors() -> Iterator[Path]:
    """Yield the state directories that ``lading mirror`` uses by default, the most recently used first."""
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "lading" / "mirrors"
    databases = sorted(home.glob(f"*/{DATABASE}"), key=lambda path: -path.stat().st_mtime)
    yield from (path.parent for path in databases[:BATCHES_MAX])


def _describe_mirror(path: Path) -> Document:
    found: Document = {"name": str(path)}
    try:
        if path.is_dir() and not (path / DATABASE).exists():
            return found | {"error": f"{path} is not the state of a mirror: it has no {DATABASE}"}
        return found | (_describe_state(path) if path.is_dir() else _report(path))
    except (LadingError, OSError, ValueError, KeyError, TypeError) as error:
        return found | {"error": f"{path} is neither the state of a mirror nor its report as JSON: {error}"}


def _describe_state(directory: Path) -> Document:
    state = MirrorState(directory)
    try:
        facts = state.list_facts()
        topics = [
            {"topic": topic, "messages": sum(one.offset for one in positions.values()), "partitions": len(positions)}
            for topic in state.topics()
            if (positions := state.positions(topic)) is not None
        ]
    finally:
        state.close()
    return {
        "source": facts.get("source"),
        "target": facts.get("target"),
        "topics": topics,
        "running": is_running(directory),
    }


def _report(file: Path) -> Document:
    with file.open("rb") as opened:
        document: dict[str, Any] = json.loads(opened.read(REPORT_BYTES_MAX))
    if not isinstance(document, dict) or not isinstance(document.get("source"), str):
        raise ValueError("it names no source")
    wanted = ("source", "target", "carrier", "messages", "seconds", "topics", "fidelity")
    return {name: document[name] for name in wanted if name in document} | {"report": True}
