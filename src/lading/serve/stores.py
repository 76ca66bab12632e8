"""The choice of a broker's store: a data directory, or the one that the setting ``store`` names. Only this module
chooses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from ..model.errors import SettingError
from ..settings.endpoints import endpoint_key
from ..settings.settings import Settings

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.core.settings import BrokerSettings

LOG: Final = logging.getLogger("lading")
OpenBroker = Callable[[str, Path, "BrokerSettings"], AbstractContextManager["Broker"]]


class StoreKind(NamedTuple):
    """A kind of store, by the scheme of its URL."""

    opener: str
    """Name of the function that opens a broker on it: ``OpenBroker``."""
    endpoints: tuple[str, ...]
    """Prefixes of the names of the endpoints that work on the store; the others are left out."""
    others: str
    """A sentence for clients of the other endpoints."""
    durability: str
    """The line about durability in the log."""


STORES: Final[Mapping[str, StoreKind]] = {
    "kafka": StoreKind(
        "lading.kafka_log.gateway:open_gateway",
        ("iggy", "nsq", "admin"),
        "Kafka clients connect to the cluster itself, the schema registry needs a data directory",
        "a message is acknowledged when the cluster has it on all replicas in sync",
    )
}


def find_store(settings: Settings) -> StoreKind | None:
    """Return the kind of the setting ``store``, None for a data directory. Raises SettingError for any other."""
    if settings.store is None:
        return None
    scheme = settings.store.partition("://")[0]
    if scheme not in STORES:
        raise SettingError(
            f"store {settings.store!r}: not supported; write kafka://HOST:PORT[,HOST:PORT], or leave it out for a data "
            "directory"
        )
    return STORES[scheme]


@contextmanager
def prepare_store(settings: Settings) -> Iterator[Callable[[Settings], Settings]]:
    """Yield the function that adapts settings to the store: with another store than a data directory, ``data`` is a
    temporary directory that is removed at the end.

    Raises SettingError for settings that contradict the store.
    """
    kind = find_store(settings)
    if kind is None:
        yield lambda one: one
        return
    if "data" in settings.model_fields_set:
        raise SettingError(
            f"data {settings.data} and store {settings.store}: messages are in one of them; leave out --data or --store"
        )
    for name in _list_others(settings, kind):
        section = settings.endpoints.section(name)
        if section.enabled and "enabled" in section.model_fields_set:
            raise SettingError(
                f"{endpoint_key(name)}.enabled: not supported on store {settings.store}: {kind.others}; leave it out"
            )
    with TemporaryDirectory(prefix="lading-gateway-") as data:
        yield partial(_fit_to_store, kind, Path(data))


def _list_others(settings: Settings, kind: StoreKind) -> list[str]:
    """Return the names of the endpoints that a store does not have."""
    return [name for name in type(settings.endpoints).model_fields if not name.startswith(kind.endpoints)]


def _fit_to_store(kind: StoreKind, data: Path, settings: Settings) -> Settings:
    endpoints = settings.endpoints
    off = {name: endpoints.section(name).model_copy(update={"enabled": False}) for name in _list_others(settings, kind)}
    return settings.model_copy(update={"data": data, "endpoints": endpoints.model_copy(update=off)})


def log_store(settings: Settings) -> None:
    """Log what an acknowledgement promises, and which clients the store does not serve."""
    kind = find_store(settings)
    if kind is not None:
        LOG.info("store %s: %s; %s", settings.store, kind.durability, kind.others)


def get_opener(settings: Settings) -> OpenBroker | None:
    """Return the function that opens the broker of the setting ``store``, None for a data directory."""
    kind = find_store(settings)
    opener: OpenBroker | None = None if kind is None else resolve_name(kind.opener)
    return opener
