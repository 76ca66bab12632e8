"""An address of another protocol at ``kafka://`` is named as what it is."""

from __future__ import annotations

import pytest

from lading import read_arrow, testing
from lading.model.errors import CorruptError


def test_an_http_server_is_named() -> None:
    with testing.broker() as broker, pytest.raises(CorruptError, match="speaks HTTP, not Kafka; name the address of a"):
        read_arrow(f"kafka://{broker.endpoints['nsqd_http']}", "flights")
