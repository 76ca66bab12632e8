"""Throttling of wrong passwords: by the pair of name and address, and more loosely by either of them alone."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final, NamedTuple

from ...model.errors import Reason, Refusal

FORGET_US: Final = 60_000_000
"""How long after the last failure all are forgotten."""
WAIT_US_MAX: Final = 10_000_000
"""A login that would have to wait for longer is refused at once, unchecked."""
ENTRIES_MAX: Final = 10_000
"""Names and addresses that are remembered: clients may make up any number of names."""


_Key = tuple[str, str, str]


class SlowDown(NamedTuple):
    """After ``free_count`` failures each try is followed by a pause, which doubles up to ``pause_us_max``."""

    free_count: int
    pause_us: int
    pause_us_max: int
    wait_us_max: int | None = None
    """A login never waits longer than this for the pauses of others; None refuses it after ``WAIT_US_MAX``."""


BY_PAIR: Final = SlowDown(5, 100_000, 5_000_000)
BY_ADDRESS: Final = SlowDown(50, 20_000, 200_000)
"""Many clients may share one address, and one of them should not shut out the others."""
BY_NAME: Final = SlowDown(200, 10_000, 100_000, wait_us_max=500_000)
"""A user is not shut out by strangers at other addresses, however many they are."""


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_us: int = 0
    free_us: int = 0
    """When the next login may be checked."""


class LoginThrottle:
    """Says how long a login waits before it is checked. No clock: times come in."""

    def __init__(self) -> None:
        self._failures: OrderedDict[_Key, _Failures] = OrderedDict()
        self.failures_count = 0
        """All failures."""

    def wait_us(self, name: str, host: str, now_us: int) -> int:
        """Return how long to wait before checking a login, whose turn is taken by that. Raises Refusal if too long."""
        rows = [(rule, found) for rule, key in _keys_of(name, host) if (found := self._find(key, now_us)) is not None]
        waits_us = [_limit_wait_us(rule, found.free_us - now_us) for rule, found in rows]
        wait_us = max(waits_us, default=0)
        if wait_us > WAIT_US_MAX:
            self.failures_count += 1
            raise Refusal(Reason.INVALID_CREDENTIALS, "too many wrong logins; wait a minute and try again")
        for (rule, found), own_wait_us in zip(rows, waits_us, strict=True):
            # each rule counts its own pauses: those of a pair must not add up for its name, which others use too
            if pause_us := _pause_us(rule, found.count):
                found.free_us = now_us + own_wait_us + pause_us
        return wait_us

    def fail(self, name: str, host: str, now_us: int) -> None:
        """Count a wrong login."""
        self.failures_count += 1
        for rule, key in _keys_of(name, host):
            found = self._find(key, now_us)
            if found is None:
                if len(self._failures) >= ENTRIES_MAX:
                    self._failures.popitem(last=False)
                found = self._failures[key] = _Failures()
            found.count += 1
            found.last_us = now_us
            found.free_us = max(found.free_us, now_us + _pause_us(rule, found.count))
            self._failures.move_to_end(key)

    def succeed(self, name: str, host: str) -> None:
        """Forget the failures of a name at an address: its user knows the password."""
        self._failures.pop(("pair", name, network_of(host)), None)

    def _find(self, key: _Key, now_us: int) -> _Failures | None:
        found = self._failures.get(key)
        if found is not None and now_us - max(found.last_us, found.free_us) > FORGET_US:
            del self._failures[key]
            return None
        return found


def network_of(host: str) -> str:
    """Return what counts as one address: an IPv4 address, or the /64 of an IPv6 address, which one machine has."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))


def _keys_of(name: str, host: str) -> list[tuple[SlowDown, _Key]]:
    host = network_of(host)
    return [(BY_PAIR, ("pair", name, host)), (BY_ADDRESS, ("address", "", host)), (BY_NAME, ("name", name, ""))]


def _limit_wait_us(rule: SlowDown, wait_us: int) -> int:
    wait_us = max(wait_us, 0)
    return wait_us if rule.wait_us_max is None else min(wait_us, rule.wait_us_max)


def _pause_us(rule: SlowDown, count: int) -> int:
    over = count - rule.free_count
    return 0 if over <= 0 else min(rule.pause_us << min(over - 1, 20), rule.pause_us_max)
