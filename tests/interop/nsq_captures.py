"""Exchanges with the fork's real nsqd, and where ours differs on purpose."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.endpoints.nsq_client import message_of

CAPTURE: Final = Path(__file__).parents[1] / "vectors" / "nsqd_capture.jsonl"

OWN_WORDS: Final = "E_INVALID_JSON_HEADER fail to parse json header:"
"""Behind this the real server prints its parser's own words, and we ours."""

DIFFERENCES: Final = {
    "mpub_ext_bad_json_first": "the rest of the items is not taken for commands (nsq.md 3.6, 3)",
    "mpub_ext_bad_json_then_pub": "as above",
    "mpub_ext_partial_bad_middle": "as above",
    "pub_max_size_on_ext": "a message of exactly the largest size fits on ext topics too (3.6, 7)",
    "pub_ext_max": "as above",
    "pub_ext_extlen_65507": "no ext ends the server (3.6, 2)",
    "poison_pub_ext_65507": "as above",
    "ext_big_delivered (2)": "as above",
    "pub_ext_extlen_65534": "as above (3.6, 1)",
    "pub_ext_extlen_65535": "as above",
    "op_req_bad_ms": "the text of the error is without the id's raw bytes",
    "filter_t4_bad_key": "a filter that is none is passed over, where the real one throws all messages away",
    "tag_stall_untagged_message.A": "a message that nobody takes now does not hold up those behind it",
    "tag_stall_untagged_message.untagged_later": "as above",
    "tag_rdy0_blocks.untagged": "as above",
    "tag_other_tag_only.Y": "as above",
}
LEFT_OUT: Final = {
    r"op_timeout_1s|op_touch_1s|heartbeat.*": "seconds of waiting, told of in the tests of the endpoint",
    r"compat_.*": "the option allow_ext_compatible is not there",
    r"http_pub_ext_delivered": "replayed behind the requests over HTTP that published its messages",
}
"""Exchanges that are not replayed, as patterns of their names, and why."""

PREPARED: Final = r"op_.*|disconnect_requeue_attempts|filter_plain_topic|channel_starts_at_end"
"""Exchanges whose messages somebody else published: those that the real server delivered."""

STAYS: Final = frozenset({"tag_share.A1", "tag_leave_fallback.A_rdy0"})
"""Connections that stay open until the next one has been silent, or has ended."""

MADE_BY_ITSELF: Final = frozenset({"pre_49483"})
"""Topics whose channels were made by the exchange that reads them."""

OWN_FIELDS: Final = frozenset({"queue_offset", "http_port", "tcp_port", "start_time", "hostname", "remote_address"})
"""Fields of answers over HTTP that differ with the server and the moment."""

HTTP_DIFFERENCES: Final = {
    "http_pub_ext_null_with_header": "a header is added to null as to {}, where the real one fails",
    "http_pub_ext_percent_bad": "an ext is decoded once, where the real one does it twice",
    "http_pub_ext_double_encoded": "as above",
    "http_pub_ext_null": "null becomes an empty object",
    "http_pub_ext_big_int": "numbers stay as they were given",
    "http_pub_ext_percent_once": "an ext is decoded once, where the real one does it twice",
    "http_pub_ext_plus": "as above",
    "http_stats_json": "depth counts messages, not bytes; figures of hours and of its queue file are not there",
    "http_stats_json_old": "as above",
    "http_stats_text": "as above",
    "http_message_get": "the route is not there (the real one answers 500 whatever is asked)",
    "http_config_get": "options cannot be changed while it runs",
    "config_set_ext_compat": "as above",
    "config_unset_ext_compat": "as above",
    "lookupd_topics": "the recorded server had topics of earlier exchanges",
    "lookupd_nodes": "as above",
    "lookupd_lookup_meta": "meta is told, which one server of the fork alone leaves out",
    "lookupd_lookup_write": "as above",
    "lookupd_topic_create": "topics are made without a coordinator, which one server of the fork alone lacks",
}


def why_left_out(name: str) -> str:
    """The reason that an exchange is not replayed, "" where it is."""
    return next((why for pattern, why in LEFT_OUT.items() if re.fullmatch(pattern, name)), "")


