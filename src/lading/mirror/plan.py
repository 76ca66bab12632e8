"""A plan of a mirror: what a run would copy, found by reading both systems and changing neither."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from typing import Any

from ..client.read_bounds import spans
from ..transports.interface import TopicMeta, Transport
from ..transports.open import is_queue, open_transport
from .settings import MirrorSettings
from .state import DATABASE, MirrorState
from .topics import choose_topics, find_at_target, require_partitions


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic that a run would copy. ``left`` messages are to be copied; None for a queue, which does not say."""

    topic: str
    target: str
    partitions: int
    is_created: bool
    """Whether the run would create the topic at the target."""
    left: int | None

    def as_document(self) -> dict[str, Any]:
        """Return the row as a JSON document."""
        return asdict(self)


def plan_mirror(
    settings: MirrorSettings,
    *,
    source_options: dict[str, Any] | None = None,
    target_options: dict[str, Any] | None = None,
) -> list[PlannedTopic]:
    """Return what a run with these settings would copy; nothing is created, sent or written down.

    Raises what ``run_mirror`` would raise before it sends anything.
    """
    settings.check()
    with ExitStack() as held:
        source = held.enter_context(closing(open_transport(settings.source, **(source_options or {}))))
        target = held.enter_context(closing(open_transport(settings.target, **(target_options or {}))))
        state = None
        if (settings.state_directory / DATABASE).exists():
            state = held.enter_context(closing(MirrorState(settings.state_directory)))
            state.require_pair(settings.source_mark, settings.target_mark)
        return [_plan_topic(settings, source, target, state, meta) for meta in choose_topics(settings, source)]


def _plan_topic(
    settings: MirrorSettings, source: Transport, target: Transport, state: MirrorState | None, meta: TopicMeta
) -> PlannedTopic:
    there = find_at_target(settings, target, meta)
    if there is not None:
        require_partitions(settings, meta, there)
    left = None
    if not is_queue(settings.source):
        known = {} if state is None else state.positions(meta.name)
        bounds = spans(source, [meta], settings.start, "latest").values()
        begins = {
            one.partition: known[one.partition].offset if one.partition in known else one.offset for one in bounds
        }
        left = sum(max(0, (one.end or 0) - begins[one.partition]) for one in bounds)
    return PlannedTopic(meta.name, settings.target_topic(meta.name), len(meta.partitions), there is None, left)
