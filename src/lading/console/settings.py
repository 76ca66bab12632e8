"""The settings of the console."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ..model.address import Address
from .masks import NO_MASKS, Masks

DEFAULT_ADDRESS: Final = Address("127.0.0.1", 7071)


class ListedBroker(NamedTuple):
    """A broker as the switcher of the pages shows it."""

    name: str
    source: str
    """The URL without its options."""
    is_read_only: bool


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The source that the console reads, its address, whether it may change anything, and other files that it shows.

    ``pipelines`` are TOML files, ``mirrors`` state directories of mirrors or their reports as JSON; ``state`` is the
    directory in which redrives record the messages they sent.
    """

    url: str
    address: Address = DEFAULT_ADDRESS
    is_read_only: bool = False
    pipelines: tuple[Path, ...] = ()
    mirrors: tuple[Path, ...] = ()
    state: Path = Path()
    registry: str | None = None
    """The schema registry that has the schemas of payloads."""
    tables: str | None = None
    """The URL of the catalog of ``lading tables``, in which each topic is a table."""
    mirror_services: tuple[str, ...] = ()
    """Addresses of services of ``lading mirror run``."""
    shows_files: bool = True
    """Whether pipelines, quarantines and mirrors are shown, which are read with the rights of this process."""
    shows_own_mirrors: bool = True
    """Whether the mirrors that this user ran by hand are shown if no other mirrors are named."""
    broker: str | None = None
    """The name of the source in a file of brokers."""
    brokers: tuple[ListedBroker, ...] = ()
    """All brokers of that file; empty without one."""
    masks: Masks = NO_MASKS
    """Fields of messages that no page shows."""
    sampled_groups_max: int = 1_000
    """How many groups have samples of their lag: some 60 kB each."""
