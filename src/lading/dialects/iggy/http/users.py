"""Users, permissions and personal access tokens as JSON (iggy-current.md B5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..classic import later_commands as later
from ..classic.permissions import (
    GLOBAL_FLAGS,
    STREAM_FLAGS,
    TOPIC_FLAGS,
    Flags,
    Permissions,
    StreamPermissions,
)
from .commands import Part, Parts
from .documents import FLAG, TEXT, U32, Form, fields_of, form_of, optional, word
from .errors import wrong_document
from .text import Members

_STATUS: Final = {"active": 1, "inactive": 2}


def _read_flags(fields: Members, names: Sequence[str], where: str) -> Flags:
    found = set()
    for name in names:
        if name not in fields:
            raise wrong_document(f"{where}: missing field `{name}`")
        if FLAG.of(fields[name], f"{where}.{name}"):
            found.add(name)
    return frozenset(found)


def _by_id(value: Any, where: str) -> dict[int, Members]:
    """Return the members of an object whose names are ids, by id; nothing for null."""
    if value is None:
        return {}
    found = {}
    for name, member in form_of(value, where, Members).items():
        try:
            found[int(U32.from_text(name))] = fields_of(member, f"{where}.{name}")
        except ValueError as error:
            raise wrong_document(f"{where}: {error}") from None
    return found


def _permissions_of(value: Any, where: str) -> Permissions:
    fields = fields_of(value, where)
    flags = _read_flags(fields_of(fields.get("global", {}), f"{where}.global"), GLOBAL_FLAGS, f"{where}.global")
    streams = {}
    for stream, members in _by_id(fields.get("streams"), f"{where}.streams").items():
        place = f"{where}.streams.{stream}"
        topics = {
            topic: _read_flags(of_topic, TOPIC_FLAGS, f"{place}.topics.{topic}")
            for topic, of_topic in _by_id(members.get("topics"), f"{place}.topics").items()
        }
        streams[stream] = StreamPermissions(_read_flags(members, STREAM_FLAGS, place), topics)
    return Permissions(flags, streams)


def permissions_document(permissions: Permissions | None) -> dict[str, Any] | None:
    """Return the document of permissions, or None without permissions."""
    if permissions is None:
        return None
    streams = {
        str(stream): {
            **_flags_document(STREAM_FLAGS, found.flags),
            "topics": {str(topic): _flags_document(TOPIC_FLAGS, flags) for topic, flags in found.topics.items()}
            or None,
        }
        for stream, found in permissions.streams.items()
    }
    return {"global": _flags_document(GLOBAL_FLAGS, permissions.flags), "streams": streams or None}


def _flags_document(names: Sequence[str], flags: Flags) -> dict[str, bool]:
    return {name: name in flags for name in names}


_PERMISSIONS: Final = optional(Form(_permissions_of, TEXT.from_text))
_STATUS_FORM: Final = word(_STATUS)


def user_bodies(expiry: Form) -> Parts:
    """Return the bodies for users and tokens; ``expiry`` is the Form of a token's lifetime."""
    return {
        later.CreateUser: (
            Part("name", ("username",), TEXT),
            Part("password", ("password",), TEXT),
            Part("status", ("status",), _STATUS_FORM, 1),
            Part("permissions", ("permissions",), _PERMISSIONS, None),
        ),
        later.UpdateUser: (
            Part("name", ("username",), optional(TEXT), None),
            Part("status", ("status",), optional(_STATUS_FORM), None),
        ),
        later.UpdatePermissions: (Part("permissions", ("permissions",), _PERMISSIONS, None),),
        later.ChangePassword: (
            Part("current", ("current_password",), TEXT),
            Part("new", ("new_password",), TEXT),
        ),
        later.CreateToken: (Part("name", ("name",), TEXT), Part("expiry_us", ("expiry",), expiry, None)),
    }


STATUS_WORDS: Final[Mapping[int, str]] = {code: word for word, code in _STATUS.items()}
"""The word of a status."""
