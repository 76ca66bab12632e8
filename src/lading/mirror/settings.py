"""Settings of a mirror: source, target, topics, and what to do if the target cannot follow."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from ..model.errors import SettingError
from ..transports.fetched import States

Carrier = Literal["on", "off"]
OnRefused = Literal["stop", "skip"]
OnLoss = Literal["fail", "skip"]
_WILD: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """One mirror. ``topics`` and ``exclude`` are names or patterns with ``*`` and ``?``; no ``topics`` means all."""

    source: str
    target: str
    topics: Sequence[str] = ()
    exclude: Sequence[str] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    """Names at the target, by names at the source."""
    carrier: Carrier = "on"
    states: States = "available"
    follow: bool = False
    two_way: bool = False
    """Whether messages are marked with their origin, and those that came from the target left out."""
    source_name: str | None = None
    target_name: str | None = None
    """Names of the systems in marks; by default their addresses."""
    channel: str = "mirror"
    """The channel that a queue is read by."""
    quiet_ms: int = 3_000
    """A queue that delivers nothing for this time counts as read to its end; a busy server may take its time between
    messages."""
    on_refused: OnRefused = "stop"
    on_loss: OnLoss = "fail"
    start: Literal["earliest", "latest"] = "earliest"
    """Start of topics that were not mirrored before."""
    fidelity: bool = False
    """Whether to count what survives; always so without carriers."""
    state: Path | None = None

    @property
    def counts_fidelity(self) -> bool:
        """Whether what survives is counted."""
        return self.fidelity or self.carrier == "off"

    @property
    def source_mark(self) -> str:
        """The name of the source in marks."""
        return self.source_name or name_system(self.source)

    @property
    def target_mark(self) -> str:
        """The name of the target in marks."""
        return self.target_name or name_system(self.target)

    @property
    def state_directory(self) -> Path:
        """The directory with the positions of this mirror."""
        return self.state if self.state is not None else default_state(self.source, self.target)

    def check(self) -> None:
        """Raise SettingError for values that contradict each other."""
        for name in (self.source_mark, self.target_mark):
            if "," in name:
                raise SettingError(f"name {name!r}: names of systems must not contain a comma; choose another one")
        if self.source_mark == self.target_mark and not self.renames:
            raise SettingError(
                f"source and target are the same, {self.source_mark}; name two systems, or copy a topic under "
                "another name with --rename OLD=NEW"
            )

    def is_chosen(self, topic: str) -> bool:
        """Return whether a topic of the source is mirrored."""
        wanted = not self.topics or any(fnmatchcase(topic, one) for one in self.topics)
        return wanted and not any(fnmatchcase(topic, one) for one in self.exclude)

    @property
    def named_topics(self) -> list[str] | None:
        """The topics, if they are named without patterns; otherwise the source has to be asked."""
        if not self.topics or any(_WILD & set(one) for one in self.topics):
            return None
        return [one for one in dict.fromkeys(self.topics) if self.is_chosen(one)]

    def target_topic(self, topic: str) -> str:
        """Return the name at the target."""
        return self.renames.get(topic, topic)


def name_system(url: str) -> str:
    """Return one name for a system: its URL without options, or the absolute path of a directory."""
    if "://" not in url:
        return str(Path(url).absolute())
    parts = urlsplit(url.partition("?")[0])
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}".replace(",", "+")


def default_state(source: str, target: str) -> Path:
    """Return the directory for the state of a mirror: one for each pair of systems, in the user's state directory."""
    names = f"{name_system(source)} {name_system(target)}"
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "lading" / "mirrors" / hashlib.blake2b(names.encode(), digest_size=8).hexdigest()


def parse_renames(given: Sequence[str]) -> dict[str, str]:
    """Parse ``OLD=NEW`` texts. Raises SettingError for others."""
    found: dict[str, str] = {}
    for text in given:
        old, mark, new = text.partition("=")
        if not (old and mark and new) or old in found:
            raise SettingError(f"rename {text!r}: write OLD=NEW, each OLD once, e.g. flights=flights_copy")
        found[old] = new
    return found


def as_document(settings: MirrorSettings) -> dict[str, Any]:
    """Return the settings for a report about the mirror."""
    return {"source": settings.source_mark, "target": settings.target_mark, "carrier": settings.carrier}
