"""Logins: who waits, how long, and what is logged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from lading.broker.broker import Broker
from lading.broker.core.access import credentials
from lading.broker.core.change import complete
from lading.endpoints.base import fair_runner
from lading.endpoints.base.authenticator import CHECKS, Authenticator
from lading.endpoints.base.change_runner import ChangeRunner
from lading.endpoints.base.fair_runner import FairRunner, call_once
from lading.endpoints.base.login_throttle import WAIT_US_MAX, LoginThrottle, network_of
from lading.endpoints.base.route_cache import UserRouteCaches
from lading.endpoints.base.services import FILTERS
from lading.model.errors import Reason, Refusal
from lading.runtime.turns import Turns
from tests.broker.room import NOW, opened, topic_of

R = TypeVar("R")
PASSWORD = "a password that nobody guesses"


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(credentials, "SCRYPT_LOG2_N", 4)
    monkeypatch.setattr(credentials, "SCRAM_ITERATIONS", 4096)
    broker = opened(tmp_path)
    complete(broker.access.add_user("root", PASSWORD, now_us=NOW, is_administrator=True))
    yield broker
    broker.stop()


def run(broker: Broker, work: Callable[[Authenticator], Awaitable[R]]) -> R:
    async def inner() -> R:
        with ThreadPoolExecutor(1) as workers:
            authenticator = Authenticator(broker, ChangeRunner(workers))
            try:
                async with asyncio.timeout(30):
                    return await work(authenticator)
            finally:
                authenticator.close()

    return asyncio.run(inner())


def reason_of(refused: pytest.ExceptionInfo[Refusal]) -> Reason:
    return refused.value.reason


def test_a_right_and_a_wrong_password(broker: Broker) -> None:
    async def work(authenticator: Authenticator) -> None:
        assert (await authenticator.log_in("root", PASSWORD, "192.0.2.1")).name == "root"
        for name, password in (("root", "wrong"), ("nobody", PASSWORD), ("root", ""), ("root", "\ud800")):
            with pytest.raises(Refusal) as refused:
                await authenticator.log_in(name, password, "192.0.2.1")
            assert reason_of(refused) is Reason.INVALID_CREDENTIALS
            # the same words: they do not tell whether there is such a user
            assert str(refused.value) == "wrong user name or password"

    run(broker, work)


def test_a_password_that_was_right_is_hashed_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []
    scrypt = credentials._hash_by_scrypt

    def count(password: bytes, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
        hashed.append(password)
        return scrypt(password, salt, log2_n, r, p)

    monkeypatch.setattr(credentials, "_hash_by_scrypt", count)

    async def work(authenticator: Authenticator) -> None:
        for _ in range(3):
            await authenticator.log_in("root", PASSWORD, "192.0.2.1")
        assert len(hashed) == 1
        await authenticator.change(broker.access.set_password("root", "another"))
        with pytest.raises(Refusal):
            await authenticator.log_in("root", PASSWORD, "192.0.2.1")
        await authenticator.log_in("root", "another", "192.0.2.1")

    run(broker, work)


def test_tokens(broker: Broker) -> None:
    async def work(authenticator: Authenticator) -> None:
        _, secret = await authenticator.change(broker.access.add_token("root", "ci", None, now_us=NOW))
        assert (await authenticator.log_in_with_token(secret, "192.0.2.1")).token == "ci"
        with pytest.raises(Refusal) as refused:
            await authenticator.log_in_with_token(secret[:-1], "192.0.2.1")
        assert reason_of(refused) is Reason.INVALID_TOKEN

    run(broker, work)


def test_changes_that_come_together_are_made_one_after_another(broker: Broker) -> None:
    async def work(authenticator: Authenticator) -> None:
        names = [f"user{number}" for number in range(8)]
        await asyncio.gather(
            *(authenticator.change(broker.access.add_user(name, PASSWORD, now_us=NOW)) for name in names)
        )
        assert list(broker.access.table.users) == ["root", *names]
        assert len({user.id for user in broker.access.table.users.values()}) == 9

    run(broker, work)


def test_wrong_logins_are_logged_once_a_minute_with_their_number(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(authenticator: Authenticator) -> None:
        for number in range(1_000):
            authenticator.note_failure(f"name{number}", "192.0.2.1")

    with caplog.at_level(logging.WARNING):
        run(broker, work)
    assert [record.getMessage() for record in caplog.records] == [
        "wrong logins: 1 since the last line, the newest as 'name0' from 192.0.2.1"
    ]


def test_a_thousand_wrong_passwords_a_second_are_slowed_down() -> None:
    throttle, checked = LoginThrottle(), 0
    for number in range(60_000):
        now_us = NOW + number * 1_000
        try:
            throttle.wait_us("root", "192.0.2.1", now_us)
        except Refusal:
            continue
        checked += 1
        throttle.fail("root", "192.0.2.1", now_us)
    # one every five seconds after the first ones, and those that wait their turn
    assert checked < 30
    # others are not shut out: neither the same user at another address nor another one at this address
    assert throttle.wait_us("root", "192.0.2.2", NOW + 60_000_000) <= 100_000
    assert throttle.wait_us("ann", "192.0.2.1", NOW + 60_000_000) <= WAIT_US_MAX // 10


def test_logins_that_wait_end_with_the_broker(broker: Broker) -> None:
    async def work(authenticator: Authenticator) -> None:
        # after so many the next one waits for seconds
        for _ in range(12):
            authenticator.note_failure("root", "192.0.2.1")
        waiting = [asyncio.ensure_future(authenticator.log_in("root", PASSWORD, "192.0.2.1")) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        authenticator.close()
        async with asyncio.timeout(1):
            found = await asyncio.gather(*waiting, return_exceptions=True)
        assert {each.reason for each in found if isinstance(each, Refusal)} <= {
            Reason.STOPPING, Reason.INVALID_CREDENTIALS
        }  # fmt: skip
        assert any(isinstance(each, Refusal) and each.reason is Reason.STOPPING for each in found)

    run(broker, work)


def attack(throttle: LoginThrottle, name: str, hosts: list[str], count: int) -> None:
    """Fail as often as the throttle allows, and take every turn that it gives."""
    for number in range(count):
        host = hosts[number % len(hosts)]
        with contextlib.suppress(Refusal):
            throttle.wait_us(name, host, NOW)
            throttle.fail(name, host, NOW)


@pytest.mark.parametrize("hosts", [1, 300])
def test_turns_of_attackers_are_not_those_of_others(hosts: int) -> None:
    throttle = LoginThrottle()
    attack(throttle, "root", [f"198.51.{number // 250}.{number % 250}" for number in range(hosts)], 10_000)
    assert throttle.wait_us("root", "192.0.2.1", NOW) <= 500_000
    assert throttle.wait_us("ann", "192.0.2.1", NOW) == 0


def test_a_machine_with_many_ipv6_addresses_is_one() -> None:
    throttle = LoginThrottle()
    for number in range(20):
        throttle.fail("root", f"2001:db8::{number:x}", NOW)
    assert throttle.wait_us("root", "2001:db8::ffff", NOW) > 0
    assert throttle.wait_us("root", "2001:db8:0:1::1", NOW) == 0
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1" and network_of("fe80::1%eth0") == "fe80::"


def test_a_user_who_was_here_before_waits_for_no_stranger(broker: Broker) -> None:
    """As 300 connections do: they take all turns of the name and of the address."""

    async def work(authenticator: Authenticator) -> None:
        await authenticator.log_in("root", PASSWORD, "192.0.2.1")
        for name in ("root", "nobody"):
            for _ in range(100):
                authenticator.note_failure(name, "192.0.2.1")
        strangers = [asyncio.ensure_future(authenticator.log_in("root", "wrong", "192.0.2.1")) for _ in range(300)]
        await asyncio.sleep(0)
        # not one turn of the loop
        with pytest.raises(StopIteration) as done:
            authenticator.log_in("root", PASSWORD, "192.0.2.1").send(None)
        assert done.value.value.name == "root"
        assert (await authenticator.log_in("root", PASSWORD, "192.0.2.2")).name == "root"
        # a right password at an address that it was never shown from tells no more than a wrong one
        assert not authenticator._known_passwords.matches(
            "root", PASSWORD, broker.access.credentials("root"), "192.0.2.3"
        )
        assert sum(each.done() for each in strangers) < 10
        authenticator.close()
        await asyncio.gather(*strangers, return_exceptions=True)

    run(broker, work)


def test_a_user_of_scram_who_was_here_before_waits_for_no_stranger(broker: Broker) -> None:
    """A right proof is known without a slow hash: only a wrong one waits, and is answered as slowly as before."""

    async def work(authenticator: Authenticator) -> None:
        await authenticator.begin_scram("root", "192.0.2.1")
        await authenticator.finish_scram("root", "192.0.2.1", is_right=True)
        for name in ("root", "nobody"):
            for _ in range(100):
                authenticator.note_failure(name, "192.0.2.1")
        # not one turn of the loop
        for step in (
            authenticator.begin_scram("root", "192.0.2.1"),
            authenticator.finish_scram("root", "192.0.2.1", is_right=True),
        ):
            with pytest.raises(StopIteration):
                step.send(None)
        strangers = [
            asyncio.ensure_future(authenticator.finish_scram("root", "192.0.2.1", is_right=False)),
            asyncio.ensure_future(authenticator.begin_scram("nobody", "192.0.2.1")),
        ]
        await asyncio.sleep(0)
        assert not any(stranger.done() for stranger in strangers)
        authenticator.close()
        await asyncio.gather(*strangers, return_exceptions=True)

    run(broker, work)


def test_checks_have_turns_by_address() -> None:
    async def work() -> None:
        checks, order, gate = FairRunner("checks", CHECKS), list[str](), threading.Event()

        def check(name: str) -> bool:
            gate.wait(10)
            order.append(name)
            return True

        attackers = [
            asyncio.ensure_future(checks.run("attacker", call_once(partial(check, f"attacker {number}"))))
            for number in range(100)
        ]
        await asyncio.sleep(0)
        honest = asyncio.ensure_future(checks.run("honest", call_once(partial(check, "honest"))))
        # a client that has gone costs nothing
        attackers[1].cancel()
        await asyncio.sleep(0)
        gate.set()
        assert await honest
        assert order.index("honest") <= 2
        results = await asyncio.gather(*attackers, return_exceptions=True)
        refused = [result for result in results if isinstance(result, Refusal)]
        # one runs, and so many wait
        assert len(refused) == 100 - 1 - CHECKS.client_waiting_max
        assert "attacker 1" not in order
        # all places are taken, by eight addresses: a ninth one gets one of them
        gate.clear()
        many = [
            asyncio.ensure_future(checks.run(f"a{number % 8}", call_once(partial(check, "attacker"))))
            for number in range(300)
        ]
        await asyncio.sleep(0)
        ninth = asyncio.ensure_future(checks.run("honest", call_once(partial(check, "honest"))))
        await asyncio.sleep(0)
        gate.set()
        assert await ninth
        checks.close()
        await asyncio.gather(*many, return_exceptions=True)

    asyncio.run(work())


def test_long_work_of_one_client_has_turns_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_runner, "TURN_S", 0.0)

    async def work() -> None:
        runner, steps = FairRunner("filters", FILTERS), list[str]()

        def count(client: str, number: int) -> Turns[str]:
            for _ in range(number):
                steps.append(client)
                yield
            return client

        many = [asyncio.ensure_future(runner.run("many", count("many", 50))) for _ in range(6)]
        few = [asyncio.ensure_future(runner.run("few", count("few", 3))) for _ in range(2)]
        assert await asyncio.gather(*few) == ["few", "few"]
        # each step and each end of the few is a turn, and between two of them the others have one, although six of
        # theirs came first
        assert len(steps) <= 6 + (6 + 2) + 4
        assert await asyncio.gather(*many) == ["many"] * 6
        assert steps.count("many") == 300
        runner.close()

    asyncio.run(work())


def test_failures_are_forgotten() -> None:
    throttle = LoginThrottle()
    for _ in range(10):
        throttle.fail("root", "192.0.2.1", NOW)
    assert throttle.wait_us("root", "192.0.2.1", NOW + 1) > 0
    assert throttle.wait_us("root", "192.0.2.1", NOW + 120_000_000) == 0
    for _ in range(10):
        throttle.fail("root", "192.0.2.1", NOW + 120_000_000)
    throttle.succeed("root", "192.0.2.1")
    assert throttle.wait_us("root", "192.0.2.1", NOW + 120_000_001) == 0


def test_routes_are_remembered_for_one_user(broker: Broker) -> None:
    caches: UserRouteCaches[bytes, str] = UserRouteCaches(broker.topology)
    topic_of(broker)
    ann, root = caches.of("ann"), caches.of("root")
    root.add(b"head", "allowed")
    assert caches.of("root") is root and ann.get(b"head") is None
    assert root.get(b"head") == "allowed"
    complete(broker.access.add_user("ann", PASSWORD, now_us=NOW))
    assert root.get(b"head") is None
