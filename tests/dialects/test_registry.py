"""The registry: codes as they stand in envelopes, and a plain answer for one that nobody knows."""

from __future__ import annotations

import pytest

from lading.dialects.codes import IGGY_CLASSIC, NATIVE
from lading.dialects.protocols import DIALECTS
from lading.dialects.registry import dialect
from lading.model.errors import LocalError


def test_names_and_codes_lead_to_the_same_dialect() -> None:
    assert (NATIVE, IGGY_CLASSIC) == (1, 2)
    for code, name, _ in DIALECTS.values():
        assert dialect(code) is dialect(name)
        assert (dialect(code).code, dialect(code).name) == (code, name)


@pytest.mark.parametrize("unknown", [0, 99, "iggy", ""])
def test_an_unknown_dialect_is_named_with_the_known_ones(unknown: int | str) -> None:
    with pytest.raises(LocalError, match=r"native \(1\), iggy_classic \(2\)"):
        dialect(unknown)
