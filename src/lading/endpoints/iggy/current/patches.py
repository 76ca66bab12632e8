"""Patches of protocol 0.12, which change a topic, a stream or a user, as commands of 0.11 (iggy-current.md V)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....dialects.iggy.classic import later_commands as later
from ....dialects.iggy.classic.errors import StatusError
from ....dialects.iggy.current.commands import UpdateResource
from ....dialects.iggy.current.options import (
    INVALID_VALUE,
    TOPIC_OPTIONS,
    UNLIMITED,
    UNSUPPORTED_KEY,
    Option,
    Options,
    option_flags,
)
from ....model.errors import MalformedMessage
from ....model.kinds import Kind

NOT_UPDATABLE, NOT_RESETTABLE = 4103, 4104
_STATUSES: Final = {"active": 1, "inactive": 2}


def to_update(patch: UpdateResource) -> later.UpdateUser | later.UpdateStream | later.UpdateTopic:
    """Return the command of 0.11 with the same effect as a patch; a name of None stays as it is.

    Raises StatusError for an option that a patch cannot change, MalformedMessage for a patch that changes nothing.
    """
    resource, reset, options = patch.resource, patch.reset, patch.options
    if not reset and not options:
        raise MalformedMessage("a patch sets and resets nothing")
    for key in reset:
        if key in options:
            raise MalformedMessage(f"a patch sets and resets {key!r}")
    given = dict(options)
    if resource.kind == "user":
        status = _take_status(given, reset)
        name = _take_text(given, "username")
        return later.UpdateUser(resource.names[0], name, status, given)
    name = _take_text(given, "name")
    if resource.kind == "stream":
        _refuse_reset(reset)
        return later.UpdateStream(resource.names[0], name, given)
    stream, topic = resource.names
    for key in given:
        if key in TOPIC_OPTIONS and not option_flags(key):
            raise StatusError(NOT_UPDATABLE, f"option {key!r} of a topic stays as it was when the topic was created")
    changed: Options = {**given, **_options_to_unset(reset)}
    return later.UpdateTopic(stream, topic, name, options=changed)


def _take_status(given: dict[str, Option], reset: Sequence[str]) -> int | None:
    _refuse_reset(reset)
    status = _take_text(given, "status")
    if status is not None and status not in _STATUSES:
        raise StatusError(INVALID_VALUE, f"a user is active or inactive, not {status[:40]!r}")
    return None if status is None else _STATUSES[status]


def _take_text(given: dict[str, Option], key: str) -> str | None:
    """Take an option of text out of those given; None if it is not among them."""
    option = given.pop(key, None)
    if option is None:
        return None
    try:
        if option.kind != Kind.STRING:
            raise ValueError
        return option.value.decode()
    except ValueError:
        raise StatusError(INVALID_VALUE, f"option {key!r} takes text") from None


def _refuse_reset(reset: Sequence[str]) -> None:
    for key in reset:
        raise StatusError(NOT_RESETTABLE, f"{key!r} has no default to go back to")


def _options_to_unset(reset: Sequence[str]) -> dict[str, Option]:
    """Return the topic options that mean "not set", for the keys that a patch resets."""
    for key in reset:
        if key not in TOPIC_OPTIONS:
            raise StatusError(UNSUPPORTED_KEY, f"topics have no option {key!r}")
        if not option_flags(key):
            raise StatusError(NOT_RESETTABLE, f"option {key!r} of a topic stays as it was when the topic was created")
    return {key: Option(Kind.UINT64, UNLIMITED.to_bytes(8, "little")) for key in reset}
