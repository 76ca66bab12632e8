"""The fuzz rule for zero-copy messages, see ``test_fuzz_rule.py``: their headers end with the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lading.dialects.iggy.zero_copy import fallback, messages, send_fallback, stored_fallback
from lading.dialects.iggy.zero_copy.layout import FORM_0_7, FORM_0_8, FORM_0_9, WireForm
from lading.dialects.registry import dialect, to_batch
from lading.kernels import engine
from lading.model.errors import MalformedMessage
from lading.model.scan_request import ScanRequest
from tests.dialects.iggy_zero_copy import indexed, message
from tests.guard_pages import Guarded
from tests.properties.test_fuzz_rule import cases, scanned

__all__ = ["cases"]

HEADERS: list[Any] = [
    (b"carrier", 2, b"UA"),
    (b"delay", 7, bytes(8)),
    ("Größe".encode(), 2, b"\xff"),
    (b"k", 1, b"x", 6),
]
TEXT_HEADERS: list[Any] = [*HEADERS[:3], (b"\\k", 1, b"x" * 70)]
FORMS = [FORM_0_7, FORM_0_8, FORM_0_9]


def seed(form: WireForm) -> bytes:
    headers = HEADERS if form.typed else TEXT_HEADERS
    return b"".join(message(n, b"p" * (n + 1), headers[:n], form=form, id_=n) for n in range(5))


@pytest.mark.parametrize("wants", range(8))
def test_stored_messages(cases: Any, wants: int) -> None:
    kernels = engine.load(messages.KERNEL_MODULE)
    guarded = Guarded(8192)
    how = (8, 8, 16), (b"\2carrier", b"\2delay")
    for data in cases(seed(FORM_0_9), 8):
        region = guarded.holding(data)
        assert scanned(kernels, region, wants, *how) == scanned(fallback, region, wants, *how), data.hex()


def test_passing_through_and_salvaging_stored_messages(cases: Any) -> None:
    kernels = engine.load(messages.STORED_KERNEL_MODULE)
    guarded = Guarded(8192)
    for number, data in enumerate(cases(seed(FORM_0_9))):
        region = guarded.holding(data)
        chunks = np.array([[0, region.size, 0, 5 if number % 2 else 0, 4, 0, 0, 0]])
        said: list[Any] = []
        for half in (kernels, stored_fallback):
            parts, found = np.zeros((1, 2), np.int64), np.zeros(15, np.int64)
            said.append([half.cut(region, chunks, number % 3, 4, 3, 250, parts), parts.tolist()])
            said[-1] += [half.survey(region, 0, region.size)]
            said[-1] += [half.intact(region, 0, 5, found, 4 * region.size), found.tolist()]
        assert said[0] == said[1], data.hex()


@pytest.mark.parametrize("form", FORMS)
def test_sent_messages(cases: Any, form: WireForm) -> None:
    kernels = engine.load(messages.SEND_KERNEL_MODULE)
    guarded, written = Guarded(8192), Guarded(16384)
    headers = HEADERS if form.typed else TEXT_HEADERS
    sent, start = indexed([message(0, b"p" * (n + 1), headers[:n], form=form, id_=n) for n in range(5)])
    for data in cases(sent, 3):
        region = guarded.holding(data)
        begin = min(start, region.size)
        said = []
        for half in (kernels, send_fallback):
            random_ = np.arange(1, 7, dtype=np.uint64)
            target = written.holding(bytes(messages.room(region.size - begin, begin // 16, form)))
            span = (region, 0, begin, region.size, form.head_bytes, form.typed)
            answer = half.restamp(*span, target, 0, 5, 1000, random_)
            said.append((answer, target[: answer[2]].tobytes(), random_.tolist()))
        assert said[0] == said[1], data.hex()


@pytest.mark.parametrize("form", FORMS)
def test_polled_messages_of_other_forms(cases: Any, form: WireForm) -> None:
    kernels = engine.load(messages.SEND_KERNEL_MODULE)
    guarded, written = Guarded(8192), Guarded(16384)
    for data in cases(seed(form), 3):
        region = guarded.holding(data)
        room = region.size + 8 * (region.size // form.head_bytes) + region.size // 9
        said: list[Any] = []
        for half in (kernels, send_fallback):
            target = written.holding(bytes(room))
            answer = half.lengthen(region, 0, region.size, *form, target)
            stored = target[: answer[2]].tobytes()
            said.append([answer, stored])
            again = np.frombuffer(stored, np.uint8)
            short = np.zeros(len(stored), np.uint8)
            size = half.shorten(again, 0, again.size, form.checksum, short)
            said[-1] += [size, short[: max(size, 0)].tobytes(), half.find_changed(again, 0, again.size)]
        assert said[0] == said[1], data.hex()
        # what was stored from a wrong message says so by no checksum of its own
        assert said[0][4] == -1


@pytest.mark.parametrize("form", FORMS)
def test_decoding_gives_columns_or_malformed(cases: Any, form: WireForm) -> None:
    for data in cases(seed(form), 3):
        try:
            run, _ = messages.read_polled(data, 0, form)
            for decoded in dialect("iggy_zero_copy").decode(run, ScanRequest(keys=("carrier",))):
                to_batch(decoded).validate(full=True)
        except MalformedMessage:
            continue
