"""Single Produce requests that are taken together: the line that they begin with, and their responses (kafka.md 3)."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from lading.kernels.arrays import Bytes

from .produce import Outcome, ResponseLayout, encode_response
from .versions import PRODUCE

KERNEL_MODULE: Final = "lading.dialects.kafka.single_produce_kernels"

_KEY: Final = struct.Struct(">hh")
_BEFORE_OUTCOMES_BYTES: Final = 8
"""Length and correlation id."""
_OFFSET_IN_OUTCOME: Final = 6
"""The number of the partition and the error come before the offset."""


def encode_line(version: int, prefix: bytes) -> bytes:
    """Return what requests begin with that have these bytes between correlation id and partition.

    The correlation id is left out.
    """
    return _KEY.pack(PRODUCE, version) + prefix


def encode_template(layout: ResponseLayout, outcome: Outcome) -> Bytes:
    """Return the response to a request for one partition; its correlation id is still to be written."""
    return np.frombuffer(encode_response(layout, 0, (outcome,)), np.uint8)


def find_offset(layout: ResponseLayout) -> int:
    """Return the place of the offset in the response to a request for one partition."""
    return _BEFORE_OUTCOMES_BYTES + len(layout.around[0]) + _OFFSET_IN_OUTCOME
