"""Durations, sizes, places in a topic and settings as people write them: ``90s``, ``7d``; ``500MB``; ``earliest``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ..model.errors import SettingError

_MICROSECONDS: Final = {
    "us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000,
    "w": 604_800_000_000,
}  # fmt: skip
_BYTES: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_NUMBER_ALONE: Final = re.compile(r"[0-9]*\.?[0-9]+")


def duration_us(text: str) -> int:
    """Return a duration in microseconds. Raises SettingError for other text."""
    return _parse_amount(text, _MICROSECONDS, "a duration like 90s, 1h or 7d")


def parse_size_bytes(text: str) -> int:
    """Return a size in bytes. Raises SettingError for other text."""
    return _parse_amount(text, _BYTES, "a size like 500MB or 1GiB")


def _parse_amount(text: str, units: Mapping[str, int], wanted: str) -> int:
    parts = [(number, unit.lower()) for number, unit in _NUMBER.findall(text)]
    if not text.strip() or _NUMBER.sub("", text).strip() or any(unit not in units for _, unit in parts):
        raise SettingError(f"{text!r} is not {wanted}")
    return round(sum(float(number) * units[unit] for number, unit in parts))


def parse_bound(option: str, text: str) -> str | int | datetime:
    """Return a place in a topic, as a ``Consumer`` takes it. Raises SettingError, which names the ``option``."""
    from .read_bounds import parse_place

    return parse_place(option, text)


def topic_settings(given: list[str]) -> dict[str, Any]:
    """Parse topic settings from ``KEY=VALUE`` words; an empty value resets a setting to its default."""
    settings: dict[str, Any] = {}
    for word in given:
        key, equals, text = word.partition("=")
        if not equals:
            raise SettingError(f"{word!r}: write KEY=VALUE, or KEY= to take a setting back")
        settings[key] = _parse_value(key, text)
    return settings


def _parse_value(key: str, text: str) -> Any:
    if not text:
        return None
    if text in ("true", "false"):
        return text == "true"
    if key.endswith(("_us", "_us_min", "_us_max")):
        # a bare 7 was 7 us: retention_age_us=7 then marked every message for deletion
        _require_unit(key, text, ("d", "s", "us"))
        return duration_us(text)
    if "bytes" in key:
        _require_unit(key, text, ("GB", "MB", "B"))
        return parse_size_bytes(text)
    if "share" in key and _NUMBER_ALONE.fullmatch(text):
        return float(text)
    return int(text) if text.isdecimal() and not key.endswith("topic") else text


def _require_unit(key: str, text: str, units: Sequence[str]) -> None:
    if text.strip().isdecimal():
        number = text.strip()
        *others, last = (f"{number}{unit}" for unit in units)
        raise SettingError(f"{key}={text}: the unit is missing; write {', '.join(others)} or {last}")


def format_duration(microseconds: float) -> str:
    """Format a duration for people: ``1.5 h``."""
    if microseconds < 1_000:
        return f"{microseconds:.3g} us"
    if microseconds < 1_000_000:
        return f"{microseconds / 1_000:.3g} ms"
    for unit, length in (("d", 86_400e6), ("h", 3_600e6), ("min", 60e6)):
        if microseconds >= length:
            return f"{microseconds / length:.3g} {unit}"
    return f"{microseconds / 1e6:.3g} s"
