"""Failures: dead letters with their reasons, the quarantine of pipelines, and sending them back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..filter.parse import parse
from ..model import reason_headers
from ..model.errors import LocalError
from ..model.headers import Headers
from ..model.message import Message
from ..model.state import State
from ..model.values import HeaderValue
from ..pipeline.dead_letter_redrive import ForeignDeadLetters
from ..pipeline.dead_letters import list_columns_of, parse_filter
from ..pipeline.quarantine import MAX_REPLAYS, Quarantine
from ..pipeline.settings import PipelineSettings
from ..transports.interface import TopicMeta
from ..transports.topics import UnknownTopic
from .changes import changing, field_of
from .documents import show_whole
from .long_work import Advance, run_with_progress
from .masks import NO_MASK, WORD, TopicMask, hide_facts
from .responses import Document, json_answer, stream_answer, text_of
from .settings import ConsoleSettings
from .source import ConsoleSource

ROWS_MAX: Final = 200
BARS_MAX: Final = 60
NAMES: Final = ("dead", "dlq", "dlt", "quarantine", "parked", "error")
"""Parts of names that mark a topic of dead letters, if no setting names one."""


def find_dead_letter_topics(metas: Iterable[TopicMeta]) -> dict[str, list[str]]:
    """Return the topics that hold dead letters, by a setting or by their names, each with the topics whose setting
    names it.
    """
    metas = list(metas)
    found: dict[str, list[str]] = {}
    for meta in metas:
        letters = meta.settings.get("dead_letter_topic")
        if letters:
            found.setdefault(str(letters), []).append(meta.name)
    for meta in metas:
        if any(name in meta.name.lower() for name in NAMES):
            found.setdefault(meta.name, [])
    return found


class FailurePages:
    """Handlers of the pages of dead letters and quarantined messages."""

    def __init__(self, source: ConsoleSource, settings: ConsoleSettings) -> None:
        self._source = source
        self._settings = settings
        self._pipelines = settings.pipelines if settings.shows_files else ()

    def routes(self) -> list[Route]:
        """Return the table for the router."""
        is_read_only = self._settings.is_read_only
        return [
            Route("/api/failures", self._list),
            Route("/api/dead-letters", self._dead_letters),
            Route("/api/quarantine", self._show_quarantine),
            Route("/api/quarantined", self._show_quarantined),
            Route(
                "/api/dead-letters/redrive",
                changing(self._redrive_letters, is_read_only=is_read_only, is_dry_by_default=True), methods=["POST"],
            ),
            Route(
                "/api/quarantine/redrive",
                changing(self._redrive_quarantine, is_read_only=is_read_only, is_dry_by_default=True),
                methods=["POST"],
            ),
        ]  # fmt: skip

    def _list(self, request: Request) -> Response:
        with self._source.lend() as transport:
            metas = transport.topics()
        of = find_dead_letter_topics(metas)
        rows = [
            {"topic": meta.name, "of": of[meta.name],
             "messages": sum(part.end_offset - part.first_offset for part in meta.partitions)}
            for meta in metas
            if meta.name in of
        ]  # fmt: skip
        return json_answer({"topics": rows, "pipelines": [_name(file) for file in self._pipelines]})

    def _dead_letters(self, request: Request) -> Response:
        topic, where = text_of(request, "topic"), request.query_params.get("where", "").strip() or None

        def work(advance: Advance) -> Document:
            mask = self._mask_of(topic, where)
            bars: Counter[tuple[str, str, str]] = Counter()
            rows: list[Document] = []
            strangers = 0
            for batch, columns in self._letters_of(topic).batches(where):
                partitions, offsets = batch.column("partition").to_pylist(), batch.column("offset").to_pylist()
                for at, facts in enumerate(columns.to_pylist()):
                    told = (
                        facts if facts["convention"] is not None else _own_reason(batch.column("headers")[at].as_py())
                    )
                    if told is None:
                        strangers += 1
                        continue
                    if mask.headers:
                        values = [
                            one["value"] for one in batch.column("headers")[at].as_py() if one["key"] in mask.headers
                        ]
                        told = hide_facts(told, values)
                    bars[told["convention"], told["origin_topic"] or "", _reason_of(told)] += 1
                    rows.append(
                        {"partition": partitions[at], "offset": str(offsets[at]), "why": _reason_of(told), **told}
                    )
                # show the newest ones: the present failures come first
                rows = rows[-ROWS_MAX:]
                advance(batch.num_rows)
            drawn = [
                {"convention": key[0], "origin_topic": key[1], "why": key[2], "messages": count}
                for key, count in bars.most_common(BARS_MAX)
            ]  # fmt: skip
            return {"bars": drawn, "rows": rows[::-1], "letters": bars.total(), "strangers": strangers}

        return stream_answer(lambda: run_with_progress(work))

    def _redrive_letters(self, document: Document) -> Document:
        topic, where = field_of(document, "topic", str), field_of(document, "where", str, None) or None
        mask, to = self._mask_of(topic, where), field_of(document, "to", str, None) or None
        if to is not None and not mask.is_within(self._mask_of(to)):
            raise LocalError(
                f"topic {to!r}: fields that are masked in {topic!r} are not masked there; choose another topic"
            )
        done = self._letters_of(topic).redrive(
            where, limit=field_of(document, "limit", int, None),
            max_replays=field_of(document, "max_replays", int, MAX_REPLAYS),
            to=to,
            dry_run=field_of(document, "dry_run", bool, True),
        )  # fmt: skip
        return asdict(done)

    def _mask_of(self, topic: str, where: str | None = None) -> TopicMask:
        """Return what is masked in a topic of dead letters. Raises LocalError for a condition that searches it."""
        masks = self._source.masks
        if not masks:
            return NO_MASK
        try:
            with self._source.lend() as transport:
                mask = self._source.mask_of(transport.topic(topic))
        except UnknownTopic:
            mask = masks.of(topic)
        if where is not None:
            mask.require_searchable(parse_filter(where), list_columns_of(mask.headers))
        return mask

    def _require_searchable(self, settings: PipelineSettings, where: str | None) -> None:
        """Raise LocalError for a condition on quarantined messages that searches something masked."""
        if where is not None and self._source.masks:
            contract = settings.contract if settings.contract.typed else None
            self._source.masks.of_all().require_searchable(parse(where, contract))

    def _letters_of(self, topic: str) -> ForeignDeadLetters:
        state = self._settings.state / f"redrive-{topic.replace('/', '_')}"
        return ForeignDeadLetters(self._source.url, topic, state, self._source.login)

    def _show_quarantine(self, request: Request) -> Response:
        where = request.query_params.get("where", "").strip() or None
        quarantine = self._quarantine_of(text_of(request, "pipeline"), where)
        reasons = request.query_params.getlist("reason")
        masks = self._source.masks
        rows = [
            # details quote values
            row | {"detail": WORD} if row["detail"] and masks.of(_topic_of(row["message"])) else row
            for row in quarantine.rows(where, reasons, ROWS_MAX)
        ]
        return json_answer({"bars": quarantine.histogram(where), "rows": rows})

    def _show_quarantined(self, request: Request) -> Response:
        """Return one message and its reasons."""
        found = self._quarantine_of(text_of(request, "pipeline")).find(text_of(request, "message"))
        mask = self._source.masks.of(found[0]["topic"])
        facts = [{name: str(row[name]) for name in ("reason", "header", "detail", "replays")} for row in found]
        if mask:
            facts = [fact | {"detail": WORD} for fact in facts]
        whole = show_whole(_build_message(found[0]), mask=mask)
        return json_answer({"reasons": facts, "message": {"topic": found[0]["topic"]} | whole})

    def _redrive_quarantine(self, document: Document) -> Document:
        where = field_of(document, "where", str, None) or None
        done = self._quarantine_of(field_of(document, "pipeline", str), where).redrive(
            where, field_of(document, "reasons", list, []),
            max_replays=max(1, field_of(document, "max_replays", int, MAX_REPLAYS)),
            limit=field_of(document, "limit", int, None), dry_run=field_of(document, "dry_run", bool, True),
        )  # fmt: skip
        return asdict(done)

    def _quarantine_of(self, name: str, where: str | None = None) -> Quarantine:
        settings = PipelineSettings.load(file_named(self._pipelines, name))
        self._require_searchable(settings, where)
        return Quarantine(settings)


def file_named(files: Sequence[Path], name: str) -> Path:
    """Return the pipeline file that the page names. Raises LocalError for one that the console was not given."""
    for file in files:
        if _name(file) == name:
            return file
    raise LocalError(f"pipeline {name!r} is not shown here; start the console with --pipeline FILE")


def _name(file: Path) -> str:
    return str(file)


def _topic_of(message: str) -> str:
    """Return the topic of a place, ``TOPIC/PARTITION/OFFSET``."""
    return message.rsplit("/", 2)[0]


def _reason_of(told: Document) -> str:
    exception, reason = told["exception"] or "", told["reason"] or ""
    # texts of exceptions contain values that differ from message to message
    return exception or reason or "no reason given"


def _own_reason(headers: Sequence[Document]) -> Document | None:
    """Return the facts of a copy that Lading made, under the names of other systems; None for another message."""
    said = {one["key"]: one["value"] for one in headers if one["key"] in reason_headers.REASON_HEADERS}
    if reason_headers.REASON not in said:
        return None

    def text(key: str) -> str | None:
        value = said.get(key)
        return None if value is None else value.decode(errors="replace")

    topic, _, place = (text(reason_headers.ORIGIN) or "").partition("/")
    partition, _, offset = place.partition("/")
    return {
        "convention": "Lading", "origin_topic": topic or None, "origin_partition": partition or None,
        "origin_offset": offset or None, "exception": text(reason_headers.REASON),
        "reason": text(reason_headers.DETAIL),
        "origin_group": text(reason_headers.PIPELINE), "deliveries": None, "origin_timestamp_ms": None,
    }  # fmt: skip


def _build_message(row: dict[str, Any]) -> Message:
    return Message(
        payload=row["payload"],
        headers=Headers([(one["key"], HeaderValue(one["kind"], one["value"])) for one in row["headers"]]),
        key=row["key"], stream=row["stream"], topic=row["topic"], partition=row["partition"], offset=row["offset"],
        timestamp_us=row["timestamp_us"], id=row["id"], checksum=row["checksum"],
        state=State(row["state"]),
    )  # fmt: skip
