"""Errors of our own name the remedy: ``<object> <value>: <problem>; <remedy>``. Others are listed with a reason.

Counted are the literal texts of LocalError, SettingError and Refusal. A remedy is what follows a semicolon, a clause
that begins with an imperative ("write NAME=VALUE"), or what would be right ("limit is 0 or more, not -1").
"""

from __future__ import annotations

import ast
import re
from typing import Final

from tests.house.sources import parse_source, read_sources

ERRORS: Final = {"LocalError", "SettingError", "Refusal"}
WITHOUT_REMEDY: Final = {
    "passes on an error of our own, which names the remedy": {
        "dead letter topic {} of {} cannot be created: {}",
        "-H {}: {}",
        "header {}: {}",
        "line {}: {}",
        "row {} of {}: {}",
        "--schema {}: {}",
        "{}: headers.{}: {}",
        "{}. That was {}, which reads {}: the driver and every executor read source.transport for themselves",
        "{}. That was {}, which opens {}: the driver and every executor read {} for themselves",
        "{} cannot be {}: {}",
        "{} {}: {}",
    },
    "passes on what a checker, a parser or a process says, in its words": {
        "{}.{}.{}",
        "{}.{}: {}",
        "{}: {}",
        "{}: step[{}].sql: {}",
        "query: {}",
        "{} failed: {}",
        "the broker did not start: {}",
    },
    "is the text of a real Kafka broker, to the letter": {
        "Consumer group {} not found.",
        "Group {} not found.",
        "Group {} is not a share group.",
        "Group {} is not a classic group.",
        "The share group has reached its maximum capacity of {} members.",
        "The share group member has a {} member epoch ({}) than the one known by the group coordinator ({}). The "
        "member must abandon all its partitions and rejoin.",
        "Group {} is not a consumer group.",
        "Instance id {} is unknown.",
        "Member {} is not a member of group {}.",
        "ServerAssignor {} is not supported. Supported assignors: {}.",
        "Static member {} with instance id {} cannot join the group because the instance id is owned by {} member.",
        "Static member {} with instance id {} was fenced by member {}.",
        "SubscribedTopicRegex `{}` is not a valid regular expression: {}.",
        "The consumer group has reached its maximum capacity of {} members.",
        "The consumer group member has a {} member epoch ({}) than the one known by the group coordinator ({}). The "
        "member must abandon all its partitions and rejoin.",
    },
    "says what its caller gives it, with the remedy": {
        "{} {}",
    },
    "ends with the advice that all errors of a disk share": {
        "{}: Spark cannot write to its own directory (spark.local.dir, /tmp unless set): {}. {}",
        "{}: {} cannot be written: {}. {}",
    },
    "says no more to a stranger, who may be guessing": {
        "wrong user name or password",
    },
}
"""By the reason why none can be added: texts that name no remedy of their own."""
_VERBS: Final = (
    "add|begin|check|choose|coalesce|copy|correct|create|give|install|leave|make|name|pass|put|reinstall|requeue|restore|"
    "say|select|send|show|use|write"
)
_REMEDY: Final = re.compile(
    rf";|(?:^|[:.?] |, |\beither |\bor |the limit is )(?:{_VERBS})\b|to continue ", re.IGNORECASE
)
_ACCEPTED: Final = re.compile(
    r"\bnot (?:\{|one\b|at\b|for\b|(?:a )?\{\})|none of \{|\bone of \{|\btakes\b|such as "
    r"|\(setting |a number from 0|is \d or more"
    r"|is above 0|is a (?:list|dict|object|number)|has the name|is literal or|rules are on|has p from"
)


def _read_text(node: ast.expr) -> str:
    """Return the literal parts of a text, ``{}`` for the others; empty if it has none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_read_text(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _read_text(node.left) + _read_text(node.right)
    return ""


def list_texts(tree: ast.AST) -> list[str]:
    """Return the literal texts of errors that a source makes."""
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            texts += [text for argument in node.args if (text := _read_text(argument))][:1]
    return texts


def names_remedy(text: str) -> bool:
    """Return whether a text says what to do, or what would be right."""
    return bool(_REMEDY.search(text) or _ACCEPTED.search(text))


def test_a_remedy_is_found() -> None:
    named = [
        "topic {}: missing; create it",
        "{}: write NAME=VALUE",
        "limit is 0 or more, not {}",
        "state is one of {}, not {}",
    ]
    assert [names_remedy(text) for text in named] == [True] * len(named)
    missing = ["topic {} does not exist", "{} cannot be used: {}", "password file {}: not UTF-8"]
    assert [names_remedy(text) for text in missing] == [False] * len(missing)


def test_the_texts_of_errors_are_found() -> None:
    source = 'raise Refusal(Reason.X, f"topic {name!r}: missing; " + "create it")\nLocalError(other)\nLocalError("no")'
    assert list_texts(ast.parse(source)) == ["topic {}: missing; create it", "no"]


def test_errors_of_our_own_name_the_remedy() -> None:
    without = {
        text
        for path, source in read_sources().items()
        if any(error in source for error in ERRORS)
        for text in list_texts(parse_source(path))
        if not names_remedy(text)
    }
    listed = set().union(*WITHOUT_REMEDY.values())
    assert without - listed == set(), "an error ends with '; ' and what to do"
    assert listed - without == set(), "no error has this text any more"
