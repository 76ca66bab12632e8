"""What the rows of the protocols say that messages keep, by the names that the vectors of the carrier use."""

from __future__ import annotations

from typing import Final

from lading.dialects.protocols import PROTOCOLS
from lading.model.protocol import Capabilities

TARGETS: Final[dict[str, Capabilities]] = {
    f"{one.name}_{use}" if use else one.name: kept for one in PROTOCOLS for use, kept in one.capabilities.items()
}
