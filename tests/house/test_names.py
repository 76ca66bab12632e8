"""Names: a public class name stands for one class, and public functions are verbs, not participles.

What is listed here is left from before the rule. The lists may only shrink: a name that is gone goes from here too.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "src" / "lading"
IRREGULAR: Final = re.compile(
    "begun|bent|bound|bought|brought|built|caught|chosen|done|drawn|driven|fallen|felt|forgotten|found|frozen|given|gone|"
    "grown|heard|held|hidden|kept|known|laid|led|left|lent|lost|made|meant|met|paid|said|seen|sent|shown|sold|sought|"
    "spent|stood|struck|stuck|sunk|swept|taken|taught|thought|thrown|told|understood|undone|unknown|woken|won|worn|"
    "wound|written"
)
VERBS: Final = re.compile("bleed|breed|embed|exceed|feed|need|proceed|seed|shed|speed|succeed")
"""Verbs that only look like participles."""

PARTICIPLES_LEFT: Final[dict[str, set[str]]] = {
    "from before the rule; needs a verb": {
        "broker/channels/pages.py:tagged",
        "broker/channels/subscriber.py:sampled",
        "broker/channels/window.py:owned",
        "broker/channels/window.py:retried",
        "broker/core/found_topics.py:adopted",
        "broker/core/found_topics.py:agreed",
        "broker/core/found_topics.py:unlisted",
        "broker/core/settings.py:changed",
        "dialects/carrier/kernels.py:opened",
        "dialects/carrier/rows.py:kept",
        "dialects/carrier/rows.py:patched",
        "dialects/iggy_classic/primitives.py:balanced",
        "dialects/iggy_classic/primitives.py:counted",
        "dialects/iggy_classic/primitives.py:repeated",
        "dialects/iggy_classic/primitives.py:sized",
        "dialects/kafka/fields.py:malformed",
        "dialects/kafka/requests.py:unsigned",
        "dialects/nsq/disk.py:stored",
        "dialects/nsq/errors.py:refused",
        "dialects/nsq/json_text.py:unescaped",
        "endpoints/base/busy_poll.py:served",
        "endpoints/base/watchdog.py:watched",
        "endpoints/kafka/handling.py:advertised",
        "endpoints/kafka/offset_commits.py:stored",
        "spark/functions.py:typed",
    },
    "noun phrase: an accessor or a conversion; needs a verb": {
        "broker/core/read.py:skipped_ranges",
        "chunk/fallback.py:flipped_bit",
        "chunk/kernels.py:flipped_bit",
        "dialects/iggy_classic/messages.py:polled_run",
        "dialects/iggy_classic/stored_kernels.py:known_state",
        "dialects/kafka/requests.py:unsupported_versions",
        "endpoints/base/deadlines.py:unchanged_s",
        "endpoints/http_shared/states.py:left_of",
        "endpoints/nsq/consume.py:carried_records",
        "endpoints/nsq/node.py:advertised_http",
        "endpoints/nsq/node.py:advertised_tcp",
        "endpoints/nsq/node.py:deleted_here",
        "endpoints/nsq/subscribe.py:parsed_start",
        "kernels/engine.py:frozen_sources",
        "kernels/json_text.py:passed_space",
    },
    "told of an event, or asks for what it left; becomes on_<event> or a noun with its interface": {
        "broker/channels/channel.py:released",
        "broker/channels/store.py:paused_topics",
        "broker/channels/window.py:delivered_us",
        "broker/channels/window.py:expired",
        "broker/kafka/append.py:aborted",
        "broker/kafka/transaction_coordinator.py:aborted",
        "broker/kafka/transactional_producer.py:moved",
        "broker/native/transactions.py:appended",
        "dialects/carrier/rows.py:appended",
        "dialects/kafka/batch_slicing.py:joined",
        "log/interface.py:aborted_ranges",
        "log/interface.py:damaged_ranges",
        "log/sidecars.py:aborted_ranges",
        "log/partition.py:damaged_ranges",
        "log/reader.py:aborted_ranges",
        "log/reader.py:damaged_ranges",
    },
}
"""By the reason why it is left: file and name."""

CLASSES_LEFT: Final[dict[str, int]] = {
    "Access": 2,
    "Snapshot": 2,
    "Start": 2,
}
"""Names that stand for more than one class, and for how many."""


def _public_definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _public_definitions(node.body, prefix)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _public_definitions(node.body, f"{prefix}{node.name}.")


def _definitions() -> Iterator[tuple[str, str, ast.AST]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for name, node in _public_definitions(ast.parse(path.read_text()).body):
            yield path.relative_to(SOURCE).as_posix(), name, node


def _is_participle(word: str) -> bool:
    if IRREGULAR.fullmatch(word):
        return True
    return len(word) > 3 and word.endswith("ed") and not VERBS.fullmatch(word)


def _is_accessor(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Properties are read like attributes, and named like them."""
    return any("property" in (text := ast.unparse(one)) or text.endswith(".setter") for one in node.decorator_list)


def _participles() -> set[tuple[str, str]]:
    """Return the functions that are named by one, but for builders of errors (``unknown_topic_error``)."""
    return {
        (path, name)
        for path, name, node in _definitions()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not _is_accessor(node)
        and _is_participle(node.name.split("_")[0])
        and not node.name.endswith("_error")
    }


def _public_classes() -> dict[str, list[str]]:
    found = defaultdict(list)
    for path, name, node in _definitions():
        if isinstance(node, ast.ClassDef):
            found[name.rpartition(".")[2]].append(path)
    return found


def test_no_public_function_is_named_by_a_participle() -> None:
    """Only the functions that are listed are; none is listed that is gone."""
    found = {f"{path}:{name.rpartition('.')[2]}" for path, name in _participles()}
    listed = set().union(*PARTICIPLES_LEFT.values())
    assert sorted(found - listed) == []
    assert sorted(listed - found) == []


def test_a_public_class_name_stands_for_one_class() -> None:
    """Only the names that are listed stand for several; none is listed with more than there are."""
    found = {name: len(paths) for name, paths in _public_classes().items() if len(paths) > 1}
    assert found == CLASSES_LEFT
