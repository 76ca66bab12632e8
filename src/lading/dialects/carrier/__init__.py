"""Carriers: message facts that travel through a dialect that cannot hold them, so that they can be rebuilt exactly
(design.md Carrier).

The bytes are specified in docs/reference/carrier.md, with vectors in tests/vectors/carrier.json.
"""

from .carry import Carried, Unholdable, carry
from .encoding import NAME, is_reserved
from .restore import restore

__all__ = ["NAME", "Carried", "Unholdable", "carry", "is_reserved", "restore"]
