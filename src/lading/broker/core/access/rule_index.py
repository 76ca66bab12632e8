"""An index of the rules of one user: a request looks at the rules for its resource, however many others there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .rights import CLUSTER, AccessRule, PatternKind, Resource, ResourceKind

_Key = tuple[ResourceKind, PatternKind, str]


class RuleIndex:
    """Rules by what they name."""

    def __init__(self, rules: Iterable[AccessRule]) -> None:
        self._rules: dict[_Key, list[AccessRule]] = {}
        prefix_lengths: dict[ResourceKind, set[int]] = {}
        for rule in rules:
            self._rules.setdefault((rule.kind, rule.pattern, rule.name), []).append(rule)
            if rule.pattern is PatternKind.PREFIX:
                prefix_lengths.setdefault(rule.kind, set()).add(len(rule.name))
        self._prefix_lengths = {kind: sorted(lengths) for kind, lengths in prefix_lengths.items()}
        """By kind; at most as many as a name has characters."""

    def find(self, resource: Resource) -> Iterator[AccessRule]:
        """Return the rules that cover a resource, and those of the cluster, which may create any."""
        yield from self._find_named(resource.kind, resource.name)
        if resource.kind is ResourceKind.TOPIC:
            yield from self._rules.get((ResourceKind.TOPIC, PatternKind.IN_STREAM, resource.stream), ())
            yield from self._find_named(ResourceKind.STREAM, resource.stream)
        if resource.kind is not ResourceKind.CLUSTER:
            yield from self._find_named(ResourceKind.CLUSTER, CLUSTER.name)

    def _find_named(self, kind: ResourceKind, name: str) -> Iterator[AccessRule]:
        rules = self._rules
        yield from rules.get((kind, PatternKind.LITERAL, name), ())
        yield from rules.get((kind, PatternKind.ANY, "*"), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                break
            yield from rules.get((kind, PatternKind.PREFIX, name[:length]), ())


NO_RULES = RuleIndex(())
