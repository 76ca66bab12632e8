"""An oracle of payloads of any schema, run with the interpreter of the library that it is called by.

Lines of JSON come in: a schema, and payloads in hexadecimal. For each a line goes out: the ``repr`` of each row's
columns, or null for a payload that the library refuses. Of Avro a payload that is not read to its end is refused.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Callable
from typing import Any


class Unreadable(Exception):
    """A decimal with more digits than its schema's precision, which libraries return."""


def strip_logical(schema: Any) -> Any:
    """Return an Avro schema whose values are read as their bytes and numbers."""
    if isinstance(schema, dict):
        return {name: strip_logical(value) for name, value in schema.items() if name != "logicalType"}
    return [strip_logical(one) for one in schema] if isinstance(schema, list) else schema


def convert(schema: Any, value: Any) -> Any:
    """Return a value as the column for it has it: texts of unions of texts and numbers, members in order."""
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if value is None or len(others) == 1:
            return None if value is None else convert(others[0], value)
        return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {
            one["name"]: convert(one["type"], value[one["name"]]) for one in schema["fields"] if one["name"] != "next"
        }
    if kind == "array":
        return [convert(schema["items"], one) for one in value]
    if kind == "map":
        return dict(sorted((name, convert(schema["values"], one)) for name, one in value.items()))
    if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
        number = int.from_bytes(value, "big", signed=True)
        if abs(number) >= 10 ** schema["precision"]:
            raise Unreadable
        return number
    return value


def convert_row(schema: Any, row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a record; one with a value that cannot be read is null."""
    found: dict[str, Any] = {}
    for field in schema["fields"]:
        if field["name"] != "next":
            try:
                found[field["name"]] = convert(field["type"], row[field["name"]])
            except Unreadable:
                found[field["name"]] = None
    return found


def find_readers(name: str) -> Callable[[Any], Callable[[bytes], Any]]:
    """Return what makes a reader of one schema with a library."""
    if name == "fastavro":
        fastavro: Any = importlib.import_module("fastavro")

        def make_fastavro(schema: Any) -> Callable[[bytes], Any]:
            parsed = fastavro.parse_schema(strip_logical(schema))
            return lambda payload: _read_whole(payload, lambda data: fastavro.schemaless_reader(data, parsed, None))

        return make_fastavro
    avro_io: Any = importlib.import_module("avro.io")
    avro_schema: Any = importlib.import_module("avro.schema")

    def make_avro(schema: Any) -> Callable[[bytes], Any]:
        reader = avro_io.DatumReader(avro_schema.parse(json.dumps(strip_logical(schema))))
        return lambda payload: _read_whole(payload, lambda data: reader.read(avro_io.BinaryDecoder(data)))

    return make_avro


def _read_whole(payload: bytes, read: Callable[[io.BytesIO], Any]) -> Any:
    data = io.BytesIO(payload)
    found = read(data)
    if data.tell() != len(payload):
        raise ValueError("bytes after the end")
    return found


def main() -> None:
    if sys.argv[1] == "protobuf":
        protobuf: Any = importlib.import_module("read_with_protobuf")

        def read_all(schema: Any, payloads: list[bytes]) -> list[str | None]:
            message = protobuf.find_class(schema["descriptor"], schema["message"])
            found: list[str | None] = []
            for payload in payloads:
                try:
                    found.append(protobuf.read(message, payload)[0])
                except (TypeError, UnicodeDecodeError):
                    # refused at once, or when a text of proto2 is read
                    found.append(None)
            return found
    else:
        make = find_readers(sys.argv[1])

        def read_all(schema: Any, payloads: list[bytes]) -> list[str | None]:
            read, found = make(schema), list[str | None]()
            for payload in payloads:
                try:
                    found.append(repr(convert_row(schema, read(payload))))
                except Exception:
                    found.append(None)
            return found

    for line in sys.stdin:
        document = json.loads(line)
        payloads = [bytes.fromhex(one) for one in document["payloads"]]
        print(json.dumps(read_all(document["schema"], payloads)), flush=True)


if __name__ == "__main__":
    main()
