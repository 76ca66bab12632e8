"""Messages of other dialects in the form of one endpoint's readers: with carriers, or without if these are off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...broker.core.settings import CARRIER_ON
from ...dialects.carrier import Carried, carry
from ...dialects.carrier.carry import without_carriers

if TYPE_CHECKING:
    import pyarrow as pa

    from ...broker.core.topology import Topic
    from ...model.protocol import Capabilities
    from .services import Services

Fit = Callable[["pa.RecordBatch"], Carried]
"""Brings a Batch into the form of a target; from any thread."""


class Carrying:
    """Whether readers of an endpoint get carriers, by topic; ``target`` is what the endpoint's readers get.

    ``default`` is the endpoint's setting. Messages that lose something because carriers are off are counted.
    """

    def __init__(self, services: Services, name: str, target: Capabilities, *, default: bool) -> None:
        self._labels = (name,)
        self._target = target
        self._default = default
        self._uncarried = services.metrics.uncarried.values
        # workers count too
        self._lock = threading.Lock()

    def is_on(self, topic: Topic) -> bool:
        """Return whether messages of a topic get carriers: by the topic's own setting, else by the endpoint's."""
        chosen = topic.settings.carrier
        return self._default if chosen is None else chosen == CARRIER_ON

    def fit(self, topic: Topic) -> Fit:
        """Return what brings messages of a topic into the form of the endpoint's readers, as settings are now."""
        return self._add_carrier if self.is_on(topic) else self._remove_carrier

    def _add_carrier(self, batch: pa.RecordBatch) -> Carried:
        return carry(batch, self._target)

    def _remove_carrier(self, batch: pa.RecordBatch) -> Carried:
        bare, lost = without_carriers(carry(batch, self._target))
        if lost:
            with self._lock:
                self._uncarried[self._labels] += lost
        return bare