@dataclass(frozen=True)
class Case:
    """One connection: what went over it, the line of the capture it has, and the figures asked for meanwhile."""

    name: str
    number: int
    exchange: list[dict[str, Any]] = field(hash=False)
    asked: dict[str, Any] | None = field(default=None, hash=False)

    @property
    def replayable(self) -> bool:
        """Whether it is replayed."""
        return not why_left_out(self.name)

    @property
    def magic(self) -> bytes:
        """What the client began with."""
        return bytes.fromhex(self.exchange[0]["hex"])[:4]

    @property
    def reset(self) -> bool:
        """Whether the real server was gone while the client still sent."""
        return any("send_error" in each for each in self.exchange)

    def prepared(self) -> list[bytes]:
        """Commands that put the messages there which the real server delivered."""
        if re.fullmatch(PREPARED, self.name) is None:
            return []
        text = b"".join(bytes.fromhex(each.get("hex", "")) for each in self.exchange if each["dir"] == "c")
        (topic, *_) = re.findall(rb"SUB\w* ([-\w.]+) ", text)
        detail = 12 if b"SUB_ADVANCED" in text else 0
        found: dict[bytes, bytes] = {}
        for each in self.exchange:
            data = bytes.fromhex(each.get("hex", ""))[8:]
            if each.get("frame") == 2:
                found.setdefault(data[10:26], data[26 + detail :])
        return [b"PUB " + topic + b"\n" + len(body).to_bytes(4, "big") + body for body in found.values()]


def cases() -> list[Case]:
    """The TCP connections in the order in which they were made; names that are there again are numbered."""
    lines = [json.loads(line) for line in CAPTURE.read_text().splitlines()]
    times: Counter[str] = Counter()
    found = []
    for number, line in enumerate(lines):
        if line.get("transport") != "tcp":
            continue
        name = line["case"]
        times[name] += 1
        before = lines[number - 1]
        asked = before if re.search(FIGURES, before.get("path", "")) else None
        found.append(Case(name if times[name] == 1 else f"{name} ({times[name]})", number, line["exchange"], asked))
    return found


FIGURES: Final = r"/stats\?format=json&topic=(f|t11)"
"""Requests for figures that were made while the next connection of the capture was there."""

TOPIC_FIGURES: Final = ("topic_name", "topic_partition", "message_count", "is_ext", "channel_num")
CHANNEL_FIGURES: Final = (
    "channel_name", "in_flight_count", "deferred_count", "message_count", "requeue_count", "timeout_count", "paused",
    "skipped", "client_num",
)  # fmt: skip
CLIENT_FIGURES: Final = (
    "client_id", "hostname", "version", "state", "ready_count", "in_flight_count", "message_count", "finish_count",
    "requeue_count", "timeout_count", "sample_rate", "desired_tag", "ext_filter", "msg_timeout",
)  # fmt: skip


def figures(text: str) -> Any:
    """What of ``/stats`` does not differ with server and moment."""
    (topic,) = json.loads(text)["data"]["topics"]
    (channel,) = topic["channels"]
    clients = [{name: one.get(name) for name in CLIENT_FIGURES} for one in channel["clients"]]
    for one in clients:
        # what is empty or false may be left out
        one["ext_filter"] = {name: value for name, value in (one["ext_filter"] or {}).items() if value}
    return (
        {name: topic[name] for name in TOPIC_FIGURES},
        {name: channel[name] for name in CHANNEL_FIGURES},
        clients,
    )


def whole(each: dict[str, Any]) -> bytes:
    """What a client sent; where the capture holds only the beginning, its filling is made again."""
    data = bytes.fromhex(each["hex"])
    size_bytes = each.get("truncated_len")
    if not size_bytes:
        return data
    line, _, rest = data.partition(b"\n")
    if line.startswith(b"PUB_EXT"):
        end = len(line) + 1 + 6 + int.from_bytes(rest[4:6], "big")
        data = data.ljust(end - 2, b"x") + b'"}'
    return bytes(data.ljust(size_bytes, b"x"))


