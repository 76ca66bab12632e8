"""Users whom the certificates of clients name."""

from __future__ import annotations

from collections.abc import Sequence

from ...broker.core.access.access import AccessControl
from ...broker.core.access.principal import Principal
from ...model.errors import Reason, Refusal


def find_user(access: AccessControl, common_names: Sequence[str], ends_s: float) -> Principal:
    """Return the principal of a client certificate with these common names and this end (Unix time).

    Raises Refusal INVALID_CREDENTIALS if no such user exists, or the user may not log in by certificate.
    """
    if len(common_names) != 1:
        raise Refusal(Reason.INVALID_CREDENTIALS, f"its subject has {len(common_names)} common names, not one")
    return access.vouch(common_names[0], int(ends_s * 1_000_000))
