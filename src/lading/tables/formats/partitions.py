"""How the rows of a table are divided into directories: by a column, by a unit of a time, by buckets or prefixes.

A partition is named as Hive names it, ``timestamp_day=2026-01-31/carrier=UA``: values are escaped, null has a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ...columns.contract import did_you_mean
from ...model.errors import LocalError, SettingError

NULL: Final = "__HIVE_DEFAULT_PARTITION__"
TIME_FORMATS: Final[Mapping[str, str]] = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
"""How the partitions of a timestamp are written, as Iceberg writes them for people; all in UTC."""
COUNTED: Final = ("bucket", "truncate")
EXAMPLES: Final = 'partition_by = ["day(timestamp)", "carrier"]'
NAME_BYTES_MAX: Final = 255
"""Bytes of the name of a directory, on every common file system."""
PATH_BYTES_MAX: Final = 600
"""Bytes of all levels together: the key of an object has 1,024, with the table's and the file's name."""
DIGEST_BYTES: Final = 32
PARTITIONS_MAX: Final = 1_000
"""Partitions of a task's range: each has a file open."""
_FORM: Final = re.compile(r"\s*(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?(\w+)\s*\)|(\w+))\s*")
_EPOCH: Final = date(1970, 1, 1).toordinal()
_PLAIN_TYPES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_string, pa.types.is_integer, pa.types.is_date32, pa.types.is_boolean,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One level of partitions: a column, and what is made of it."""

    column: str
    transform: str = "identity"
    """``identity``, a unit of TIME_FORMATS, or one of COUNTED."""
    count: int | None = None
    """Buckets, or characters."""

    @property
    def name(self) -> str:
        """The name in directories and logs: that of the column, followed by the transform if there is one."""
        return (
            self.column
            if self.transform == "identity"
            else f"{self.column}_{self.transform.replace('truncate', 'trunc')}"
        )

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({'' if self.count is None else f'{self.count}, '}{self.column})"

    def texts(self, values: pa.Array[Any]) -> pa.Array[Any]:
        """Return the value of each row as text; rows of one partition have the same, and null has null."""
        if pa.types.is_dictionary(values.type):
            encoded: Any = values
            values = encoded.dictionary
            taken: pa.Array[Any] = pc.take(self._to_texts(values), encoded.indices)
            return taken
        made: pa.Array[Any] = self._to_texts(values)
        return made

    def _to_texts(self, values: Any) -> Any:
        if self.transform in TIME_FORMATS:
            made: Any = pc
            # a stretch of messages has few hours, and formatting one costs a microsecond
            hours = pc.floor_temporal(values, unit="hour" if self.transform == "hour" else "day").dictionary_encode()
            days = hours.dictionary.cast(pa.timestamp("s", tz="UTC"), safe=False)
            return made.strftime(days, format=TIME_FORMATS[self.transform]).take(hours.indices)
        if self.transform == "bucket":
            from pyiceberg.transforms import BucketTransform

            hashed = BucketTransform(self.count or 1).transform(_iceberg_type(values.type))
            encoded = values.dictionary_encode()
            texts = pa.array([str(hashed(value)) for value in encoded.dictionary.to_pylist()], pa.string())
            return texts.take(encoded.indices)
        if self.transform == "truncate":
            if pa.types.is_string(values.type):
                return pc.utf8_slice_codeunits(values, 0, self.count)
            encoded = values.dictionary_encode()
            width = self.count or 1
            lows = [str(value - value % width) for value in encoded.dictionary.to_pylist()]
            return pa.array(lows, pa.string()).take(encoded.indices)
        return values.cast(pa.string())

    def number(self, text: str | None, type_: pa.DataType) -> Any:
        """Return the value of a partition as Iceberg's manifests hold it; ``type_`` is that of the column."""
        if text is None:
            return None
        if self.transform in TIME_FORMATS:
            year, month, day, hour = (int(part) for part in [*text.split("-"), "1", "1", "0"][:4])
            if self.transform == "year":
                return year - 1970
            if self.transform == "month":
                return (year - 1970) * 12 + month - 1
            days = date(year, month, day).toordinal() - _EPOCH
            return days if self.transform == "day" else days * 24 + hour
        if self.transform == "bucket" or pa.types.is_integer(type_):
            return int(text)
        if pa.types.is_boolean(type_):
            return text == "true"
        if pa.types.is_date32(type_):
            return date.fromisoformat(text).toordinal() - _EPOCH
        return text


