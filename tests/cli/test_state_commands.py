"""``lading state`` and the settings and retention of topics, as a person uses them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from lading.client import units
from lading.model.errors import SettingError

from .conftest import Done, Run, documents


def document(done: Done) -> Any:
    return json.loads(done.stdout)


def payloads(done: Done) -> list[str]:
    return [json.loads(line)["payload"] for line in done.stdout.splitlines()]


def test_mark_count_poll_and_find_the_dead_letter(lading: Run) -> None:
    lading("topic", "create", "flights", "--set", "dead_letter_topic=flights-dead", "--set", "retention_age_us=7d")
    lading("message", "send", "flights", "--lines", "-H", "delay:uint16=9", stdin="one\ntwo\nthree\n")
    lading("message", "send", "flights", "late", "-H", "delay:uint16=900")
    chosen = ("state", "set", "flights", "--state", "poisoned", "--where", "delay > 60 AND state = 'available'")
    counts = {"topic": "flights", "state": "poisoned", "seen": 4, "matched": 1, "changed": 1}
    assert document(lading(*chosen, "--dry-run", "-o", "json")) == counts | {"dry_run": True}
    assert "became poisoned, of 4 looked at" in lading(*chosen, "--reason", "no such delay").stderr
    assert document(lading(*chosen, "-o", "json"))["matched"] == 0
    lading("state", "set", "flights", "--state", "unavailable", "--offset", "0", "--offset", "1")
    lading("state", "set", "flights", "--state", "available", "--range", "1-1")
    (row,) = documents(lading("state", "list", "flights", "-o", "json"))
    assert row == {
        "partition": 0, "messages": 4, "available": 2, "unavailable": 1, "poisoned": 1, "marked_for_deletion": 0,
    }  # fmt: skip
    assert documents(lading("state", "list", "flights", "--ranges", "-o", "json")) == [
        {"partition": 0, "first": 0, "last": 0, "messages": 1, "state": "unavailable"},
        {"partition": 0, "first": 3, "last": 3, "messages": 1, "state": "poisoned"},
    ]
    assert payloads(lading("message", "poll", "flights", "-o", "json")) == ["two", "three"]
    assert payloads(lading("message", "poll", "flights", "--states", "available", "-o", "json")) == ["two", "three"]
    everything = payloads(lading("message", "poll", "flights", "--states", "all", "-o", "json"))
    assert everything == ["one", "two", "three", "late"]
    deadline = time.monotonic() + 10
    dead: list[str] = []
    while not dead and time.monotonic() < deadline:
        dead = payloads(lading("message", "poll", "flights-dead", "-o", "json"))
    assert dead == ["late"]


def test_what_cannot_be_done_is_a_sentence(lading: Run) -> None:
    lading("topic", "create", "two", "-p", "2")
    cases = {
        ("state", "set", "two", "--state", "poisoned"): "select the messages",
        ("state", "set", "two", "--state", "poisoned", "--offset", "1"): "pass the one that the offsets belong to",
        ("state", "set", "two", "--state", "poisoned", "--range", "8-3", "-p", "0"): "two offsets like 100-199",
        ("state", "set", "two", "--state", "poisoned", "--offset", "1", "--where", "a = 1"): "select the messages",
        ("state", "set", "two", "--state", "poisoned", "--where", "a ="): "syntax error in the filter",
        ("state", "set", "two", "--state", "poisoned", "-p", "0", "--range", "0-5"): "cannot be set",
        ("state", "list", "too"): "did you mean 'two'",
        ("state", "list", "two", "-p", "7"): "no partition 7",
        ("topic", "set", "two", "dead_letter=x"): "did you mean dead_letter_topic",
        ("topic", "set", "two", "dead_letter_topic=two"): "cannot be its own",
        ("topic", "set", "two", "retention_age_us=soon"): "a duration like",
        ("topic", "set", "two", "retention_age_us=7"): "retention_age_us=7: the unit is missing; write 7d, 7s or 7us",
        ("topic", "create", "three", "--set", "retention_bytes=5"): "the unit is missing; write 5GB, 5MB or 5B",
        ("topic", "set", "two", "retention_age_us=7us"): "Set retention_age_us of 'two' to 7 us, less than a second?",
        ("topic", "create", "three", "--set", "retention_age_us=0.5ms"): "to 500 us, less than a second?",
        ("topic", "set", "two", "hide_states"): "write KEY=VALUE",
        ("topic", "retention", "two", "--within", "late"): "a duration like",
    }
    for arguments, sentence in cases.items():
        assert sentence in lading(*arguments, code=2).stderr, arguments


def test_poll_says_which_messages_their_state_hides(lading: Run) -> None:
    lading("topic", "create", "veiled", "-p", "2")
    for partition in ("0", "0", "1"):
        lading("message", "send", "veiled", "x", "-p", partition)
    assert "hidden" not in lading("message", "poll", "veiled").stderr
    lading("state", "set", "veiled", "--state", "marked_for_deletion", "--range", "0-1", "-p", "0")
    lading("state", "set", "veiled", "--state", "poisoned", "--offset", "0", "-p", "1")
    sentence = "3 messages of veiled are hidden: 1 poisoned, 2 marked for deletion; --states all shows them"
    assert sentence in lading("message", "poll", "veiled").stderr
    only = lading("message", "poll", "veiled", "-p", "1").stderr
    assert "1 message of veiled is hidden: 1 poisoned; --states all shows them" in only
    assert "hidden" not in lading("message", "poll", "veiled", "--states", "all").stderr
    assert "hidden" not in lading("message", "poll", "veiled", "-o", "json").stderr


def test_a_retention_below_a_second_is_set_if_confirmed(lading: Run) -> None:
    lading("topic", "create", "brief")
    said = lading("topic", "set", "brief", "retention_age_us=250ms", "retention_mark_us=7us", "--yes").stderr
    assert "retention_age_us = 250 ms" in said


def test_a_compacted_topic_shows_its_rules_and_its_dirty_share(lading: Run) -> None:
    words = ("--set", "compaction_lag_us_min=1h", "--set", "dirty_share_min=0.2", "--set", "segment_bytes=4MB")
    lading("topic", "create", "fares", "--cleanup-policy", "compact", *words)
    shown = document(lading("topic", "show", "fares", "-o", "json"))
    assert shown["settings"] == {
        "cleanup_policy": "compact", "compaction_lag_us_min": 3_600_000_000, "dirty_share_min": 0.2,
        "segment_bytes": 4_000_000,
    }  # fmt: skip
    assert [row["dirty_share"] for row in shown["partitions"]] == [0.0]
    text = lading("topic", "show", "fares")
    assert "dirty share" in text.stdout and "compaction_lag_us_min = 1 h" in text.stderr
    assert "compact, compact,delete" in lading("topic", "create", "x", "--cleanup-policy", "squash", code=2).stderr


def test_settings_and_retention_of_a_topic(lading: Run) -> None:
    lading("topic", "create", "kept")
    lading("message", "send", "kept", "x")
    assert "kept keeps everything" in lading("topic", "retention", "kept").stderr
    changed = lading(
        "topic", "set", "kept", "retention_age_us=1h", "retention_bytes=10GB", "hide_states=true", "-o", "json"
    )
    assert document(changed) == {
        "retention_age_us": 3_600_000_000, "retention_bytes": 10**10, "hide_states": True,
    }  # fmt: skip
    assert "retention_age_us = 1 h" in lading("topic", "show", "kept").stderr
    assert document(lading("topic", "show", "kept", "-o", "json"))["settings"]["hide_states"] is True
    assert "is due within 10m" in lading("topic", "retention", "kept", "--within", "10m").stderr
    ahead = lading("topic", "retention", "kept", "--within", "2h")
    assert "age" in ahead.stdout and "(in " in ahead.stdout
    (part,) = document(lading("topic", "retention", "kept", "--within", "2h", "-o", "json"))["partitions"]
    assert [(one["first"], one["end"]) for one in part["going"]] == [(0, 1)]
    assert (
        document(lading("topic", "set", "kept", "retention_age_us=", "retention_bytes=", "hide_states=", "-o", "json"))
        == {}
    )


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("90s", 90_000_000),
        ("1.5h", 5_400_000_000),
        ("7 d", 604_800_000_000),
        ("250ms", 250_000),
        ("4m30s", 270_000_000),
        ("2w", 1_209_600_000_000),
    ],
)
def test_durations(text: str, microseconds: int) -> None:
    assert units.duration_us(text) == microseconds


@pytest.mark.parametrize("text", ["", "soon", "3", "1x", "-1s", "1s2"])
def test_no_durations(text: str) -> None:
    with pytest.raises(SettingError):
        units.duration_us(text)


def test_sizes_and_spans() -> None:
    assert [units.parse_size_bytes(text) for text in ("12", "500MB", "1GiB", "1.5 kB")] == [
        12,
        500_000_000,
        1 << 30,
        1_500,
    ]
    assert [units.format_duration(value) for value in (250_000, 90e6, 3_600e6, 7 * 86_400e6)] == [
        "250 ms",
        "1.5 min",
        "1 h",
        "7 d",
    ]
