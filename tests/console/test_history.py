"""What the console remembers of numbers over time."""

from __future__ import annotations

from lading.console.history import HOUR_S, SAMPLE_S, SAMPLES_MAX, History


def test_samples_are_those_of_the_last_hour() -> None:
    now_s = [0.0]
    history: History[str] = History(10, lambda: now_s[0])
    for number in range(2 * SAMPLES_MAX + 1):
        now_s[0] = number * SAMPLE_S / 2
        history.note("lag", number)
    assert (len(history.of("lag")), history.of("lag")[0]) == (SAMPLES_MAX, (SAMPLE_S, 2))
    assert history.of("lag")[-1] == (HOUR_S, 2 * SAMPLES_MAX)
    # nobody has looked for half an hour
    now_s[0] += HOUR_S / 2
    assert history.of("lag")[0][0] >= HOUR_S / 2
    assert history.of("nothing") == []


def test_the_subject_that_came_first_goes_when_there_are_too_many() -> None:
    history: History[int] = History(10, lambda: 0.0)
    for number in range(11):
        history.note(number, 1.0)
    assert [number for number in range(11) if not history.of(number)] == [0]