@dataclass(frozen=True)
class Partitions:
    """All levels of a table, the outermost one first; a table without partitions has none."""

    fields: tuple[PartitionField, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fields)

    @property
    def words(self) -> list[str]:
        """The levels as they are written in settings."""
        return [str(field) for field in self.fields]

    @cached_property
    def identities(self) -> frozenset[str]:
        """The columns whose values are the partitions themselves."""
        return frozenset(field.column for field in self.fields if field.transform == "identity")

    @classmethod
    def parse(cls, texts: Sequence[str], schema: pa.Schema | None = None, key: str = "partition_by") -> Partitions:
        """Parse levels as settings write them, and hold them against the columns of the table.

        Raises SettingError, which names ``key``, for what cannot be a partition.
        """
        fields = []
        for text in texts:
            found = _FORM.fullmatch(text)
            if found is None:
                raise SettingError(f"{key}: {text!r} is not a partition; write them as in {EXAMPLES}")
            transform, count, column = found[1] or "identity", found[2], found[3] or found[4]
            field = PartitionField(column, transform, None if count is None else int(count))
            _check_form(field, text, key)
            if schema is not None:
                _check_column(field, schema, key)
            fields.append(field)
        names = [field.name for field in fields]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise SettingError(f"{key}: {twice!r} is named twice; name each partition once")
        others = [] if schema is None else [name for name in names if name in schema.names]
        if clash := next((field for field in fields if field.transform != "identity" and field.name in others), None):
            raise SettingError(f"{key}: {clash} is called {clash.name!r}, as a column is; name the column otherwise")
        if schema is not None and not set(schema.names) - {
            field.column for field in fields if field.name == field.column
        }:
            raise SettingError(f"{key}: every column is a partition; leave one column for the files")
        return cls(tuple(fields))

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of each partition, in their order, with the partition's name."""
        if not self.fields:
            yield "", batch
            return
        codes: Any = None
        texts: list[Any] = []
        for field in self.fields:
            encoded: Any = field.texts(batch.column(field.column)).dictionary_encode(null_encoding="encode")
            indices = encoded.indices.cast(pa.int64())
            texts.append(encoded.dictionary.to_pylist())
            codes = indices if codes is None else pc.add(pc.multiply(codes, len(texts[-1])), indices)
        numbers = pc.unique(codes).to_pylist()
        for number in numbers:
            rows = batch if len(numbers) == 1 else batch.filter(pc.equal(codes, number))
            values: list[str | None] = []
            for held in reversed(texts):
                number, at = divmod(number, len(held))
                values.append(held[at])
            yield self.name_of(values[::-1]), rows

    def name_of(self, values: Sequence[str | None]) -> str:
        """Return the name of the partition with these values."""
        return "/".join(name_level(field.name, value) for field, value in zip(self.fields, values, strict=True))

    def values_of(self, name: str) -> dict[str, str | None]:
        """Return the values of the partition of this name, by the names of the levels."""
        parts = dict(part.partition("=")[::2] for part in name.split("/"))
        return {field.name: parse_value(parts[field.name]) for field in self.fields}

    def time_fields(self) -> list[pa.Field[Any]]:
        """Return the columns that exist only as partitions, such as the day of a time."""
        types = {"year": pa.int32(), "day": pa.date32()}
        return [
            pa.field(field.name, types.get(field.transform, pa.string()))
            for field in self.fields
            if field.transform != "identity"
        ]

    def require(self, transforms: Sequence[str], noun: str) -> None:
        """Raise SettingError for a transform that a form of tables does not have."""
        for field in self.fields:
            if field.transform in COUNTED and field.transform not in transforms:
                raise SettingError(
                    f"partition_by: {field} takes an Iceberg table, and this is {noun}; partition by the column, or by "
                    "a unit of a time, or write iceberg:"
                )

    def too_many_error(self, table: object) -> LocalError:
        """Return the error for a range with more partitions than a task can have files open."""
        return LocalError(
            f"the table {table}: a task's messages fall into more than {PARTITIONS_MAX:,} partitions by "
            f"{', '.join(self.words)}; partition by fewer values, such as day instead of hour, or have fewer rows"
        )


