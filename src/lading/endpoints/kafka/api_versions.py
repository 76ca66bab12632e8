"""ApiVersions: the APIs and versions that this broker serves.

* ApiVersions 0-4. 1 throttle time; 3 name and version of the client, tagged fields (KIP-511); 4 as 3.

A request in an unknown version gets a response in version 0 with UNSUPPORTED_VERSION and the list, as KIP-511 defines:
the client takes the highest that both know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...dialects.kafka.versions import API_VERSIONS, SERVED
from .handling import ConstantFields, Fields, Handler, Request, Session


def handlers(told: Sequence[int]) -> Mapping[int, Handler]:
    """Return the handler of ApiVersions, for the APIs ``told``.

    Without finalized features clients keep to transactions of version 1.
    """
    rows = [{"api_key": key, "min_version": SERVED[key].low, "max_version": SERVED[key].high} for key in told]
    # each client begins with this request, and 50 rows take half a millisecond to encode
    answer = ConstantFields({"error_code": 0, "api_keys": rows, "throttle_time_ms": 0})

    def api_versions(session: Session, request: Request) -> Fields:
        return answer

    return {API_VERSIONS: api_versions}