def client_lines(case: Case) -> list[tuple[list[str], bool, dict[str, Any]]]:
    """Per answer: the words of the command before it, whether the client has extend support, and the answer."""
    found = []
    extended, words = False, [""]
    for each in case.exchange:
        if each["dir"] == "c" and "hex" in each:
            data = bytes.fromhex(each["hex"])
            words = data.partition(b"\n")[0].decode("latin-1").split(" ")
            extended |= words[0] == "IDENTIFY" and re.search(rb'"extend_support": ?true', data) is not None
        elif "text" in each:
            found.append((words, extended, each))
    return found


def topics(all_cases: list[Case]) -> dict[str, bool]:
    """The topics that were there, and whether they take exts, told from what the real server answered."""
    forms: dict[str, bool] = {}
    everything = [told for case in all_cases for told in client_lines(case)]
    # subscriptions tell best
    for words, extended, answer in sorted(everything, key=lambda told: not told[0][0].startswith("SUB")):
        if len(words) < 2 or re.fullmatch(r"[.a-zA-Z0-9_-]{1,64}", words[1]) is None:
            continue
        topic, good, text = words[1], answer.get("frame") == 0, answer["text"]
        if words[0] in ("PUB_EXT", "MPUB_EXT"):
            if good or text.startswith(("E_INVALID_JSON", "INVALID_TRACE")):
                forms.setdefault(topic, True)
            elif text.startswith("E_EXT_NOT_SUPPORT"):
                forms[topic] = False
        elif words[0].startswith("SUB"):
            if good or text.startswith(("E_SUB_EXTEND", "E_BAD_CHANNEL", "E_INVALID cannot", "E_BAD_PARTITION")):
                forms.setdefault(topic, extended if good else "NEED" in text)
        elif good and words[0] in ("PUB", "MPUB", "PUB_TRACE", "MPUB_TRACE"):
            forms.setdefault(topic, re.search(r"pl_|^pf_|^sap_", topic) is None)
    for case in all_cases:
        if case.exchange[-1].get("closed") and "frame" not in case.exchange[-2]:
            # a publication that ended the server
            forms |= {one.decode(): True for one in re.findall(rb"^PUB_EXT (\S+)\n", whole(case.exchange[-2]))}
    return forms


def channels(all_cases: list[Case]) -> set[tuple[str, str]]:
    """(topic, channel) of every subscription: with the real server a channel gets what comes after it."""
    found = set()
    for case in all_cases:
        for each in case.exchange:
            for topic, channel in re.findall(rb"SUB\w* ([-\w.]+) ([-\w.]+)", bytes.fromhex(each.get("hex", ""))):
                if topic.decode() not in MADE_BY_ITSELF:
                    found.add((topic.decode(), channel.decode()))
    return found


def http_exchanges() -> list[dict[str, Any]]:
    """Requests and answers over HTTP, in the order in which they were made, but for those of ``Case.asked``."""
    lines = map(json.loads, CAPTURE.read_text().splitlines())
    return [one for one in lines if one.get("transport") == "http" and not re.search(FIGURES, one["path"])]


def published_over_http() -> dict[str, tuple[bytes, Any, bytes]]:
    """By request: trace id, ext as a document and body of the message that the real server made of it."""
    accepted = [one["case"] for one in http_exchanges() if one["path"].startswith("/pub_ext") and one["status"] == 200]
    (case,) = (one for one in cases() if one.name == "http_pub_ext_delivered")
    data = [bytes.fromhex(each["hex"])[8:] for each in case.exchange if each.get("frame") == 2]
    messages = [message_of(one, extended=True) for one in data]
    return {name: (one.id[8:], json.loads(one.ext), one.body) for name, one in zip(accepted, messages, strict=True)}


def http_meaning(text: str) -> Any:
    """An answer without what differs with server and moment."""
    try:
        return _common(json.loads(text))
    except ValueError:
        return text


def _common(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _common(each)
            for name, each in value.items()
            if name not in OWN_FIELDS and not (name == "id" and isinstance(each, str))
        }
    return [_common(each) for each in value] if isinstance(value, list) else value
