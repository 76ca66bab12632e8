"""A lazy dataclass is what ``dataclasses.dataclass(frozen=True, slots=True)`` makes, only sooner."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from lading.model.lazy_dataclass import COMPILED_LATER, lazy_dataclass


class Whole:
    """What both kinds of dataclass are made of."""

    name: str
    size: int = 1
    tags: list[str] = field(default_factory=list, compare=False)
    secret: str = field(default="s", repr=False, kw_only=True)
    limit: ClassVar[int] = 7

    def __post_init__(self) -> None:
        if self.size > self.limit:
            raise ValueError("too large")


Make = type[Any]


def declare(make: Any) -> Make:
    """Return a class of the fields above."""
    body = {name: value for name, value in vars(Whole).items() if name not in ("__dict__", "__weakref__")}
    kind: Make = make(frozen=True, slots=True)(type("Whole", (), dict(body)))
    return kind


@lazy_dataclass(frozen=True, slots=True)
class Point:
    """A class that pickle finds."""

    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Place(Point):
    """A frozen dataclass that inherits from a lazy one."""

    name: str = ""


@lazy_dataclass(frozen=True, slots=True)
class Named:
    """Methods of its own."""

    name: str

    def __repr__(self) -> str:
        return "own repr"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


@pytest.fixture(params=[lazy_dataclass, dataclass], ids=["lazy", "stdlib"])
def whole(request: pytest.FixtureRequest) -> Iterator[Make]:
    yield declare(request.param)


def test_values_fill_fields(whole: Make) -> None:
    value = whole("a", 2, ["t"], secret="x")
    assert (value.name, value.size, value.tags, value.secret, value.limit) == ("a", 2, ["t"], "x", 7)
    assert whole("a").tags is not whole("a").tags


def test_a_text_shows_what_a_value_is(whole: Make) -> None:
    assert repr(whole("a", tags=["t"])) == "Whole(name='a', size=1, tags=['t'])"


def test_equality_and_hash_go_by_compared_fields(whole: Make) -> None:
    first, same, other = whole("a", tags=["t"]), whole("a"), whole("b")
    assert first == same
    assert hash(first) == hash(same)
    assert first != other
    assert first != ("a", 1, "s")
    assert len({first, same, other}) == 2


def test_the_first_call_may_be_any(whole: Make) -> None:
    value, other = object.__new__(whole), object.__new__(whole)
    for made in (value, other):
        for name, of in (("name", "a"), ("size", 1), ("tags", []), ("secret", "s")):
            object.__setattr__(made, name, of)
    assert hash(value) == hash(("a", 1, "s"))
    assert value == other


def test_values_cannot_be_changed(whole: Make) -> None:
    value = whole("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        value.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del value.name
    assert not hasattr(value, "__dict__")


def test_wrong_arguments_are_refused(whole: Make) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required positional argument: 'name'"):
            whole()
        with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
            whole("a", nothing=1)
    with pytest.raises(ValueError, match="too large"):
        whole("a", 8)


def test_dataclass_functions_take_it(whole: Make) -> None:
    value = whole("a", secret="x")
    assert dataclasses.replace(value, size=3) == whole("a", 3, secret="x")
    assert dataclasses.asdict(value) == {"name": "a", "size": 1, "tags": [], "secret": "x"}
    assert [found.name for found in dataclasses.fields(value)] == ["name", "size", "tags", "secret"]
    assert whole.__match_args__ == ("name", "size", "tags")


def test_methods_are_those_of_the_standard_library_after_the_first_call() -> None:
    lazy, standard = declare(lazy_dataclass), declare(dataclass)
    uses: dict[str, Callable[[Any], object]] = {
        "__init__": lambda _: lazy("a"),
        "__repr__": repr,
        "__eq__": lambda value: value == lazy("a"),
        "__hash__": hash,
    }
    assert uses.keys() == COMPILED_LATER.keys()
    value: Any = None
    for name, use in uses.items():
        before = dict(vars(lazy))
        made = use(value)
        value = made if value is None else value
        assert {key for key, method in vars(lazy).items() if method is not before[key]} == {name}
        ours, theirs = (inspect.unwrap(vars(kind)[name]) for kind in (lazy, standard))
        assert ours.__code__.co_code == theirs.__code__.co_code, name
        assert ours.__qualname__ == theirs.__qualname__
    assert inspect.signature(lazy) == inspect.signature(standard)


def test_copies_and_pickles_are_equal() -> None:
    value = Point(1, 2)
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value


def test_a_frozen_dataclass_inherits_from_it() -> None:
    assert repr(Place(1, 2, "here")) == "Place(x=1, y=2, name='here')"
    assert Place(1, 2, "here") != Point(1, 2)
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclass(type("Loose", (Point,), {}))


def test_a_subclass_has_its_methods() -> None:
    class Far(Point):
        def __init__(self, x: int) -> None:
            super().__init__(x, 9)

    assert (Far(1).x, Far(1).y) == (1, 9)


def test_own_methods_stay() -> None:
    assert repr(Named("a")) == "own repr"
    assert Named("a") == Named("b")
    assert hash(Named("a")) == 1


def test_other_kinds_of_dataclass_are_refused() -> None:
    with pytest.raises(TypeError, match=r"take dataclasses\.dataclass"):
        lazy_dataclass(frozen=False, slots=True)


def test_threads_may_be_the_first_together() -> None:
    for _ in range(20):
        kind = declare(lazy_dataclass)
        made: list[Any] = []
        barrier = threading.Barrier(8)

        def make(kind: Make = kind, barrier: threading.Barrier = barrier, made: list[Any] = made) -> None:
            barrier.wait()
            made.append(kind("a"))

        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [kind("a")] * 8
