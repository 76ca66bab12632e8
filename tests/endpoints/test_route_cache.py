"""What is remembered of heads, and when it is forgotten."""

from __future__ import annotations

from types import SimpleNamespace

from lading.endpoints.base import route_cache
from lading.endpoints.base.route_cache import RouteCache


def test_a_route_is_forgotten_when_topics_change() -> None:
    topology = SimpleNamespace(version=3)
    routes: RouteCache[bytes, str] = RouteCache(topology)
    assert routes.get(b"head") is None
    routes.add(b"head", "here")
    assert routes.get(b"head") == "here"
    topology.version = 4
    assert routes.get(b"head") is None


def test_a_route_that_created_its_topic_is_remembered_and_older_ones_are_not() -> None:
    topology = SimpleNamespace(version=3)
    routes: RouteCache[bytes, str] = RouteCache(topology)
    routes.add(b"older", "there")
    topology.version = 4
    routes.add(b"head", "here")
    assert routes.get(b"head") == "here"
    assert routes.get(b"older") is None


def test_made_up_heads_take_bounded_memory_and_new_ones_are_still_remembered() -> None:
    routes: RouteCache[int, int] = RouteCache(SimpleNamespace(version=1))
    for number in range(3 * route_cache.ROUTES_MAX):
        routes.add(number, number)
        assert routes.get(number) == number
    known = sum(routes.get(number) is not None for number in range(3 * route_cache.ROUTES_MAX))
    assert 0 < known <= route_cache.ROUTES_MAX
