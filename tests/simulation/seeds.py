"""From a seed to the life that it stands for."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

from lading.kernels import engine
from tests.simulation.compacted_world import COMPACTED_FROM, CompactedWorld
from tests.simulation.nsq_world import NSQ_FROM, NsqWorld
from tests.simulation.positions_world import POSITIONS_FROM, PositionsWorld
from tests.simulation.work_world import WORKS_FROM, WorkWorld
from tests.simulation.world import World
from tests.simulation.written_world import WRITTEN_FROM, WrittenWorld

W = TypeVar("W", bound=World | NsqWorld)

KINDS: Final[Sequence[tuple[int, type[World | NsqWorld]]]] = (
    (COMPACTED_FROM, CompactedWorld), (WORKS_FROM, WorkWorld), (WRITTEN_FROM, WrittenWorld),
    (POSITIONS_FROM, PositionsWorld), (NSQ_FROM, NsqWorld), (0, World),
)  # fmt: skip
"""From which seed on a life is of which kind, the highest first."""

FAST = Path("/dev/shm")


class SimulationFault(AssertionError):
    """What a seed has found; the message says how to see it again."""


def run_seed(seed: int, data: Path | None = None) -> World | NsqWorld:
    """Simulate one seed. Raises SimulationFault with the command that does it again."""
    kind = next(kind for first, kind in KINDS if seed >= first)
    with _directory() as directory:
        world: World | NsqWorld | None = None
        try:
            world = kind(seed, data or directory)
            world.run()
        except Exception as error:
            at = f" at step {world.step}" if world is not None else ""
            raise SimulationFault(f"seed {seed}{at}: {error!r}; again: python -m tests.simulation {seed}") from error
        finally:
            if world is not None:
                world.broker.catalog.close()
    return world


def live(seed: int, kind: type[W]) -> W:
    """Simulate a seed that stands for a life of this kind."""
    world = run_seed(seed)
    assert isinstance(world, kind)
    return world


@contextmanager
def _directory() -> Iterator[Path]:
    place = FAST if FAST.is_dir() else None
    path = Path(tempfile.mkdtemp(prefix="lading-simulated-", dir=place))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@cache
def prepare() -> None:
    """Load what all seeds use, and keep this process quiet about what is meant to go wrong."""
    logging.getLogger("lading").setLevel(logging.CRITICAL)
    engine.load("lading.chunk.kernels")