def drop_long_values(name: str) -> str:
    """Return the name of a partition with null for values that make a level longer than the name of a directory."""
    if len(name) <= NAME_BYTES_MAX:
        return name
    levels = (level.partition("=") for level in name.split("/"))
    return "/".join(
        f"{column}={NULL if len(column) + 1 + len(value) > NAME_BYTES_MAX else value}" for column, _, value in levels
    )


def long_values_sentence(rows: int) -> str:
    """Return a sentence about rows whose value is null because no directory can have its name."""
    have = "1 row has" if rows == 1 else f"{rows:,} rows have"
    return (
        f"{have} a value that is longer than the name of a directory ({NAME_BYTES_MAX} bytes) and is null in the "
        "table; a delta: or iceberg: table keeps it"
    )


def shorten_directory(name: str) -> str:
    """Return the directory of a partition whose values are in a log, with digests for levels that are too long."""
    if len(name) <= NAME_BYTES_MAX:
        return name
    level_bytes_max = NAME_BYTES_MAX if len(name) <= PATH_BYTES_MAX else DIGEST_BYTES
    return "/".join(_shorten_level(level, level_bytes_max) for level in name.split("/"))


def _shorten_level(level: str, bytes_max: int) -> str:
    column, _, value = level.partition("=")
    if len(level) <= bytes_max or len(value) <= DIGEST_BYTES:
        return level
    return f"{column}={xxhash.xxh3_128_hexdigest(value.encode())}"


def name_level(name: str, value: str | None) -> str:
    """Return the name of one level of a partition; different values have different names."""
    if value is None:
        return f"{name}={NULL}"
    # quoting alone would leave the word for null as it is
    return f"{name}=%5F{NULL[1:]}" if value == NULL else f"{name}={quote(value, safe='')}"


def _check_form(field: PartitionField, text: str, key: str) -> None:
    known = ("identity", *TIME_FORMATS, *COUNTED)
    if field.transform not in known:
        near = did_you_mean(field.transform, known[1:])
        raise SettingError(f"{key}: {text!r} is none of {', '.join(known[1:])}{near}; write them as in {EXAMPLES}")
    if (field.transform in COUNTED) != (field.count is not None) or field.count == 0:
        form = (
            f"{field.transform}(16, {field.column})"
            if field.transform in COUNTED
            else f"{field.transform}({field.column})"
        )
        raise SettingError(f"{key}: {text!r} is not a partition; write it as {form}")


def _check_column(field: PartitionField, schema: pa.Schema, key: str) -> None:
    if field.column not in schema.names:
        near = did_you_mean(field.column, schema.names)
        raise SettingError(
            f"{key}: the table has no column {field.column!r}{near}; there are {', '.join(schema.names)}"
        )
    type_ = schema.field(field.column).type
    if field.transform in TIME_FORMATS:
        if not pa.types.is_timestamp(type_):
            raise SettingError(f"{key}: {field} takes a timestamp, and {field.column!r} is {type_}; name it alone")
        return
    kinds = (pa.types.is_string, pa.types.is_integer) if field.transform in COUNTED else _PLAIN_TYPES
    if not any(is_kind(type_) for is_kind in kinds):
        advice = "name a unit, such as day(…)" if pa.types.is_timestamp(type_) else "name another column"
        raise SettingError(f"{key}: {field} cannot be a partition, as {field.column!r} is {type_}; {advice}")


def parse_value(text: str) -> str | None:
    """Return the value after ``=`` in the name of a partition; None for null."""
    return None if text == NULL else unquote(text)


def _iceberg_type(type_: pa.DataType) -> Any:
    from pyiceberg import types

    return types.StringType() if pa.types.is_string(type_) else types.LongType()
