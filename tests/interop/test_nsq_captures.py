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
from tests.interop.nsq_captures import (
    DIFFERENCES,
    HTTP_DIFFERENCES,
    OWN_WORDS,
    Case,
    cases,
    channels,
    http_exchanges,
    http_meaning,
    topics,
    why_left_out,
)

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
    if commands := case.prepared():
        publisher = NsqClient(address)
        for command in commands:
            assert publisher.ask(command) == b"OK"
        publisher.close()
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
    kind, data = client.frame(5.0)
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
    whole = cases()
    everything = [case for case in whole if case.replayable]
    assert len(everything) > 240
    different = {case.name: why for case in everything if (why := replayed(nsqd.endpoints["nsqd_tcp"], case))}
    print(f"{len(everything)} of {len(whole)} connections replayed, {len(different)} differ on purpose")
    assert {name: why for name, why in different.items() if name not in DIFFERENCES} == {}


def test_the_same_answers_over_http() -> None:
    """Requests in the order in which they were made, to nsqd and nsqlookupd that have the two topics and a channel."""
    everything = http_exchanges()
    asked = [each for each in everything if not why_left_out(each["case"])]
    different = {}
    with testing.broker(nsq__compat="youzan", durability="os") as running:
        client = NsqClient(running.endpoints["nsqd_tcp"])
        for topic, extended in (("hep_49607", "true"), ("hpl_49607", "false")):
            assert client.ask(f"INTERNAL_CREATE_TOPIC {topic} 0 {extended}\n".encode()) == b"OK"
        client.close()
        with httpx.Client() as web:
            nsqd = "http://" + running.endpoints["nsqd_http"]
            assert web.post(f"{nsqd}/channel/create?topic=hep_49607&channel=ch").status_code == 200
            for each in asked:
                url = (nsqd if each["server"] == "nsqd" else "http://" + running.endpoints["nsqlookupd_http"]) + each[
                    "path"
                ]
                size = re.fullmatch(r"<(\d+) bytes>", each["body"] or "")
                body = b"x" * int(size[1]) if size else (each["body"] or "").encode()
                answer = web.request(each["method"], url, headers=each["headers"], content=body)
                if (answer.status_code, http_meaning(answer.text)) != (
                    each["status"],
                    http_meaning(each["resp"] or ""),
                ):
                    different[each["case"]] = f"{answer.status_code} {answer.text} for {each['status']} {each['resp']}"
    print(f"{len(asked)} of {len(everything)} requests replayed, {len(different)} differ on purpose")
    assert {name: why for name, why in different.items() if name not in HTTP_DIFFERENCES} == {}
