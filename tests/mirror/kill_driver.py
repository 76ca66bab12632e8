"""Runs mirrors again and again and kills them at random moments: ``kill_driver KILLS SOURCE TOPIC STATE TARGET=NAME…``.

Each run is a fork of this process, so that what it costs is the mirror and not its imports. It is killed a random time
after it began, or after it sent its first work. Prints by name how many runs were killed, and how far each had come;
the last one ends by itself.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

from lading.mirror import run, source
from lading.mirror.run import MirrorProgress, run_mirror
from lading.mirror.settings import MirrorSettings
from lading.mirror.state import MirrorState

SEED = 17
DELAY_S_MAX = 0.1


def main(arguments: list[str]) -> int:
    kills, from_, topic, states = int(arguments[0]), *arguments[1:3], Path(arguments[3])
    # one chunk is one work
    source.FETCH_BYTES, run.WORK_BYTES = 1, 1  # type: ignore[misc]
    rng = random.Random(SEED)
    figures = {}
    for pair in arguments[4:]:
        target, _, name = pair.partition("=")
        settings = MirrorSettings(from_, target, [topic], renames={topic: name}, state=states / name)
        killed, positions = 0, []
        for number in range(kills):
            killed += run_and_kill(settings, rng.uniform(0, DELAY_S_MAX), at_once=number % 3 == 0)
            positions.append(position(states / name, topic))
        figures[name] = {"killed": killed, "positions": positions, "left": run_mirror(settings).messages}
    print(json.dumps(figures))
    return 0


def run_and_kill(settings: MirrorSettings, delay_s: float, *, at_once: bool) -> bool:
    """Run the mirror in a child that is killed; return whether that was before it ended."""
    child = os.fork()
    if child == 0:
        end = threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGKILL))
        end.daemon = True

        def arm(now: MirrorProgress) -> None:
            if not end.is_alive():
                end.start()

        try:
            if at_once:
                end.start()
            run_mirror(settings, on_progress=arm if not at_once else lambda now: None)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def position(directory: Path, topic: str) -> int:
    """Where the mirror goes on."""
    state = MirrorState(directory)
    found = state.positions(topic)
    state.close()
    return found[0].offset if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
