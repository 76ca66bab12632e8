"""The header explorer: the profile of a topic, the contract that it suggests, and drift from those of pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..client.reading import Selection
from ..model.errors import LadingError
from ..pipeline.contract import MALFORMED, drift, headers_section, profile_topic
from ..pipeline.profile import read_profile
from ..pipeline.profile_page import describe_looks
from ..pipeline.settings import PipelineSettings
from .long_work import Advance, run_with_progress
from .masks import NO_MASK, WORD, TopicMask
from .responses import Document, number_of, stream_answer, text_of
from .source import ConsoleSource

LIMIT: Final = 50_000
LIMIT_MAX: Final = 1_000_000_000
HEADERS_MAX: Final = 500
"""The number of headers that a page shows: those with the most bytes."""


class HeaderPages:
    """Handlers."""

    def __init__(self, source: ConsoleSource, pipelines: Sequence[Path]) -> None:
        self._source = source
        self._pipelines = pipelines

    def routes(self) -> list[Route]:
        """Return the table for the router."""
        return [Route("/api/profile", self._profile)]

    def _profile(self, request: Request) -> Response:
        topic, limit = text_of(request, "topic"), number_of(request, "limit", LIMIT, LIMIT_MAX)
        where = request.query_params.get("where", "").strip() or None

        def work(advance: Advance) -> Document:
            mask = self._find_mask(topic, where)
            found = read_profile(
                self._source.url, topic, where=where, limit=limit, on_rows=advance, transport=self._source.login
            )
            if found.damaged:
                with self._source.lend() as transport:
                    self._source.met_damage.add(transport.topic(topic), found.damaged)
            document = found.document(topic, self._source.shown)
            rows = document["headers"] = [
                row | {"examples": WORD, "example_values": []} if row["key"] in mask.headers else row
                for row in document["headers"]
            ]
            if mask:
                # it has examples of payload fields
                document["payload"] = None
            contract = headers_section(found.statistics, topic, rows)
            shown = [row | {"looks": describe_looks(row["looks"])} for row in rows[:HEADERS_MAX]]
            more = {
                "headers_count": len(rows),
                "contract": contract,
                "drift": self._find_drift(topic, limit, advance, mask),
            }
            return {"profile": document | {"headers": shown} | more}

        return stream_answer(lambda: run_with_progress(work))

    def _find_mask(self, topic: str, where: str | None) -> TopicMask:
        """Return what is masked in a topic. Raises LocalError for a condition that searches it."""
        if not self._source.masks:
            return NO_MASK
        with self._source.lend() as transport:
            mask = self._source.mask_of(transport.topic(topic))
        if where is not None:
            mask.require_searchable(Selection.parse(None, where, "all", verify=False, on_loss="skip").filter)
        return mask

    def _find_drift(self, topic: str, limit: int, advance: Advance, mask: TopicMask) -> list[dict[str, Any]]:
        """Return how the messages differ from the contract of each pipeline that reads the topic."""
        found: list[dict[str, Any]] = []
        for file in self._pipelines:
            try:
                settings = PipelineSettings.load(file)
            except LadingError as error:
                # with an invalid file its own drift is missing, not the profile
                found.append({"pipeline": str(file), "error": str(error), "rows": []})
                continue
            if settings.contract.headers and any(one.topic == topic for one in settings.document.source):
                survey = profile_topic(
                    self._source.url, topic, contract=settings.contract, limit=limit, on_rows=lambda rows: advance(0),
                    on_loss="skip", transport=self._source.login,
                )  # fmt: skip
                rows = [asdict(one) for one in drift(survey, settings.contract)]
                if mask:
                    # a sentence about payloads may quote one
                    rows = [row | {"sentence": WORD} if row["kind"] == MALFORMED else row for row in rows]
                found.append({"pipeline": settings.id, "rows": rows})
        return found
