"""The topics of a mirror: which of the source are chosen, and whether the target can have them."""

from __future__ import annotations

from difflib import get_close_matches

from ..dialects.protocols import PROTOCOLS
from ..model.errors import LocalError
from ..transports.interface import TopicMeta, Transport
from ..transports.open import is_queue
from ..transports.topics import UnknownTopic
from .settings import MirrorSettings


def choose_topics(settings: MirrorSettings, source: Transport) -> list[TopicMeta]:
    """Return the topics of the source that are mirrored, as they are now.

    Raises LocalError if no topic is chosen, unless the mirror follows and so waits for one.
    """
    named = settings.named_topics
    if named is not None:
        return [source.topic(name) for name in named]
    metas = source.topics()
    chosen = [meta for meta in metas if settings.is_chosen(meta.name)]
    if not chosen and not settings.follow:
        names = [meta.name for meta in metas]
        near = get_close_matches((list(settings.topics) or [""])[0], names, 3, 0.5) or names[:5]
        there = f"there are {', '.join(near)}" if near else "there are no topics"
        raise LocalError(f"{settings.source}: no topic is chosen by --topic and --exclude; {there}")
    return chosen


def find_at_target(settings: MirrorSettings, target: Transport, meta: TopicMeta) -> TopicMeta | None:
    """Return the topic of the target that a topic of the source is copied to; None if it is to be created.

    Raises LocalError if the target cannot have a topic of that name, or if it is the very same topic.
    """
    name = settings.target_topic(meta.name)
    scheme = settings.target.partition("://")[0].lower() if "://" in settings.target else "file"
    row = next((one for one in PROTOCOLS if scheme in one.schemes), None)
    why = None if row is None else row.topic_error(name, 1 if is_queue(settings.target) else len(meta.partitions))
    if why is not None:
        raise LocalError(
            f"topic {name!r}: {settings.target} cannot have it: {why}; name it there with "
            f"--rename {meta.name}=NEW, or leave it out with --exclude {meta.name}"
        )
    try:
        there = target.topic(name)
    except UnknownTopic:
        return None
    if meta.topic_id is not None and meta.topic_id == there.topic_id:
        raise LocalError(
            f"topic {meta.name!r}: {settings.source} and {settings.target} are the same topic of the "
            f"same broker; name another target, or --rename {meta.name}=NEW"
        )
    return there


def require_partitions(settings: MirrorSettings, meta: TopicMeta, there: TopicMeta) -> None:
    """Raise LocalError if the topic of the target has fewer partitions; those of a queue are all one."""
    partitions = len(meta.partitions)
    if len(there.partitions) < partitions and not is_queue(settings.target):
        raise LocalError(
            f"topic {there.name!r}: {settings.target} has {len(there.partitions)} partitions of it, the source "
            f"{partitions}; give it as many, or another name with --rename {meta.name}=NEW"
        )
