"""Settings for a broker that opens only the listeners a test needs, so that tests beside it never meet its ports."""

from __future__ import annotations

from typing import Any

from lading.settings.settings import EndpointSettings
from lading.testing import FREE_PORT


def listen_only(**addresses: str) -> dict[str, Any]:
    """Return settings that open the listeners named, at the address given or at ``FREE_PORT``, and no other.

    The names come from the settings themselves: a listener that is added later stays shut in these tests too.
    """
    unknown = addresses.keys() - EndpointSettings.model_fields.keys()
    assert not unknown, f"no such listeners: {unknown}"
    others = [name for name in EndpointSettings.model_fields if name not in addresses]
    opened = {f"endpoints.{name}.address": address for name, address in addresses.items()}
    return {**opened, **{f"endpoints.{name}.enabled": False for name in others}}


ADMIN_ONLY = listen_only(admin=FREE_PORT)
