"""Quotas: rates over time, what may be one, and who has which."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lading.broker.core.access.quotas import Quota, QuotaMeter, TokenBucket
from lading.broker.core.access.rights import ANONYMOUS, EVERYBODY
from lading.broker.core.change import complete
from lading.model.errors import Refusal
from tests.broker.room import NOW, SECOND
from tests.broker.test_access import PASSWORD, access_in, quick  # noqa: F401 - a fixture that all tests here use


def test_over_time_the_rate_is_exact() -> None:
    """Whoever rests for what each request says has sent, after a minute, the rate and a second of it in advance."""
    bucket, now, taken = TokenBucket(1_000), NOW, 0
    while now < NOW + 60 * SECOND:
        now += bucket.take(700, now) or SECOND // 1_000
        taken += 700
    assert 60_000 <= taken <= 61_000 + 700


def test_a_request_that_is_longer_than_a_second_of_the_rate_is_paid_for_behind() -> None:
    bucket = TokenBucket(1_000)
    assert bucket.take(1_000, NOW) == 0
    assert bucket.take(5_000, NOW) == 5 * SECOND
    assert bucket.take(0, NOW + 4 * SECOND) == SECOND
    assert bucket.take(100_000, NOW + 4 * SECOND) == 10 * SECOND
    # what is not used is kept for a second, not longer
    assert bucket.take(1_500, NOW + 3_600 * SECOND) == SECOND // 2


def test_connections_of_a_user_share_it_and_time_counts_in_percent() -> None:
    meter = QuotaMeter(Quota(request_percentage=10))
    assert meter.times_requests
    assert meter.take_time(100_000, NOW) == 0
    assert meter.take_time(50_000, NOW) == SECOND // 2
    assert (meter.take_produced(1 << 40, NOW), meter.take_read(1 << 40, NOW)) == (0, 0)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 1e16])
def test_what_is_no_rate(value: float) -> None:
    for name in ("producer_byte_rate", "consumer_byte_rate", "request_percentage"):
        with pytest.raises(Refusal, match=name):
            Quota(**{name: value})
    with pytest.raises(Refusal):
        Quota(request_percentage=101)


def test_who_has_which_and_how_long(tmp_path: Path) -> None:
    access = access_in(tmp_path)
    complete(access.add_user("root", PASSWORD, now_us=NOW, is_administrator=True))
    complete(access.add_user("ann", PASSWORD, now_us=NOW))
    ann, guest = access.accept("ann"), access.vouch("guest")
    assert ann.meter is None and guest.meter is None
    complete(access.set_quotas({"ann": Quota(1_000), EVERYBODY: Quota(10), ANONYMOUS: Quota(5)}))
    assert ann.meter is not None and ann.meter is access.accept("ann").meter
    assert ann.meter.take_produced(2_000, NOW) == SECOND
    # each of the others has a bucket of its own
    other = access.vouch("other")
    assert guest.meter is not other.meter is not None
    stranger = access.admit(is_open=True)
    assert stranger is not None and stranger.meter is not None and stranger.meter.take_produced(10, NOW) == SECOND
    # another user's change does not pay debts
    complete(access.set_quotas({"bob": Quota(1)}))
    assert ann.meter.take_produced(0, NOW) == SECOND
    again = access_in(tmp_path)
    assert again.table.quotas == access.table.quotas
    complete(access.change_user("ann", new_name="anna"))
    assert access.table.quotas["anna"] == Quota(1_000) and "ann" not in access.table.quotas
    complete(access.delete_user("anna"))
    assert "anna" not in access.table.quotas
    complete(access.set_quotas({EVERYBODY: Quota()}))
    assert guest.meter is None
