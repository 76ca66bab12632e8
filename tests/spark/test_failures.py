"""Errors of ours inside the text of Spark's: pure functions, no Spark session."""

from __future__ import annotations

import pytest

from lading.model.errors import CorruptError, LadingError, LocalError, MalformedMessage, RemoteError, Unreachable
from lading.spark.failures import cause


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.errors.Unreachable", Unreachable),
        ("model.errors.MalformedMessage", MalformedMessage),
        ("model.errors.CorruptError", CorruptError),
        # these take more than a sentence, or make another sentence of it
        ("model.errors.Refusal", RemoteError),
        ("broker.kafka.group.MemberIdRequired", RemoteError),
        ("transports.kafka.cluster.KafkaRefusal", RemoteError),
        ("transports.nsq.connection.NsqRefusal", RemoteError),
    ],
)
def test_an_error_of_a_worker_keeps_its_sentence_and_its_kind(name: str, expected: type[LadingError]) -> None:
    told = (
        f"Traceback (most recent call last):\nlading.{name}: topic 'flights': it is\n  read only\n\n\tat org.apache.X"
    )
    found = cause(RuntimeError(told))
    assert type(found) is expected
    assert str(found) == "topic 'flights': it is read only"


def test_a_class_that_is_not_there_is_no_cause() -> None:
    assert cause(RuntimeError("lading.model.errors.Nothing: words")) is None
    assert cause(RuntimeError("words")) is None
    own = LocalError("words")
    assert cause(own) is own
