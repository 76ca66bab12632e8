"""Ids of streams and topics: the lowest that is free, found without looking at all that are taken."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from lading.broker.core.free_ids import FreeIds

TOPICS = 10_000


@given(st.lists(st.tuples(st.sampled_from(("create", "give", "delete")), st.integers(1, 12)), max_size=60))
def test_it_is_the_lowest_whatever_was_created_and_deleted(steps: list[tuple[str, int]]) -> None:
    taken: set[int] = set()
    ids = FreeIds(taken.__contains__)
    for step, ident in steps:
        if step == "create":
            found = ids.find()
            assert found == next(one for one in count(1) if one not in taken)
            taken.add(found)
        elif step == "give":
            # a client of Iggy may choose the id of a topic
            taken.add(ident)
        elif ident in taken:
            taken.remove(ident)
            ids.give_back(ident)


def test_a_creation_looks_at_few_of_many() -> None:
    taken: set[int] = set()
    looks = 0

    def is_taken(ident: int) -> bool:
        nonlocal looks
        looks += 1
        return ident in taken

    ids = FreeIds(is_taken)
    for _ in range(TOPICS):
        taken.add(ids.find())
    for ident in range(1, TOPICS, 2):
        taken.remove(ident)
        ids.give_back(ident)
    for _ in range(TOPICS):
        taken.add(ids.find())
    assert len(taken) == TOPICS + TOPICS // 2
    assert looks < 6 * TOPICS
