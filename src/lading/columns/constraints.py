"""Constraints of a contract on values, beside their type: allowed values, a range, or a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..model.errors import SettingError
from .contract import ARRAY, type_word
from .locate import to_located
from .typed import convert_column

ORDERED: Final = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
)
"""The types that have a range."""
VALUES_SHOWN: Final = 8
PATTERN_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class ValueConstraint:
    """Constraint on the values of one column; null values satisfy everything.

    ``values`` lists the allowed values; ``minimum`` and ``maximum`` are inclusive; the whole text has to match
    ``pattern``, a regular expression of RE2. In lists they apply to each value. Their constants have the column's type.
    """

    values: pa.Array[Any] | None = None
    minimum: Any = None
    maximum: Any = None
    pattern: str | None = None

    @classmethod
    def of(
        cls, type_: pa.DataType, values: list[Any] | None = None, minimum: Any = None, maximum: Any = None,
        pattern: str | None = None,
    ) -> ValueConstraint:  # fmt: skip
        """Return the constraint with its constants in ``type_``. Raises SettingError that names what does not fit."""
        of_one = pa.string() if type_ == ARRAY else type_
        if (minimum is not None or maximum is not None) and not any(is_so(of_one) for is_so in ORDERED):
            raise SettingError(
                f"min and max are for numbers, dates and timestamps, and this is a {type_word(type_)}; leave them out"
            )
        if pattern is not None and of_one != pa.string():
            raise SettingError(f"a pattern is for texts, and this is a {type_word(type_)}; leave it out")
        if pattern is not None:
            _match(pa.array([""]), pattern)
        if values is not None and not values:
            raise SettingError("values is an empty list; leave it out, or name the values that are allowed")
        allowed = (
            None if values is None else pa.concat_arrays([_parse_constant(one, of_one, "values") for one in values])
        )
        low, high = (
            None if bound is None else _parse_constant(bound, of_one, word)[0]
            for bound, word in ((minimum, "min"), (maximum, "max"))
        )
        if low is not None and high is not None and bool(pc.greater(low, high).as_py()):
            raise SettingError(f"min {minimum!r} is above max {maximum!r}; swap them")
        constraint = cls(allowed, low, high, pattern)
        if allowed is not None:
            constraint._require_satisfiable(allowed)
        return constraint

    def _require_satisfiable(self, allowed: pa.Array[Any]) -> None:
        """Raise SettingError if the other rules refuse each of the allowed values."""
        kept: Any = np.ones(len(allowed), np.bool_)
        for rule in self._keep(allowed):
            kept = kept & _to_mask(rule.fill_null(False))
        if not kept.any():
            others = [asked for reason, asked in self.rules if reason != "value_not_allowed"]
            raise SettingError(
                f"no value satisfies both values ({self.rules[0][1]}) and the rest ({', '.join(others)}), so that "
                "every message would be refused; change one of them"
            )

    @property
    def rules(self) -> list[tuple[str, str]]:
        """The reason for each possible violation, in the order of ``find_breaches``, with the rule in words."""
        found = []
        if self.values is not None:
            words = [str(value) for value in self.values[:VALUES_SHOWN].to_pylist()]
            found.append(("value_not_allowed", ", ".join(words) + (", …" if len(self.values) > VALUES_SHOWN else "")))
        if self.minimum is not None or self.maximum is not None:
            low, high = (None if bound is None else bound.as_py() for bound in (self.minimum, self.maximum))
            words = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
            found.append(("out_of_range", " and ".join(words)))
        if self.pattern is not None:
            shown = self.pattern[:PATTERN_SHOWN] + ("…" if len(self.pattern) > PATTERN_SHOWN else "")
            found.append(("pattern_mismatch", shown))
        return found

    def find_breaches(self, column: pa.Array[Any]) -> Iterator[NDArray[np.bool_] | None]:
        """Yield for each of ``rules`` which rows violate it, or None if no row does.

        The column has the constraint's type, or is a dictionary of it, of which only the distinct values are checked.
        """
        held: Any = column
        values: Any = held.dictionary if pa.types.is_dictionary(held.type) else held
        values = pc.list_flatten(values) if pa.types.is_list(values.type) else values
        for kept in self._keep(values):
            broken = pc.invert(kept).fill_null(False)
            if not pc.any(broken).as_py():
                yield None
            elif pa.types.is_dictionary(held.type):
                yield _to_mask(broken.take(held.indices).fill_null(False))
            elif pa.types.is_list(held.type):
                rows = np.zeros(len(held), np.bool_)
                rows[pc.list_parent_indices(held).to_numpy()[_to_mask(broken)]] = True
                yield rows
            else:
                yield _to_mask(broken)

    def _keep(self, values: Any) -> Iterator[Any]:
        """Yield for each rule which values satisfy it; null for a null."""
        if self.values is not None:
            missing: Any = pa.scalar(None, pa.bool_())
            yield pc.if_else(pc.is_null(values), missing, pc.is_in(values, value_set=self.values))
        if self.minimum is not None or self.maximum is not None:
            above = None if self.minimum is None else pc.greater_equal(values, self.minimum)
            below = None if self.maximum is None else pc.less_equal(values, self.maximum)
            yield (
                pc.and_(above, below) if above is not None and below is not None else above if below is None else below
            )
        if self.pattern is not None:
            yield _match(values, self.pattern)


def _match(texts: Any, pattern: str) -> Any:
    try:
        return pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")
    except pa.ArrowInvalid as error:
        reason = str(error).rpartition(": ")[2]
        raise SettingError(
            f"pattern {pattern!r} is not a valid regular expression (RE2): {reason}; correct it"
        ) from None


def _parse_constant(value: Any, type_: pa.DataType, word: str) -> pa.Array[Any]:
    """Return a constant of the file as a column of one row, by the typing rules of headers."""
    text = (
        value.isoformat()
        if hasattr(value, "isoformat")
        else str(value).lower()
        if value is True or value is False
        else str(value)
    )
    array, bad = convert_column(to_located(pa.array([text])), type_)
    if bad is not None:
        raise SettingError(
            f"{word}: {value!r} is not a value of type {type_word(type_)}; correct it, or choose another type"
        )
    return array


def _to_mask(array: Any) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return mask
