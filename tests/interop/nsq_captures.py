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
    "filter_t4_bad_key": "a filter that is none is passed over, where the real one throws all messages away",
    "tag_stall_untagged_message.A": "a message that nobody takes now does not hold up those behind it",
    "tag_stall_untagged_message.untagged_later": "as above",
    "tag_rdy0_blocks.untagged": "as above",
    "tag_other_tag_only.Y": "as above",
}
NOT_ALONE: Final = (
    r"op_.*|disconnect_requeue.*|filter_(t1|t2|t2_empty_match|t2_inv|t3_star|plain_topic)|ext_big_delivered|plain_frame"
    r"|sub_advanced_frame_plain|channel_starts_at_end|http_pub_ext_delivered|compat_.*|bad_magic"
    r"|tag_share.*|tag_leave_fallback.*|heartbeat.*"
)
"""Cases that need a second connection at the right moment, messages that the capture does not publish, seconds, or an
option (allow_ext_compatible) that there is not here."""


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
        return not cut and re.fullmatch(NOT_ALONE, self.name) is None


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
                forms.setdefault(topic, "pl_" not in topic)
    return forms


def channels(all_cases: list[Case]) -> set[tuple[str, str]]:
    """(topic, channel) of every subscription: with the real server a channel gets what comes after it."""
    found = set()
    for case in all_cases:
        for each in case.exchange:
            for topic, channel in re.findall(rb"SUB\w* ([-\w.]+) ([-\w.]+)", bytes.fromhex(each.get("hex", ""))):
                found.add((topic.decode(), channel.decode()))
    return found
