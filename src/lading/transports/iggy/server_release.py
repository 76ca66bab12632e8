"""The release of a real Iggy server that requires a login, found from the statistics that it reports.

Requests of 0.0.40 go first to every server of the classic framing: a server of that generation, or Lading, responds to
them, and all later ones respond that a login is needed, and change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ...dialects.iggy.classic import commands as c
from ...dialects.iggy.classic.errors import NAMES, REASON_OF, name_of
from ...dialects.iggy.classic.protocol import SENT
from ...dialects.iggy.classic.releases import BY_NAME, RELEASE_OF_SERVER, Release
from ...dialects.iggy.classic.responses import StatsInfo
from ...dialects.iggy.current.capabilities import SENT as CURRENT_SENT
from ...dialects.iggy.zero_copy.layout import FORM_0_7, FORM_0_8, FORM_0_9, WireForm
from ...model.errors import MalformedMessage, Reason, SettingError
from ...model.protocol import Capabilities
from .current import CURRENT

LOGGING_IN: Final = BY_NAME["0.10"]
"""The release whose login is sent: earlier servers ignore the fields that they do not know."""

WIRE_FORMS: Final[Mapping[str, WireForm]] = {"0.7": FORM_0_7, "0.8": FORM_0_8, "0.9": FORM_0_9, "0.10": FORM_0_9}
"""Form of messages in sends and polls, for releases after 0.6; earlier releases use classic messages."""

_SENT: Final[Mapping[str, Capabilities]] = {
    **dict.fromkeys(WIRE_FORMS, replace(SENT, origin_time=True)), CURRENT.name: CURRENT_SENT
}  # fmt: skip


def facts_sent_to(release: Release, *, keeps_order: bool) -> Capabilities:
    """Return the facts of a message that a server of ``release`` keeps; ``keeps_order`` is about headers."""
    facts = _SENT.get(release.name, SENT)
    return facts if keeps_order else replace(facts, order=False)


_LADING: Final = re.compile(rb"\(Lading [^ ()]+ for clients of ([0-9.]+)\)")
"""The text after the kernel version in a response, by which Lading is recognised in all releases."""
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.\d+")


def find_release(name: str) -> Release:
    """Return a release by its name. Raises SettingError if it is not one that can be read."""
    readable = {**BY_NAME, CURRENT.name: CURRENT}
    found = readable.get(name)
    if found is None:
        raise SettingError(f"release {name!r} of Iggy: not supported by iggy://; there are {', '.join(readable)}")
    return found


def release_of_lading(stats: bytes | bytearray) -> Release | None:
    """Return the release that Lading's listener assumes for its clients, from its ``stats`` response in any layout.

    Returns None for the response of another server.
    """
    match = _LADING.search(stats)
    return None if match is None else BY_NAME.get(match[1].decode())


def release_of_stats(body: bytes | bytearray) -> Release | None:
    """Return the release of a server from its ``stats`` response; None if the response does not show it."""
    if (lading := release_of_lading(body)) is not None:
        return lading
    row = BY_NAME["0.6"].commands.row_by_code[10]
    try:
        # the responses of later servers have more fields at the end
        stats, _ = row.answer.read(memoryview(body), 0)
    except MalformedMessage:
        return BY_NAME["0.4"]
    assert isinstance(stats, StatsInfo)
    match = _VERSION.match(stats.server_version)
    name = RELEASE_OF_SERVER.get((int(match[1]), int(match[2]))) if match else None
    return None if name is None else BY_NAME[name]


_LATER_REASONS: Final[Mapping[int, Reason]] = {
    **REASON_OF,
    5002: Reason.INVALID_GROUP_ID,
    5003: Reason.GROUP_NOT_FOUND,
    5004: Reason.GROUP_EXISTS,
    5006: Reason.GROUP_MEMBER_NOT_FOUND,
}
"""Error codes that moved when groups got names."""


def reason_of(status: int, release: Release) -> Reason | None:
    """Return the reason that a status of a server of ``release`` stands for, or None."""
    return (_LATER_REASONS if release.has_names else REASON_OF).get(status)


def describe_status(status: int, release: Release) -> str:
    """Return the name of a status of a server of ``release``."""
    return (release.has_names and NAMES.get(status)) or name_of(status)


GETTING: Final = (c.GetStream, c.GetTopic, c.GetGroup, c.GetClient)
"""Commands for which releases since 0.6 respond with an empty body if the object does not exist."""
