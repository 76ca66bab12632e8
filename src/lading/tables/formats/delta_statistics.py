"""Statistics of a Parquet file as a Delta log holds them, by which readers skip files.

Their form is that of the protocol (https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics).
"""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow.parquet as pq

TEXT_MAX: Final = 32
"""Characters of a text in statistics, as in those of Spark; columns of longer ones have no bounds."""
MILLISECOND: Final = timedelta(milliseconds=1)


def file_statistics(metadata: pq.FileMetaData) -> str:
    """Return rows, nulls and bounds of a file's columns as JSON, from its footer.

    Columns of integers, texts, dates and times have bounds if every row group has them.
    """
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    row_groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for at in range(metadata.num_columns):
        name = metadata.schema.column(at).path
        if name != metadata.schema.column(at).name:
            # a part of a list or struct
            continue
        groups: list[Any] = [row_group.column(at).statistics for row_group in row_groups]
        if not groups or not all(group is not None and group.has_null_count for group in groups):
            continue
        nulls[name] = sum(group.null_count for group in groups)
        held = [group for group in groups if group.has_min_max]
        if held and len(held) == sum(group.num_values > 0 for group in groups):
            low, high = min(group.min for group in held), max(group.max for group in held)
            if (bounds := _bounds(low, high)) is not None:
                lows[name], highs[name] = bounds
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}, ensure_ascii=False
    )


def _bounds(low: Any, high: Any) -> tuple[Any, Any] | None:
    """Return both bounds as the log writes them, or None if it has none of this type."""
    if isinstance(low, datetime):
        # written in milliseconds: both bounds have to hold what lies between
        try:
            up = high + (MILLISECOND - timedelta(microseconds=1))
        except OverflowError:
            # the last millisecond of the year 9999
            return None
        return tuple(_timestamp(each) for each in (low, up))  # type: ignore[return-value]
    if isinstance(low, date):
        return low.isoformat(), high.isoformat()
    if isinstance(low, str):
        return (low, high) if max(len(low), len(high)) <= TEXT_MAX else None
    if isinstance(low, int) and not isinstance(low, bool):
        return low, high
    return None


def _timestamp(value: datetime) -> str:
    # strftime writes a year before 1000 with fewer than four digits
    return f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
