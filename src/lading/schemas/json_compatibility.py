"""Confluent's rules for JSON Schema: a fixed list of differences, some of which are compatible.

``update`` can read data of ``original`` if all differences are among COMPATIBLE. Each pair of parts is compared once; a
pair that is met while it is being compared counts as compatible, and the comparison is repeated until that is true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from .json_schema import JsonPart, JsonSchema
from .parsed import InvalidSchema, write_json

COMPATIBLE: Final = frozenset({
    "ID_CHANGED", "DESCRIPTION_CHANGED", "TITLE_CHANGED", "DEFAULT_CHANGED", "SCHEMA_REMOVED", "TYPE_EXTENDED",
    "MAX_LENGTH_INCREASED", "MAX_LENGTH_REMOVED", "MIN_LENGTH_DECREASED", "MIN_LENGTH_REMOVED", "PATTERN_REMOVED",
    "MAXIMUM_INCREASED", "MAXIMUM_REMOVED", "MINIMUM_DECREASED", "MINIMUM_REMOVED", "EXCLUSIVE_MAXIMUM_INCREASED",
    "EXCLUSIVE_MAXIMUM_REMOVED", "EXCLUSIVE_MINIMUM_DECREASED", "EXCLUSIVE_MINIMUM_REMOVED", "MULTIPLE_OF_REDUCED",
    "MULTIPLE_OF_REMOVED", "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED", "REQUIRED_ATTRIBUTE_REMOVED",
    "DEPENDENCY_ARRAY_NARROWED", "DEPENDENCY_ARRAY_REMOVED", "DEPENDENCY_SCHEMA_REMOVED", "MAX_PROPERTIES_INCREASED",
    "MAX_PROPERTIES_REMOVED", "MIN_PROPERTIES_DECREASED", "MIN_PROPERTIES_REMOVED", "ADDITIONAL_PROPERTIES_ADDED",
    "ADDITIONAL_PROPERTIES_EXTENDED", "UNEVALUATED_PROPERTIES_ADDED", "UNEVALUATED_PROPERTIES_EXTENDED",
    "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL", "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
    "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "MAX_ITEMS_INCREASED", "MAX_ITEMS_REMOVED",
    "MIN_ITEMS_DECREASED", "MIN_ITEMS_REMOVED", "MAX_CONTAINS_INCREASED", "MAX_CONTAINS_REMOVED",
    "MIN_CONTAINS_DECREASED", "MIN_CONTAINS_REMOVED", "UNIQUE_ITEMS_REMOVED", "ADDITIONAL_ITEMS_ADDED",
    "ADDITIONAL_ITEMS_EXTENDED", "UNEVALUATED_ITEMS_ADDED", "UNEVALUATED_ITEMS_EXTENDED",
    "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
    "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
    "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "ENUM_ARRAY_EXTENDED", "COMBINED_TYPE_EXTENDED",
    "PRODUCT_TYPE_NARROWED", "SUM_TYPE_EXTENDED", "NOT_TYPE_NARROWED",
})  # fmt: skip
STEPS_MAX: Final = 100_000
"""Limit of the pairs of parts in one comparison; only schemas with many nested combinations need more."""
DIFFERENCES_MAX: Final = 1000
"""Limit of one comparison, and of each pair of parts in it: parts that two properties share would double at
each level.
"""
DIFFERENCES_OF_STEP: Final = 10
"""Writing the paths of this many differences costs one step."""
Difference = tuple[str, str]
"""Kind, and path from the root."""


def _describe(kind: str, path: str, new: str, old: str) -> str:
    place = f"'{path}'"
    if kind.endswith("_OPEN_CONTENT_MODEL") and "ADDED_TO_OPEN" in kind:
        text = (
            f"The {old} schema has an open content model and has a property or item at path {place} which is missing "
            f"in the {new} schema"
        )
    elif kind == "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL":
        text = (
            f"The {new} schema has an unopen content model and has a required property at path {place} which is "
            f"missing in the {old} schema"
        )
    elif "REMOVED_FROM_CLOSED" in kind:
        text = (
            f"The {new} has a closed content model and is missing a property or item present at path {place} in the "
            f"{old} schema"
        )
    elif "REMOVED_NOT_COVERED" in kind:
        text = (
            f"A property or item is missing in the {new} schema but present at path {place} in the {old} schema and is "
            "not covered by its partially open content model"
        )
    elif "ADDED_NOT_COVERED" in kind:
        text = (
            f"The {new} schema has a property or item at path {place} which is missing in the {old} schema and is not "
            "covered by its partially open content model"
        )
    elif kind.startswith(("TYPE_", "COMBINED_TYPE_")) or kind == "ENUM_ARRAY_CHANGED":
        text = f"A type at path {place} is different between the {new} schema and the {old} schema"
    elif kind.endswith("_NARROWED"):
        text = f"An array or combined type at path {place} has fewer elements in the {new} schema than the {old} schema"
    elif kind.endswith("_EXTENDED"):
        text = f"An array or combined type at path {place} has more elements in the {new} schema than the {old} schema"
    elif kind.endswith(("_INCREASED", "_EXPANDED")):
        text = f"The value at path {place} in the {new} schema is more than its value in the {old} schema"
    elif kind.endswith("_DECREASED"):
        text = f"The value at path {place} in the {new} schema is less than its value in the {old} schema"
    elif kind.endswith("_CHANGED"):
        text = f"The value at path {place} is different between the {new} and {old} schema"
    else:
        text = f"The keyword at path {place} in the {new} schema is not present in the {old} schema"
    return f'{{errorType:"{kind}", description:"{text}"}}'


def list_json_incompatibilities(reader: JsonSchema, writer: JsonSchema, names: tuple[str, str]) -> list[str]:
    """Return why ``reader`` cannot read what ``writer`` has written; ``names`` are what messages call the two."""
    found = [one for one in list_differences(writer, reader) if one[0] not in COMPATIBLE][:DIFFERENCES_MAX]
    return [_describe(kind, path, *names) for kind, path in found]


def list_differences(original: JsonSchema, update: JsonSchema) -> list[Difference]:
    """Return all differences, compatible ones too. Raises InvalidSchema if the schemas are too complex for that."""
    if original.is_same(update):
        return []
    refuted: dict[tuple[int, int], list[Difference]] = {}
    steps = 0
    while True:
        comparison = _Comparison(refuted, steps)
        found = comparison.compare(original.root, update.root)
        steps = comparison.steps
        incompatible = {pair: known for pair, known in comparison.known.items() if not _is_compatible(known)}
        if not comparison.has_assumed or incompatible.keys() == refuted.keys():
            return [(kind, "#/" + path) for kind, path in found]
        refuted = incompatible


def _is_compatible(differences: list[Difference]) -> bool:
    return all(kind in COMPATIBLE for kind, _ in differences)


def _limit(differences: list[Difference]) -> list[Difference]:
    """Return the first differences; if there are too many, those that decide the result."""
    if len(differences) <= DIFFERENCES_MAX:
        return differences
    return sorted(differences, key=lambda one: one[0] in COMPATIBLE)[:DIFFERENCES_MAX]


def _join(prefix: str, path: str) -> str:
    return f"{prefix}/{path}" if prefix and path else prefix or path


class _Comparison:
    def __init__(self, refuted: Mapping[tuple[int, int], list[Difference]], steps: int) -> None:
        self._refuted = refuted
        self._open: set[tuple[int, int]] = set()
        self.known: dict[tuple[int, int], list[Difference]] = {}
        self.has_assumed = False
        self.steps = steps

    def compare(self, original: JsonPart | None, update: JsonPart | None, path: str = "") -> list[Difference]:
        """Return the differences of two parts, with ``path`` in front of their own."""
        if original is None or update is None:
            if original is update:
                return []
            return [("SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED", path)]
        original, update = original.resolve(), update.resolve()
        pair = (id(original), id(update))
        found = self.known.get(pair)
        if found is None:
            if pair in self._open:
                found = self._refuted.get(pair)
                if found is None:
                    self.has_assumed = True
                    found = []
            else:
                self.steps += 1
                if self.steps > STEPS_MAX:
                    raise InvalidSchema(f"too complex: comparing it takes more than {STEPS_MAX} steps")
                self._open.add(pair)
                found = _limit(self._compare_parts(original, update))
                self._open.discard(pair)
                self.known[pair] = found
        self.steps += len(found) // DIFFERENCES_OF_STEP
        return [(kind, _join(path, below)) for kind, below in found] if path else found

    def _compare_parts(self, original: JsonPart, update: JsonPart) -> list[Difference]:
        shortcut = self._compare_with_combination(original, update)
        if shortcut is not None:
            return shortcut
        if original.kind != update.kind:
            is_bytes = original.get("connect.type") == update.get("connect.type") == "bytes"
            if original.kind == "false" or update.is_empty or is_bytes:
                return []
            return [("TYPE_CHANGED", "")]
        kinds = {"id": "ID", "title": "TITLE", "description": "DESCRIPTION", "default": "DEFAULT"}
        found = [(f"{kinds[name]}_CHANGED", "") for name in kinds if original.facts.get(name) != update.facts.get(name)]
        compare = _COMPARED.get(original.kind)
        return found if compare is None else found + compare(self, original, update)

    def _compare_with_combination(self, original: JsonPart, update: JsonPart) -> list[Difference] | None:
        """Return the differences if only one side is a combination and one of its parts fits the other side."""
        if (original.kind == "combined") == (update.kind == "combined"):
            return None
        combined, criteria, kind = (
            (update, ("anyOf", "oneOf"), "SUM_TYPE_EXTENDED")
            if update.kind == "combined"
            else (original, ("allOf",), "PRODUCT_TYPE_NARROWED")
        )
        is_single = len(combined.parts) == 1
        for part in combined.parts if is_single or combined.criterion in criteria else ():
            found = self.compare(original, part) if combined is update else self.compare(part, update)
            if _is_compatible(found):
                return found if is_single else [*found, (kind, "")]
        return None

    # -- by kind

    def compare_strings(self, original: JsonPart, update: JsonPart) -> list[Difference]:
        found = _compare_bounds(original, update, {"maxLength": "MAX_LENGTH", "minLength": "MIN_LENGTH"})
        before, after = original.get("pattern"), update.get("pattern")
        if before != after:
            kind = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
            found.append((f"PATTERN_{kind}", "pattern"))
        return found

    def compare_numbers(self, original: JsonPart, update: JsonPart) -> list[Difference]:
        bounds = {
            "maximum": "MAXIMUM", "minimum": "MINIMUM", "exclusiveMaximum": "EXCLUSIVE_MAXIMUM",
            "exclusiveMinimum": "EXCLUSIVE_MINIMUM",
        }  # fmt: skip
        found = _compare_bounds(original, update, bounds)
        before, after = (
            None if one.get("multipleOf") is None else Decimal(str(one.get("multipleOf"))) for one in (original, update)
        )
        if before != after:
            found.append((f"MULTIPLE_OF_{_compare_multiples(before, after)}", "multipleOf"))
        if original.is_integer != update.is_integer:
            found.append(("TYPE_EXTENDED" if original.is_integer else "TYPE_NARROWED", ""))
        return found

    def compare_constants(self, original: JsonPart, update: JsonPart) -> list[Difference]:
        return (
            [] if _to_key(original.raw["const"]) == _to_key(update.raw["const"]) else [("ENUM_ARRAY_CHANGED", "const")]
        )

    def compare_enums(self, original: JsonPart, update: JsonPart) -> list[Difference]:
        before, after = ({_to_key(one) for one in part.raw["enum"]} for part in (original, update))
        if before == after:
            return []
        kind = "EXTENDED" if before <= after else "NARROWED" if after <= before else "CHANGED"
        return [(f"ENUM_ARRAY_{kind}", "enum")]

    def compare_negations(self, original: JsonPart, update: JsonPart) -> list[Difference]:
        is_compatible = _is_compatible(self.compare(update.parts[0], original.parts[0]))
        return [("NOT_TYPE_NARROWED" if is_compatible else "NOT_TYPE_EXTENDED", "not")]

    def compare_combinations(self, original: JsonPart, update: JsonPart) -> list[Difference]:
        found: list[Difference] = []
        if original.criterion != update.criterion:
            single = (len(original.parts) == 1, len(update.parts) == 1)
            is_extended = (
                update.criterion == "anyOf"
                or all(single)
                or (single[0] and update.criterion == "oneOf")
                or (single[1] and original.criterion == "allOf")
            )
            if not is_extended:
                return [("COMBINED_TYPE_CHANGED", "")]
            found.append(("COMBINED_TYPE_EXTENDED", ""))
        before, after = _drop_duplicates(original.parts), _drop_duplicates(update.parts)
        if len(before) < len(after):
            found.append(("PRODUCT_TYPE_EXTENDED" if update.criterion == "allOf" else "SUM_TYPE_EXTENDED", ""))
        elif len(before) > len(after):
            found.append(("PRODUCT_TYPE_NARROWED" if original.criterion == "allOf" else "SUM_TYPE_NARROWED", ""))
        edges: list[dict[int, list[Difference]]] = []
        for number, part in enumerate(before):
            place = f"{original.criterion}/{number}"
            differences = {other: self.compare(part, one, place) for other, one in enumerate(after)}
            edges.append({other: one for other, one in differences.items() if _is_compatible(one)})
        matching = _match(edges)
        for other, number in matching.items():
            found += edges[number][other]
        if len(matching) < min(len(before), len(after)):
            found.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ""))
        return found

    def compare_objects(self, original: JsonPart, update: JsonPart) -> list[Difference]:
        found: list[Difference] = []
        before, after = original.required, update.required
        for name in original.properties.keys() & update.properties.keys():
            path = f"required/{name}"
            if name in before and name not in after:
                found.append(("REQUIRED_ATTRIBUTE_REMOVED", path))
            elif name in after and name not in before:
                has_default = update.properties[name].get("default") is not None
                found.append((f"REQUIRED_ATTRIBUTE_{'WITH_DEFAULT_' if has_default else ''}ADDED", path))
        for name in dict.fromkeys((*original.properties, *update.properties)):
            found += self._compare_property(name, original, update)
        found += self._compare_dependencies(original, update)
        found += self._compare_additional(original, update, "Properties")
        found += self._compare_unevaluated(original, update, "Properties")
        bounds = {"maxProperties": "MAX_PROPERTIES", "minProperties": "MIN_PROPERTIES"}
        return found + _compare_bounds(original, update, bounds)

    def _compare_property(self, name: str, original: JsonPart, update: JsonPart) -> list[Difference]:
        path = f"properties/{name}"
        before, after = original.properties.get(name), update.properties.get(name)
        if before is not None and after is not None:
            return self.compare(before, after, path)
        if before is not None:
            return self._report_removed(before, update, name, path, "PROPERTY")
        assert after is not None
        has_default = after.get("default") is not None
        word = "OPTIONAL" if name not in update.required else f"REQUIRED{'*' if has_default else ''}"
        added = f"{word.rstrip('*')}_PROPERTY{'_WITH_DEFAULT' if word.endswith('*') else ''}_ADDED_TO"
        if _is_open(original):
            if after.resolve().is_empty:
                return [("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", path)]
            return [(f"{added}_OPEN_CONTENT_MODEL", path)]
        found: list[Difference] = []
        partial = _find_partial(original, name)
        if partial is not None:
            found = self.compare(partial, after, path)
            is_covered = _is_compatible(found)
            found = [*found, (f"PROPERTY_ADDED_{_say_covered(is_covered)}_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)]
        return [*found, (f"{added}_UNOPEN_CONTENT_MODEL", path)]

    def _report_removed(
        self, part: JsonPart, update: JsonPart, name: str | None, path: str, what: str
    ) -> list[Difference]:
        if _is_open(update):
            return [(f"{what}_REMOVED_FROM_OPEN_CONTENT_MODEL", path)]
        partial = _find_partial(update, name)
        if partial is not None:
            found = self.compare(part, partial, path)
            is_covered = _is_compatible(found)
            return [*found, (f"{what}_REMOVED_{_say_covered(is_covered)}_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)]
        with_false = "_WITH_FALSE" if part.resolve().kind == "false" else ""
        return [(f"{what}{with_false}_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]

    def _compare_dependencies(self, original: JsonPart, update: JsonPart) -> list[Difference]:
        found: list[Difference] = []
        before, after = ({k: set(v) for k, v in one.raw["dependencies"].items()} for one in (original, update))
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name), after.get(name)
            if old != new:
                if old is None or new is None:
                    kind = "REMOVED" if new is None else "ADDED"
                else:
                    kind = "EXTENDED" if old <= new else "NARROWED" if new <= old else "CHANGED"
                found.append((f"DEPENDENCY_ARRAY_{kind}", f"dependencies/{name}"))
        for name in sorted(original.dependencies.keys() | update.dependencies.keys()):
            path = f"dependencies/{name}"
            first, second = original.dependencies.get(name), update.dependencies.get(name)
            if first is None or second is None:
                found.append((f"DEPENDENCY_SCHEMA_{'REMOVED' if second is None else 'ADDED'}", path))
            else:
                found += self.compare(first, second, path)
        return found

    def _compare_additional(self, original: JsonPart, update: JsonPart, what: str) -> list[Difference]:
        path, kind = f"additional{what}", f"ADDITIONAL_{what.upper()}"
        if original.permits_additional != update.permits_additional:
            return [(f"{kind}_{'ADDED' if update.permits_additional else 'REMOVED'}", path)]
        if (original.additional is None) != (update.additional is None):
            return [(f"{kind}_{'NARROWED' if original.additional is None else 'EXTENDED'}", path)]
        return self.compare(original.additional, update.additional, path)

    def _compare_unevaluated(self, original: JsonPart, update: JsonPart, what: str) -> list[Difference]:
        path, kind = f"unevaluated{what}", f"UNEVALUATED_{what.upper()}"
        before, after = original.unevaluated, update.unevaluated
        if before is None and after is None:
            return []
        kinds = tuple("true" if one is None or one.is_empty else one.kind for one in (before, after))
        if (kinds[0] == "false") != (kinds[1] == "false"):
            return [(f"{kind}_{'ADDED' if kinds[0] == 'false' else 'REMOVED'}", path)]
        if (before is None) != (after is None) or (kinds[0] == "true") != (kinds[1] == "true"):
            narrowed = before is None or (after is not None and kinds[0] == "true")
            return [(f"{kind}_{'NARROWED' if narrowed else 'EXTENDED'}", path)]
        return self.compare(before, after, path)

    def compare_arrays(self, original: JsonPart, update: JsonPart) -> list[Difference]:
        found = self.compare(original.item, update.item, "items")
        before, after = original.items or [], update.items or []
        for number in range(max(len(before), len(after))):
            path = f"items/{number}"
            if number < min(len(before), len(after)):
                found = found + self.compare(before[number], after[number], path)
            elif number < len(before):
                found = found + self._report_removed(before[number], update, None, path, "ITEM")
            else:
                found = found + self._report_added_item(after[number], original, path)
        found = found + self._compare_additional(original, update, "Items")
        found += self._compare_unevaluated(original, update, "Items")
        found += _compare_bounds(original, update, {"maxItems": "MAX_ITEMS", "minItems": "MIN_ITEMS"})
        unique = tuple(one.get("uniqueItems") is True for one in (original, update))
        if unique[0] != unique[1]:
            found.append((f"UNIQUE_ITEMS_{'REMOVED' if unique[0] else 'ADDED'}", "uniqueItems"))
        return found + _compare_bounds(original, update, {"maxContains": "MAX_CONTAINS", "minContains": "MIN_CONTAINS"})

    def _report_added_item(self, part: JsonPart, original: JsonPart, path: str) -> list[Difference]:
        if _is_open(original):
            with_empty = "_WITH_EMPTY_SCHEMA" if part.resolve().is_empty else ""
            return [(f"ITEM{with_empty}_ADDED_TO_OPEN_CONTENT_MODEL", path)]
        partial = _find_partial(original, None)
        if partial is None:
            return [("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", path)]
        found = self.compare(partial, part, path)
        is_covered = _is_compatible(found)
        return [*found, (f"ITEM_ADDED_{_say_covered(is_covered)}_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)]


_COMPARED: Final[Mapping[str, Callable[[_Comparison, JsonPart, JsonPart], list[Difference]]]] = {
    "string": _Comparison.compare_strings,
    "number": _Comparison.compare_numbers,
    "const": _Comparison.compare_constants,
    "enum": _Comparison.compare_enums,
    "combined": _Comparison.compare_combinations,
    "not": _Comparison.compare_negations,
    "object": _Comparison.compare_objects,
    "array": _Comparison.compare_arrays,
}


def _say_covered(is_covered: bool) -> str:
    return "IS_COVERED" if is_covered else "NOT_COVERED"


def _is_open(part: JsonPart) -> bool:
    """Return whether other properties or items may have any value."""
    if not part.permits_additional or part.additional is not None or part.patterns:
        return False
    return part.unevaluated is None or part.unevaluated.is_empty


def _find_partial(part: JsonPart, name: str | None) -> JsonPart | None:
    """Return the schema for other properties, for those whose pattern matches ``name``, or for other items."""
    for pattern, found in part.patterns.items() if name is not None else ():
        if _fits(pattern, name or ""):
            return found
    if part.additional is not None:
        return part.additional
    if part.permits_additional and part.unevaluated is not None:
        return None if part.unevaluated.is_empty or part.unevaluated.kind == "false" else part.unevaluated
    return None


def _fits(pattern: str, name: str) -> bool:
    # imported here: only schemas with patterns need it, and the broker starts sooner
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        # RE2: the time is proportional to the name's length, for any pattern
        return bool(pc.match_substring_regex(pa.array([name]), pattern=pattern)[0].as_py())
    except pa.ArrowInvalid:
        return False


def _compare_bounds(original: JsonPart, update: JsonPart, names: Mapping[str, str]) -> list[Difference]:
    found: list[Difference] = []
    for name, kind in names.items():
        before, after = (_to_number(one.get(name)) for one in (original, update))
        if before != after:
            if before is None or after is None:
                change = "ADDED" if before is None else "REMOVED"
            else:
                change = "INCREASED" if before < after else "DECREASED"
            found.append((f"{kind}_{change}", name))
    return found


def _to_number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _compare_multiples(before: Decimal | None, after: Decimal | None) -> str:
    if before is None or after is None:
        return "ADDED" if before is None else "REMOVED"
    if before and not after % before:
        return "EXPANDED"
    return "REDUCED" if after and not before % after else "CHANGED"


def _to_key(value: Any) -> str:
    return write_json(value)


def _drop_duplicates(parts: list[JsonPart]) -> list[JsonPart]:
    """Return the parts without duplicates."""
    known: dict[tuple[Any, ...], JsonPart] = {}
    for part in parts:
        known.setdefault((part.kind, part.criterion, part.is_integer, write_json(part.raw)), part)
    return list(known.values())


def _match(edges: list[dict[int, list[Difference]]]) -> dict[int, int]:
    """Return a largest matching: the number on the left by the number on the right."""
    matched: dict[int, int] = {}

    def find_partner(number: int, tried: set[int]) -> bool:
        for other in edges[number]:
            if other not in tried:
                tried.add(other)
                if other not in matched or find_partner(matched[other], tried):
                    matched[other] = number
                    return True
        return False

    for number in range(len(edges)):
        find_partner(number, set())
    return matched
