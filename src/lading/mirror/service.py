"""Many mirrors in one process: each follows its source in a thread, and one that fails is tried again by itself.

A mirror may be ended at any moment: what it had begun to send is written down, and its next run sends it again
(``state.py``). So a stop waits for works in hand, but never for servers that are away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from ..model.errors import LadingError, Unreachable
from ..model.version import __version__
from ..runtime.log_lines import origin
from ..runtime.metrics import Counter, Gauge
from ..runtime.status_server import METRICS, StatusPage, render_json, render_metrics
from ..transports.open import is_queue
from .mirrors_file import NamedMirror
from .run import MirrorProgress, MirrorReport, run_mirror

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logging.getLogger("lading")

MirrorPhase = Literal["starting", "running", "away", "failed", "stopped"]
"""``away``: a server does not respond, and the mirror waits for it. ``failed``: it ended, and is tried again."""

HEALTH: Final = "/health"
PAUSE_MIN_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
"""The pause before a failed mirror is tried again doubles up to this; after a run of this length it is the shortest
again."""
RATE_WINDOW_S: Final = 60.0
IDLE_STOP_S: Final = 0.7
"""How long a stop waits for mirrors without a work in hand: those that wait for messages look four times a second."""
BUSY_STOP_S: Final = 15.0
"""How long a stop waits for mirrors with a work in hand; their next run repeats an unfinished work."""


class MirrorWorker:
    """One mirror of the service: its thread, and its present figures."""

    def __init__(
        self,
        mirror: NamedMirror,
        stop: threading.Event,
        *,
        clock: Callable[[], float] = time.monotonic,
        date: Callable[[], float] = time.time,
        run: Callable[..., MirrorReport] = run_mirror,
    ) -> None:
        """``date`` returns seconds since 1970, ``clock`` those of a clock that never goes back."""
        self.name = mirror.name
        self.phase: MirrorPhase = "starting"
        self.is_idle = False
        """Whether everything known of the source was sent."""
        self.lag_messages: int | None = None
        self.topics_count = 0
        self.errors_count = 0
        self.last_error: str | None = None
        self.last_error_s: float | None = None
        self.last_sent_s: float | None = None
        self._mirror = mirror
        self._stop = stop
        self._clock = clock
        self._date = date
        self._run = run
        self._is_queue = is_queue(mirror.settings.source)
        self._sent_before = self._refused_before = 0
        self._now = MirrorProgress(0, 0)
        self._samples: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._samples_lock = threading.Lock()
        self.thread = threading.Thread(target=self._follow, name=f"mirror {mirror.name}", daemon=True)

    @property
    def messages(self) -> int:
        """Messages that were sent since the service began."""
        return self._sent_before + self._now.messages

    @property
    def refused(self) -> int:
        """Messages that the target refused and that were left out since then."""
        return self._refused_before + self._now.refused

    @property
    def messages_per_s(self) -> float:
        """Messages sent per second in the last minute."""
        now = self._clock()
        with self._samples_lock:
            self._forget_old_samples(now)
            begin, count = self._samples[0]
        return (self.messages - count) / max(now - begin, 1.0)

    @property
    def has_work_in_hand(self) -> bool:
        """Whether a stop has to wait for it."""
        return self.thread.is_alive() and self.phase == "running" and not self.is_idle

    def describe(self) -> dict[str, Any]:
        """Return the mirror's part of ``/health``."""
        settings = self._mirror.settings
        return {
            "state": self.phase,
            "source": settings.source_mark,
            "target": settings.target_mark,
            "topics": self.topics_count,
            "messages": self.messages,
            "lag_messages": self.lag_messages,
            "messages_per_s": round(self.messages_per_s, 1),
            "refused": self.refused,
            "errors": self.errors_count,
            "last_sent": _format_time(self.last_sent_s),
            "last_error": self.last_error,
            "last_error_at": _format_time(self.last_error_s),
        }

    def _follow(self) -> None:
        """Run the mirror until the service stops; after an error run it again."""
        pause_s = PAUSE_MIN_S
        while not self._stop.is_set():
            began = self._clock()
            self.phase = "starting"
            try:
                self._run(
                    self._mirror.settings, is_stopped=self._stop.is_set, on_progress=self._on_progress,
                    on_look=self._on_look, on_away=self._on_away, source_options=self._mirror.source_options,
                    target_options=self._mirror.target_options,
                )  # fmt: skip
            except Exception as error:
                # whatever ended it, the other mirrors continue and this one is tried again
                if self._clock() - began >= PAUSE_MAX_S:
                    pause_s = PAUSE_MIN_S
                self._note_failure(error, pause_s)
                self._stop.wait(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
        self.phase = "stopped"

    def _note_failure(self, error: Exception, pause_s: float) -> None:
        self._sent_before, self._refused_before, self._now = self.messages, self.refused, MirrorProgress(0, 0)
        self.phase = "away" if isinstance(error, Unreachable) else "failed"
        self._note_error(error)
        about = origin(f"mirror {self.name}")
        if isinstance(error, LadingError | OSError):
            log.warning("%s; trying again in %.0f s", error, pause_s, extra=about)
        else:
            log.error("%r; trying again in %.0f s", error, pause_s, exc_info=error, extra=about)

    def _note_error(self, error: Exception) -> None:
        self.errors_count += 1
        self.last_error = str(error) or repr(error)
        self.last_error_s = self._date()

    def _on_away(self, error: LadingError) -> None:
        self.phase, self.is_idle = "away", False
        self._note_error(error)

    def _on_look(self, now: MirrorProgress) -> None:
        self._note_progress(now)
        self.is_idle = not now.left

    def _on_progress(self, now: MirrorProgress) -> None:
        self._note_progress(now)
        self.is_idle = False
        self.last_sent_s = self._date()

    def _note_progress(self, now: MirrorProgress) -> None:
        if self.phase != "running":
            log.info("running", extra=origin(f"mirror {self.name}"))
        self.phase, self._now, self.topics_count = "running", now, now.topics
        self.lag_messages = None if self._is_queue else now.left
        moment = self._clock()
        with self._samples_lock:
            if moment - self._samples[-1][0] >= 1.0:
                self._samples.append((moment, self.messages))
            self._forget_old_samples(moment)

    def _forget_old_samples(self, now: float) -> None:
        while len(self._samples) > 1 and self._samples[1][0] <= now - RATE_WINDOW_S:
            self._samples.popleft()


class MirrorService:
    """The mirrors of a file, with their health and metrics."""

    def __init__(self, mirrors: Sequence[NamedMirror], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stop = threading.Event()
        self._clock = clock
        self._began = clock()
        self.workers = [MirrorWorker(mirror, self._stop, clock=clock) for mirror in mirrors]
        self.pages: dict[str, Callable[[], StatusPage]] = {
            METRICS: lambda: render_metrics(self),
            HEALTH: lambda: render_json(self.describe_health()),
        }
        """Pages of the service over HTTP, by path."""

    def start(self) -> None:
        """Start all mirrors."""
        for worker in self.workers:
            worker.thread.start()

    def stop(self, *, idle_s: float = IDLE_STOP_S, busy_s: float = BUSY_STOP_S) -> list[str]:
        """Stop all mirrors; return the names of those that did not finish the work in hand in time."""
        self._stop.set()
        began = time.monotonic()
        while True:
            passed_s = time.monotonic() - began
            left = [worker for worker in self.workers if worker.thread.is_alive()]
            busy = [worker.name for worker in left if worker.has_work_in_hand]
            if not left or passed_s >= busy_s or (passed_s >= idle_s and not busy):
                return busy
            left[0].thread.join(0.05)

    def describe_health(self) -> dict[str, Any]:
        """Return the document of ``/health``: ``degraded`` if a mirror does not run, with the reason of each."""
        problems = {
            worker.name: worker.last_error or "it has not begun yet"
            for worker in self.workers
            if worker.phase != "running"
        }
        return {
            "status": "degraded" if problems else "ok",
            "version": __version__,
            "uptime_s": round(self._clock() - self._began, 1),
            "problems": problems,
            "mirrors": {worker.name: worker.describe() for worker in self.workers},
        }

    def list_metrics(self) -> list[Counter | Gauge]:
        """Return the metrics of all mirrors with their present values."""
        return [_count(self.workers, *row) for row in _COUNTERS] + [_make_metric(self.workers, *row) for row in _GAUGES]

    def collect(self) -> Iterable[Metric]:
        """Yield every metric in the form of Prometheus: the protocol of a collector."""
        for source in self.list_metrics():
            yield from source.families()


_COUNTERS: Final[tuple[tuple[str, str, Callable[[MirrorWorker], float]], ...]] = (
    ("lading_mirror_messages", "Messages that the target took.", lambda one: one.messages),
    ("lading_mirror_refused_messages", "Messages that it refused, left out by on_refused.", lambda one: one.refused),
    ("lading_mirror_errors", "Errors that ended a mirror or had it wait, each tried again.",
     lambda one: one.errors_count),
)  # fmt: skip
_GAUGES: Final[tuple[tuple[str, str, Callable[[MirrorWorker], float | None]], ...]] = (
    ("lading_mirror_running", "1 if the mirror runs, 0 while it starts, waits for a server or has failed.",
     lambda one: float(one.phase == "running")),
    ("lading_mirror_lag_messages",
     "Messages of the source not yet sent, as of the last look (10 s); not of queues, which do not say.",
     lambda one: one.lag_messages),
    ("lading_mirror_messages_per_second", "Messages sent per second in the last minute.",
     lambda one: one.messages_per_s),
    ("lading_mirror_topics", "Topics of the source that are mirrored.", lambda one: one.topics_count),
    ("lading_mirror_last_sent_timestamp_seconds", "When messages were sent last, since 1970.",
     lambda one: one.last_sent_s),
    ("lading_mirror_last_error_timestamp_seconds", "When the last error came, since 1970.",
     lambda one: one.last_error_s),
)  # fmt: skip


def _count(
    workers: Sequence[MirrorWorker], name: str, text: str, read: Callable[[MirrorWorker], float]
) -> Counter | Gauge:
    counter = Counter(name, text, ("mirror",))
    counter.values.update({(worker.name,): float(read(worker)) for worker in workers})
    return counter


def _make_metric(
    workers: Sequence[MirrorWorker], name: str, text: str, read: Callable[[MirrorWorker], float | None]
) -> Counter | Gauge:
    values = [(worker.name, read(worker)) for worker in workers]
    return Gauge(name, text, ("mirror",), lambda: [((of,), float(value)) for of, value in values if value is not None])


def _format_time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
