"""Whether a broker still serves others, asked beside whatever is being done to it."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from lading import testing

STALL_S_MAX = 1.0
HANG_S = 30.0


class Health:
    """Asks ``/health`` over one connection; AssertionError if the broker keeps it waiting for more than a second.

    Time in which the machine gave the loop no core, though it wanted one, is no fault of the broker.
    """

    def __init__(self, broker: testing.BrokerProcess) -> None:
        self._client = httpx.Client(base_url=f"http://{broker.endpoints['admin']}", timeout=HANG_S)
        self._schedules = [Path(f"/proc/{broker.pid}/schedstat"), Path("/proc/self/schedstat")]

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def check(self, what: object) -> None:
        """After ``what``, which a failure names."""
        began_s, waited_s = time.monotonic(), self._waited_s()
        try:
            status = self._client.get("/health").status_code
        except httpx.TransportError as error:
            raise AssertionError(f"after {what!r} the broker does not tell its health: {error!r}") from None
        stalled_s = time.monotonic() - began_s - (self._waited_s() - waited_s)
        assert status == 200, f"after {what!r} the health is {status}"
        assert stalled_s <= STALL_S_MAX, f"after {what!r} others wait for {stalled_s:.1f} s"

    def _waited_s(self) -> float:
        """How long both processes' first threads have waited for a core so far."""
        return sum(int(each.read_text().split()[1]) for each in self._schedules) / 1e9
