"""ApiVersions: the APIs and versions that this broker serves.

* ApiVersions 0-4. 1 throttle time; 3 name and version of the client, tagged fields (KIP-511); 4 as 3.

A request in an unknown version gets a response in version 0 with UNSUPPORTED_VERSION and the list, as KIP-511 defines:
the client uses the highest version that both know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...dialects.kafka.versions import API_VERSIONS, SERVED
from .handling import ConstantFields, Fields, Handler, Request, Session

FEATURES: Final[Mapping[str, int]] = {"group.version": 1, "share.version": 1, "transaction.version": 2}
"""Feature levels by name; only these three exist: groups of KIP-848, share groups of KIP-932, transactions
of KIP-890.
"""
FEATURES_EPOCH: Final = 0
"""The epoch of the levels, which are the same as long as this version of Lading runs."""


def handlers(told: Sequence[int]) -> Mapping[int, Handler]:
    """Return the handler of ApiVersions, for the APIs ``told``.

    If level 2 of transactions is finalized, clients begin transactions by Produce, and get a new epoch at the end of
    each; a level of groups makes them offer ``group.protocol=consumer``.
    """
    rows = [{"api_key": key, "min_version": SERVED[key].low, "max_version": SERVED[key].high} for key in told]
    # encoded once: each client begins with this request, and encoding 50 rows takes half a millisecond
    supported = [{"name": name, "min_version": 0, "max_version": level} for name, level in FEATURES.items()]
    finalized = [
        {"name": name, "min_version_level": level, "max_version_level": level} for name, level in FEATURES.items()
    ]
    answer = ConstantFields(
        {
            "error_code": 0,
            "api_keys": rows,
            "throttle_time_ms": 0,
            "supported_features": supported,
            "finalized_features": finalized,
            "finalized_features_epoch": FEATURES_EPOCH,
        }
    )

    def api_versions(session: Session, request: Request) -> Fields:
        return answer

    return {API_VERSIONS: api_versions}
