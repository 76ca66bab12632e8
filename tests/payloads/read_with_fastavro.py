"""The oracle of Avro: payloads as hexadecimal lines, read by fastavro, to the ``repr`` of their columns or null."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import fastavro  # type: ignore[import-not-found, unused-ignore]


def read(schema: Any, payload: bytes) -> str | None:
    try:
        row = fastavro.schemaless_reader(io.BytesIO(payload), schema, None)
    except Exception:
        return None
    members = dict(sorted(row["m"].items()))
    return repr(
        [row["a"], row["n"], row["i"], row["b"], row["o"]["x"], row["o"]["y"], row["l"], members, row["e"], row["f"]]
    )


def main() -> None:
    schema = fastavro.parse_schema(json.loads(sys.argv[1]))
    json.dump([read(schema, bytes.fromhex(line)) for line in sys.stdin.read().split("\n")[:-1]], sys.stdout)


if __name__ == "__main__":
    main()
