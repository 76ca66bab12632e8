"""Rights for the setting ``dead_letter_topic``: its setter's rights are checked when it is set and when it is used.

Copies of messages leave their topic by this setting. So its setter has to be allowed to read that topic, to write to
the target, and to create the target if it is missing. Losing a right later stops the copies until it is granted again,
or until a user who has it sets the topic again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...model.errors import Reason, Refusal
from ...model.names import spellings
from .access.rights import Resource, Right, topic_resource
from .topology import Topic

GrantorAllows = Callable[[int | str | None, Right, Resource], bool]
"""``AccessControl.grantor_allows``."""


def place_of_target(name: str) -> tuple[str, str]:
    """Return the stream and the topic that are created for a dead letter topic of this name."""
    choices = spellings(name)
    return choices[1] if len(choices) > 1 else choices[0]


def list_needed_rights(
    source: Resource, name: str, resolve: Callable[[str], Topic]
) -> Iterator[tuple[Right, Resource]]:
    """Yield the rights that the setter of the dead letter topic ``name`` needs, each with its resource.

    Take the next only after one is granted: only a user who may write to the target may learn whether it exists.
    """
    yield Right.READ, source
    try:
        topic = resolve(name)
    except Refusal:
        target = topic_resource(*place_of_target(name))
        yield Right.WRITE, target
        yield Right.CREATE, target
    else:
        yield Right.WRITE, topic_resource(topic.stream.name, topic.name)


def require_setter_rights(allows: GrantorAllows, source: Topic, resolve: Callable[[str], Topic]) -> None:
    """Raise Refusal unless the setter of a topic's dead letter topic still has the rights that it takes."""
    settings, name = source.settings, source.settings.dead_letter_topic
    if settings.dead_letter_setter is None or name is None:
        return
    own = topic_resource(source.stream.name, source.name)
    for right, resource in list_needed_rights(own, name, resolve):
        if not allows(settings.dead_letter_setter, right, resource):
            raise Refusal(
                Reason.UNAUTHORIZED,
                f"dead letter topic {name!r} of {source.flat_name!r}: the user who set it may not {right} topic "
                f"{resource.name!r} any more; set it again as a user who may: "
                f"lading topic set {source.flat_name} dead_letter_topic={name}",
            )


def is_other_target(source: Topic, target: Topic, resolve: Callable[[str], Topic]) -> bool:
    """Return whether a user has named another dead letter topic since: the rights that were asked are for that one."""
    settings = source.settings
    if settings.dead_letter_setter is None or settings.dead_letter_topic is None:
        return False
    try:
        return resolve(settings.dead_letter_topic) is not target
    except Refusal:
        return True
