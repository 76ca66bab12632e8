"""Linearizability of simulated lives by porcupine, which nobody here wrote (Go).

``python -m tests.simulation.porcupine SEED`` simulates one seed and prints porcupine's result.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.interop.go_programs import Conversation, client
from tests.simulation.nsq_world import NsqWorld
from tests.simulation.operations import Operation, list_operations, list_positions
from tests.simulation.positions_world import PositionCall, PositionsWorld
from tests.simulation.seeds import prepare, run_seed
from tests.simulation.world import World


@contextmanager
def open_checker() -> Iterator[Conversation]:
    """Build the program at the first time, and run it. Raises Unavailable where that cannot be."""
    conversation = Conversation(client("linearizability", Path(__file__).parent))
    try:
        yield conversation
    finally:
        conversation.close()


def check(checker: Conversation, operations: list[Operation], positions: Sequence[PositionCall] = ()) -> str:
    """Return ``Ok``, ``Illegal``, or ``Unknown`` if it takes too long."""
    result: str = checker.ask(operations=operations, positions=list_positions(positions))["result"]
    return result


def check_life(checker: Conversation, world: World) -> str:
    """Return the result for all that the clients of a life did and saw."""
    return check(checker, list_operations(world), world.calls if isinstance(world, PositionsWorld) else ())


def explain(results: dict[int, str]) -> str:
    """Return which lives are not linearizable, by seed, and the command that checks the first of them again."""
    return f"again: python -m tests.simulation.porcupine {min(results)}: {results}" if results else ""


def main() -> None:
    seed = int(sys.argv[1])
    prepare()
    with open_checker() as checker:
        world = run_seed(seed)
        if isinstance(world, NsqWorld):
            raise SystemExit(f"seed {seed}: a life under NSQ's clients is held against its own model, not by porcupine")
        print(f"seed {seed}: {check_life(checker, world)}")


if __name__ == "__main__":
    main()
