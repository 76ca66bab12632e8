"""Users whom the certificates of clients name."""

from __future__ import annotations

from collections.abc import Sequence

from ...broker.core.access.access import AccessControl
from ...broker.core.access.principal import Principal
from ...model.errors import Reason, Refusal


def find_user(access: AccessControl, common_names: Sequence[str], ends_s: float) -> Principal:
    """Return for whom a client acts whose certificate has a subject of these common names and ends at this time (Unix).

    Raises Refusal INVALID_CREDENTIALS if that is no user, or one who may not log in so.
    """
    if len(common_names) != 1:
        raise Refusal(Reason.INVALID_CREDENTIALS, f"its subject has {len(common_names)} common names, not one")
    return access.vouch(common_names[0], int(ends_s * 1_000_000))
