"""Exchanges with the fork's real nsqd that stand for themselves, replayed against ours: the same answers to the byte.

Message ids and times differ; of answers with an id only the size is compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lading import testing
from tests.endpoints.nsq_client import NsqClient
from tests.interop.nsq_captures import DIFFERENCES, OWN_WORDS, Case, cases, channels, topics

QUIET_S = 0.02


@pytest.fixture(scope="module")
def nsqd() -> Iterator[testing.Running]:
    """A broker that answers as the fork does, with the topics and channels of the capture."""
    everything = cases()
    with testing.broker(nsq__compat="youzan", durability="os") as running:
        client = NsqClient(running.endpoints["nsqd_tcp"])
        forms = topics(everything)
        for topic, extended in forms.items():
            assert client.ask(f"INTERNAL_CREATE_TOPIC {topic} 0 {str(extended).lower()}\n".encode()) == b"OK"
        client.close()
        with httpx.Client(base_url="http://" + running.endpoints["nsqd_http"]) as web:
            for topic, channel in channels(everything):
                if topic in forms:
                    assert web.post(f"/channel/create?topic={topic}&channel={channel}").status_code == 200
        yield running


def replayed(address: str, case: Case) -> str:
    """What is different, "" where nothing is."""
    client = NsqClient.__new__(NsqClient)
    NsqClient.__init__(client, address)
    ids: dict[bytes, bytes] = {}
    try:
        for each in case.exchange:
            if each["dir"] == "c":
                if "hex" in each:
                    data = bytes.fromhex(each["hex"]).removeprefix(b"  V2")
                    client.send(re.sub(rb"(?s)((?:FIN|REQ|TOUCH) )(.{16})", lambda m: m[1] + ids.get(m[2], m[2]), data))
            elif "silent_s" in each:
                if not client.quiet(QUIET_S):
                    return "speaks where the real one is silent"
            elif each.get("closed"):
                if not client.closed():
                    return "stays open"
            elif "hex" in each and (found := _compared(client, each, ids)):
                return found
    except (EOFError, ConnectionError):
        return "closed the connection"
    except TimeoutError:
        return "is silent"
    finally:
        client.close()
    return ""


def _compared(client: NsqClient, wanted: dict[str, Any], ids: dict[bytes, bytes]) -> str:
    kind, data = client.frame(2.0)
    expected = bytes.fromhex(wanted["hex"])[8:]
    if kind != wanted["frame"]:
        return f"frame {kind} {data[:80]!r} for {expected[:80]!r}"
    if kind == 2:
        ids[expected[10:26]] = data[10:26]
        same = data[8:10] == expected[8:10] and (wanted.get("truncated_len") or data[26:] == expected[26:])
        return "" if same else f"message {data[8:120]!r} for {expected[8:120]!r}"
    if data.startswith(OWN_WORDS.encode()) and expected.startswith(OWN_WORDS.encode()):
        return ""
    traced = len(expected) == len(data) == 30 and data.startswith(b"OK") and expected.startswith(b"OK")
    return "" if traced or data == expected else f"{data[:160]!r} for {expected[:160]!r}"


def test_the_same_answers_as_the_real_server(nsqd: testing.Running) -> None:
    everything = [case for case in cases() if case.replayable]
    assert len(everything) > 220
    different = {case.name: why for case in everything if (why := replayed(nsqd.endpoints["nsqd_tcp"], case))}
    print(f"{len(everything)} exchanges replayed, {len(different)} differ on purpose")
    assert {name: why for name, why in different.items() if name not in DIFFERENCES} == {}
