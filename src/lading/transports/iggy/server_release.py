"""Which release of Iggy a real server is of, where it asks for a login: by what it says of itself in its figures.

Requests of 0.0.40 go to every server of the classic framing first: one of that generation, and Lading, answer them, and
all later ones answer that a login is needed and change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ...dialects.iggy_classic import commands as c
from ...dialects.iggy_classic.releases import BY_NAME, Release, release_of_login
from ...dialects.iggy_classic.responses import StatsInfo
from ...dialects.iggy_zero_copy.layout import FORM_0_7, FORM_0_8, FORM_0_9, WireForm
from ...model.errors import MalformedMessage, SettingError
from .current import CURRENT

LOGGING_IN: Final = BY_NAME["0.10"]
"""The release whose login is sent: earlier servers read over what they do not know of it."""

RELEASE_OF_SERVER: Final[Mapping[tuple[int, int], str]] = {
    (0, 8): "0.10",
    (0, 7): "0.9",
    (0, 6): "0.8",
    (0, 5): "0.7",
    (0, 4): "0.6",
}
"""The crate that was published with a version of the server, which has numbers of its own."""

WIRE_FORMS: Final[Mapping[str, WireForm]] = {"0.7": FORM_0_7, "0.8": FORM_0_8, "0.9": FORM_0_9, "0.10": FORM_0_9}
"""How messages of the releases after 0.6 lie in sends and polls; those of the others are classic ones."""

_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.\d+")


def find_release(name: str) -> Release:
    """Return a release by its name; SettingError where there is none that can be read."""
    readable = {known: release for known, release in BY_NAME.items() if known != "0.0.30"} | {CURRENT.name: CURRENT}
    found = readable.get(name)
    if found is None:
        known = ", ".join(readable)
        raise SettingError(f"release {name!r} of Iggy: not supported by iggy://; there are {known}")
    return found


def release_of_stats(body: bytes | bytearray) -> Release | None:
    """Return the release of a server by its answer to ``stats``; None where that does not say it."""
    row = BY_NAME["0.6"].commands.row_by_code[10]
    try:
        # later servers tell more behind
        stats, _ = row.answer.read(memoryview(body), 0)
    except MalformedMessage:
        return BY_NAME["0.4"]
    assert isinstance(stats, StatsInfo)
    if stats.server_version.startswith("Lading"):
        # which is to every client what its login says
        return release_of_login(".".join(map(str, LOGGING_IN.version)))
    told = _VERSION.match(stats.server_version)
    name = RELEASE_OF_SERVER.get((int(told[1]), int(told[2]))) if told else None
    return None if name is None else BY_NAME[name]


GETTING: Final = (c.GetStream, c.GetTopic, c.GetGroup, c.GetClient)
"""Commands that releases since 0.6 answer by nothing where there is none."""
