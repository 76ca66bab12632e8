"""Topics for the page: all of them, one with its partitions, and the groups that read them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..model.errors import LadingError, Refusal
from ..transports.group_administration import GroupAdministration
from ..transports.interface import Marking, TopicMeta, Transport
from ..transports.kafka.transactions import DECISION_GROUP_PREFIX
from ..transports.lading.transport import LadingTransport
from ..transports.losses import describe_damage
from .engine_blocks import write_engine_blocks
from .responses import Document, json_answer, text_of
from .source import ConsoleSource

GROUPS_MAX: Final = 300
"""The number of groups whose lag is requested; each takes a request."""
GROUPS_FRESH_S: Final = 3.0
"""The shortest time between two requests for groups, however many pages are open."""


class TopicPages:
    """Handlers."""

    def __init__(self, source: ConsoleSource, tables: str | None = None) -> None:
        """``tables`` is the URL of the catalog that serves topics as tables."""
        self._source = source
        self._tables = tables
        self._groups: list[Document] = []
        self._groups_at_s = float("-inf")
        self._lock = threading.Lock()

    def routes(self) -> list[Route]:
        """Return the table for the router."""
        return [Route("/api/topics", self._list_topics), Route("/api/topic", self._show_topic)]

    def _list_topics(self, request: Request) -> Response:
        with self._source.lend() as transport:
            metas = transport.topics()
            groups, health = self._groups_of(transport), _health_of(transport)
        lags = _find_lags(groups)
        damaged = health.get("damaged", {})
        rows = [
            _summarize(meta) | {"lag": lags.get(meta.name), "damage": self._damage_of(meta, damaged)} for meta in metas
        ]  # fmt: skip
        problems = {**health.get("refusing", {}), **health.get("problems", {})}
        return json_answer({"topics": rows, "at_s": time.time(), "problems": problems})

    def _show_topic(self, request: Request) -> Response:
        name = text_of(request, "topic")
        with self._source.lend() as transport:
            meta = transport.topic(name)
            groups, health = self._groups_of(transport), _health_of(transport)
            states = _states_of(transport, meta)
        partitions = [
            {
                "partition": part.number, "first_offset": str(part.first_offset), "end_offset": str(part.end_offset),
                "messages": part.end_offset - part.first_offset, "size_bytes": part.size_bytes, "epoch": part.epoch,
                "states": states.get(part.number, {}),
            }
            for part in meta.partitions
        ]  # fmt: skip
        reading = [
            group | {"partitions": mine}
            for group in groups
            if (mine := [one for one in group["partitions"] if one["topic"] == meta.name])
        ]
        return json_answer(
            _summarize(meta)
            | {
                "partitions": partitions,
                "settings": dict(meta.settings),
                "groups": [
                    one | {"lag": None if is_decision(one) else sum(part["lag"] for part in one["partitions"])}
                    for one in reading
                ],
                "damage": self._damage_of(meta, health.get("damaged", {})),
                "at_s": time.time(),
            }
            | self._describe_table(meta)
        )

    def _describe_table(self, meta: TopicMeta) -> Document:
        """Return the address of a topic's table and what to write in each engine; nothing without a catalog."""
        if self._tables is None:
            return {}
        blocks = write_engine_blocks(self._tables, meta.stream, meta.topic)
        return {"table": {"name": f"{meta.stream}.{meta.topic}", "blocks": [block._asdict() for block in blocks]}}

    def _groups_of(self, transport: Transport) -> list[Document]:
        """Return groups with their positions; empty for a directory or Iggy's server, which do not list them."""
        if not isinstance(transport, GroupAdministration):
            return []
        with self._lock:
            if time.monotonic() - self._groups_at_s > GROUPS_FRESH_S:
                try:
                    self._groups = transport.describe_groups(GROUPS_MAX)
                except Refusal:
                    # a user who may read topics may still not be allowed to list groups
                    self._groups = []
                self._groups_at_s = time.monotonic()
            return self._groups

    def _damage_of(self, meta: TopicMeta, damaged: dict[str, str]) -> list[str]:
        """Return a sentence for each damaged partition of a topic: from the broker, or from the console's own reads.

        ``damaged`` has the broker's sentences, by TOPIC/PARTITION.
        """
        # a restarted broker has forgotten the damage that it met before, and a directory has no broker
        met = self._source.met_damage.of(meta)
        sentences = {number: describe_damage({number: ranges}, 1) for number, ranges in met.items()}
        sentences |= {
            part.number: damaged[name] for part in meta.partitions if (name := f"{meta.name}/{part.number}") in damaged
        }
        return [f"partition {number}: {words}" for number, words in sorted(sentences.items())]


def _summarize(meta: TopicMeta) -> Document:
    sizes = [part.size_bytes for part in meta.partitions if part.size_bytes is not None]
    return {
        "name": meta.name,
        "stream": meta.stream,
        "topic": meta.topic,
        "partitions_count": len(meta.partitions),
        "messages": sum(part.end_offset - part.first_offset for part in meta.partitions),
        "end_sum": sum(part.end_offset for part in meta.partitions),
        "size_bytes": sum(sizes) if sizes else None,
        "dead_letter_topic": meta.settings.get("dead_letter_topic"),
    }


def _find_lags(groups: Iterable[Document]) -> dict[str, int]:
    """Return for each topic the lag of the group with the highest lag."""
    found: dict[str, int] = {}
    for group in groups:
        mine: dict[str, int] = {}
        for part in () if is_decision(group) else group["partitions"]:
            mine[part["topic"]] = mine.get(part["topic"], 0) + part["lag"]
        for topic, lag in mine.items():
            found[topic] = max(found.get(topic, 0), lag)
    return found


def is_decision(group: Document) -> bool:
    """Return whether the positions of a group are a decision about transactions, which nobody reads from."""
    return str(group["group"]).startswith(DECISION_GROUP_PREFIX)


def _health_of(transport: Transport) -> dict[str, Any]:
    return transport.health() if isinstance(transport, LadingTransport) else {}


def _states_of(transport: Transport, meta: TopicMeta) -> dict[int, dict[str, int]]:
    if not isinstance(transport, Marking):
        return {}
    try:
        return {row["partition"]: row["states"] for row in transport.state_counts(meta.name)}
    except LadingError:
        # only Lading's servers have states
        return {}
