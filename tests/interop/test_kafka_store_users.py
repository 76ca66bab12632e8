"""Users of gateways: set up at one, they count at all; on a cluster of its own, as all its gateways have them."""

from __future__ import annotations

import httpx
import pytest

from lading import testing
from lading.testing import BrokerProcess
from tests.interop.store_gateways import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
ANN = ("ann", "correct horse battery")
BOB = ("bob", "battery staple horse")


def ask(gateway: BrokerProcess, path: str, auth: tuple[str, str] | None = None) -> int:
    return httpx.get(f"http://{gateway.endpoints['admin']}{path}", auth=auth, timeout=60).status_code


def test_users_of_one_gateway_count_at_all() -> None:
    with testing.broker() as cluster:
        store = {"store": f"kafka://{cluster.endpoints['kafka']}"}
        with testing.broker(settings=store) as one, testing.broker(settings=store) as other:
            assert ask(other, "/topics") == 200
            added = add(one, ANN, None, administrator=True)
            assert added == 201
            wait_until(lambda: ask(other, "/topics") == 401)
            assert ask(other, "/topics", ANN) == 200 and ask(other, "/topics", ("ann", "wrong")) == 401
            assert add(other, BOB, ANN) == 201
            wait_until(lambda: ask(one, "/me", BOB) == 200)
            # one that starts later has them from the beginning
            with testing.broker(settings=store) as third:
                assert ask(third, "/topics") == 401 and ask(third, "/topics", ANN) == 200
            gone = httpx.delete(f"http://{one.endpoints['admin']}/users/bob", auth=ANN, timeout=60)
            assert gone.status_code == 204
            wait_until(lambda: ask(other, "/me", BOB) == 401)


def add(
    gateway: BrokerProcess, user: tuple[str, str], auth: tuple[str, str] | None, *, administrator: bool = False
) -> int:
    name, password = user
    document = {"password": password, "administrator": administrator}
    url = f"http://{gateway.endpoints['admin']}/users/{name}"
    return httpx.post(url, json=document, auth=auth, timeout=60).status_code
