"""Exchanges with the fork's real nsqd, and where ours differs on purpose."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

CAPTURE: Final = Path(__file__).parents[1] / "vectors" / "nsqd_capture.jsonl"

OWN_WORDS: Final = "E_INVALID_JSON_HEADER fail to parse json header:"
"""Behind this the real server prints its parser's own words, and we ours."""

DIFFERENCES: Final = {
    "mpub_count_short": "a count above the items is told, where the real one reads on behind the body",
    "mpub_ext_bad_json_first": "the rest of the body is not taken for commands (nsq.md 3.6, 3)",
    "mpub_ext_bad_json_then_pub": "as above",
    "mpub_ext_partial_bad_middle": "as above",
    "pub_max_size_on_ext": "a message of exactly the largest size fits on ext topics too (3.6, 7)",
    "pub_ext_max": "as above",
    "pub_ext_extlen_65507": "no ext ends the server (3.6, 2)",
    "poison_pub_ext_65507": "as above",
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
    r"ext_big_delivered": "messages that the capture does not hold whole",
    r"filter_(t1|t2|t2_empty_match|t2_inv|t3_star|plain_topic)": "messages published by a client that was not recorded",
    r"http_pub_ext_delivered": "messages published over HTTP; their forms are in the tests of the endpoint",
    r"channel_starts_at_end|tag_share.*|tag_leave_fallback.*": "a second connection acts at the right moment",
    r"disconnect_requeue.*": "as above",
    r"op_timeout_1s|op_touch_1s|heartbeat.*": "seconds of waiting, told of in the tests of the endpoint",
    r"compat_.*": "the option allow_ext_compatible is not there",
    r"bad_magic": "the replay speaks the right one",
    r"(filter|stats)_.*stats|stats_tag_and_filter": "figures of clients that are connected in other exchanges",
}
"""Exchanges that are not replayed, as patterns of their names, and why."""

PREPARED: Final = r"op_.*"
"""Exchanges that begin with a message which lies in the topic already: the one that the real server delivered."""

OWN_FIELDS: Final = frozenset({"queue_offset", "http_port", "tcp_port", "start_time", "hostname", "remote_address"})
"""Fields of answers over HTTP that differ with the server and the moment."""

HTTP_DIFFERENCES: Final = {
    "http_pub_ext_null_with_header": "a header is added to null as to {}, where the real one fails",
    "http_pub_ext_percent_bad": "an ext is decoded once, where the real one does it twice",
    "http_pub_ext_double_encoded": "as above",
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
    """One connection: what went over it, and the line of the capture it has."""

    name: str
    number: int
    exchange: list[dict[str, Any]] = field(hash=False)

    @property
    def replayable(self) -> bool:
        """Whether it stands for itself."""
        cut = any(each["dir"] == "c" and each.get("truncated_len") for each in self.exchange)
        return not cut and not why_left_out(self.name)

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
    """The TCP connections in the order in which they were made."""
    lines = [json.loads(line) for line in CAPTURE.read_text().splitlines()]
    return [
        Case(line["case"], number, line["exchange"])
        for number, line in enumerate(lines)
        if line.get("transport") == "tcp"
    ]


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
    for case in all_cases:
        for words, extended, answer in client_lines(case):
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
    return forms


def channels(all_cases: list[Case]) -> set[tuple[str, str]]:
    """(topic, channel) of every subscription: with the real server a channel gets what comes after it."""
    found = set()
    for case in all_cases:
        for each in case.exchange:
            for topic, channel in re.findall(rb"SUB\w* ([-\w.]+) ([-\w.]+)", bytes.fromhex(each.get("hex", ""))):
                found.add((topic.decode(), channel.decode()))
    return found


def http_exchanges() -> list[dict[str, Any]]:
    """Requests and answers over HTTP, in the order in which they were made."""
    return [line for line in map(json.loads, CAPTURE.read_text().splitlines()) if line.get("transport") == "http"]


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
