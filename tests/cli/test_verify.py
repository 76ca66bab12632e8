"""``lading verify``: what it prints, and its exit codes."""

from __future__ import annotations

from lading import testing

from .conftest import Run, documents


def test_equal_and_different_topics(broker: testing.BrokerProcess, lading: Run) -> None:
    for name in ("this", "that"):
        for number in range(3):
            lading("message", "send", name, f"m{number}", "--header", "delay:int16=7", "--key", "k")
    a, b = f"{broker.url}/this", f"kafka://{broker.endpoints['kafka']}/that"
    equal = lading("verify", a, b, "--wait", "0")
    assert equal.stdout.startswith("partition 0: 3 messages equal, digest ") and "equal: 3 messages" in equal.stderr
    lading("message", "send", "this", "m3", "--header", "delay:int16=8", "--header", "via")
    lading("message", "send", "that", "m3", "--header", "delay:int32=8")
    different = lading("verify", a, b, "--wait", "0", code=1)
    assert different.stdout.splitlines() == [
        "partition 0: 3 messages equal",
        "partition 0, message 3: the messages differ (headers, kinds)",
        "  a: offset 3, key null, payload b'm3'",
        "     delay = int16: 8",
        "     via = raw: null",
        "  b: offset 3, key null, payload b'm3'",
        "     delay = int32: 8",
    ]
    *events, report = documents(lading("verify", a, b, "--wait", "0", "-o", "json", code=1))
    assert all(one["event"] == "progress" for one in events)
    assert (report["event"], report["equal"], report["messages"]) == ("verified", False, 3)
    assert report["differences"][0]["b"]["headers"] == [{"key": "delay", "kind": "int32", "value": 8}]
    assert lading("verify", a, b, "--wait", "0", "--compare", "payload,key").stderr.startswith("equal: 4 messages")
    odd = lading("verify", a, b, "--compare", "header", code=2)
    assert "'header' is unknown (did you mean 'headers'?)" in " ".join(odd.stderr.split())
    assert "does not exist" in lading("verify", a, f"{broker.url}/thatt", code=2).stderr
