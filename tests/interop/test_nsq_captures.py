"""Exchanges with the fork's real nsqd that stand for themselves, replayed against ours: the same answers to the byte.

Message ids and times differ; of answers with an id only the size is compared.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import httpx
import pytest

from lading import testing
from tests.endpoints.nsq_client import NsqClient
from tests.interop.nsq_captures import (
    DIFFERENCES,
    HTTP_DIFFERENCES,
    OWN_WORDS,
    STAYS,
    Case,
    cases,
    channels,
    figures,
    http_exchanges,
    http_meaning,
    published_over_http,
    topics,
    whole,
)

QUIET_S = 0.02
ANSWER_S = 5.0
DIFFERENT_S = 0.3
"""Who is known to answer differently may be silent."""


@pytest.fixture(scope="module")
def nsqd() -> Iterator[testing.BrokerProcess]:
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


class Replay:
    """The exchanges, one after the other, over connections of our own."""

    def __init__(self, running: testing.BrokerProcess) -> None:
        self._address = running.endpoints["nsqd_tcp"]
        self._web = httpx.Client(base_url="http://" + running.endpoints["nsqd_http"])
        self._staying: list[NsqClient] = []

    def different(self, case: Case) -> str:
        """What is different, "" where nothing is."""
        client = NsqClient(self._address, magic=case.magic)
        try:
            found = self._replayed(client, case)
        except (EOFError, ConnectionError):
            found = "closed the connection"
        except TimeoutError:
            found = "is silent"
        if case.name in STAYS and not found:
            self._staying.append(client)
            return ""
        client.close()
        self._leave()
        return found

    def _replayed(self, client: NsqClient, case: Case) -> str:
        ids: dict[bytes, bytes] = {}
        prepared = case.prepared()
        timeout_s = DIFFERENT_S if case.name in DIFFERENCES else ANSWER_S
        for each in case.exchange:
            if each["dir"] == "c":
                if "hex" in each:
                    data = whole(each).removeprefix(case.magic)
                    data = re.sub(rb"(?s)((?:FIN|REQ|TOUCH) )(.{16})", lambda m: m[1] + ids.get(m[2], m[2]), data)
                    with suppress(ConnectionError) if case.reset else nullcontext():
                        client.send(data)
            elif "silent_s" in each:
                if not client.quiet(QUIET_S):
                    return "speaks where the real one is silent"
                self._leave()
            elif each.get("closed"):
                if not client.closed(timeout_s):
                    return "stays open"
            elif "hex" in each:
                if each["frame"] == 2 and prepared:
                    self._publish(prepared)
                    prepared = []
                if found := _compared(client, each, ids, timeout_s):
                    return found
        return "" if case.asked is None else self._figures(case.asked)

    def _figures(self, asked: dict[str, Any]) -> str:
        """What the nsqd says of its topic and the connection, a moment after what that said last."""
        expected = figures(asked["resp"])
        until = time.monotonic() + ANSWER_S
        while (told := figures(self._web.get(asked["path"], headers=asked["headers"]).text)) != expected:
            if time.monotonic() > until:
                return f"figures {told} for {expected}"
        return ""

    def _publish(self, commands: list[bytes]) -> None:
        publisher = NsqClient(self._address)
        for command in commands:
            assert publisher.ask(command) == b"OK"
        publisher.close()

    def _leave(self) -> None:
        for client in self._staying:
            client.close()
        self._staying.clear()

    def close(self) -> None:
        """Leave."""
        self._leave()
        self._web.close()


def _compared(client: NsqClient, wanted: dict[str, Any], ids: dict[bytes, bytes], timeout_s: float) -> str:
    kind, data = client.frame(timeout_s)
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


@pytest.mark.turns(2, part=0)
def test_the_same_answers_as_the_real_server(nsqd: testing.BrokerProcess) -> None:
    known = cases()
    everything = [case for case in known if case.replayable]
    assert len(everything) > 285
    assert sum(case.asked is not None for case in everything) > 15
    replay = Replay(nsqd)
    different = {case.name: why for case in everything if (why := replay.different(case))}
    replay.close()
    print(f"{len(everything)} of {len(known)} connections replayed, {len(different)} differ on purpose")
    assert {name: why for name, why in different.items() if name not in DIFFERENCES} == {}


@pytest.mark.turns(2, part=1)
def test_the_same_answers_over_http() -> None:
    """Requests in the order in which they were made, to nsqd and nsqlookupd that have the two topics and a channel."""
    everything = http_exchanges()
    different, published = {}, []
    with testing.broker(nsq__compat="youzan", durability="os") as running:
        client = NsqClient(running.endpoints["nsqd_tcp"], extend_support=True)
        for topic, extended in (("hep_49607", "true"), ("hpl_49607", "false")):
            assert client.ask(f"INTERNAL_CREATE_TOPIC {topic} 0 {extended}\n".encode()) == b"OK"
        with httpx.Client() as web:
            faces = {name: "http://" + running.endpoints[f"{name}_http"] for name in ("nsqd", "nsqlookupd")}
            assert web.post(f"{faces['nsqd']}/channel/create?topic=hep_49607&channel=ch").status_code == 200
            for each in everything:
                size = re.fullmatch(r"<(\d+) bytes>", each["body"] or "")
                body = b"x" * int(size[1]) if size else (each["body"] or "").encode()
                url = faces["nsqd" if each["server"] == "nsqd" else "nsqlookupd"] + each["path"]
                answer = web.request(each["method"], url, headers=each["headers"], content=body)
                told, expected = http_meaning(answer.text), http_meaning(each["resp"] or "")
                if (answer.status_code, told) != (each["status"], expected):
                    different[each["case"]] = f"{answer.status_code} {answer.text} for {each['status']} {each['resp']}"
                if answer.status_code == 200 and each["path"].startswith("/pub_ext"):
                    published.append(each["case"])
        # and what the messages became
        assert client.ask(b"SUB hep_49607 ch\n") == b"OK"
        client.send(b"RDY 100\n")
        made = [(one.id[8:], json.loads(one.ext), one.body) for one in client.messages(len(published))]
        client.close()
    ours = dict(zip(published, made, strict=True))
    expected_messages = published_over_http()
    assert len(ours.keys() & expected_messages.keys()) > 15
    different |= {
        name: f"{ours[name]} for {message}"
        for name, message in expected_messages.items()
        if name in ours and ours[name] != message
    }
    print(f"{len(everything)} requests replayed, {len(different)} differ on purpose")
    assert {name: why for name, why in different.items() if name not in HTTP_DIFFERENCES} == {}
