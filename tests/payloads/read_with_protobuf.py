"""The oracle of Protobuf: payloads as hexadecimal lines, read by Google's library, to the ``repr`` of their columns.

With a third argument the lines are JSON, and become payloads as hexadecimal texts.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from google.protobuf import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)


def find_class(descriptor: str, name: str) -> Any:
    """Return the class of a message of a file, whose descriptor is in Base64."""
    pool = descriptor_pool.DescriptorPool()
    for known in (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(descriptor))
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def read_value(message: Any, field: Any) -> Any:
    """Return the value of a field as columns have it: absent ones of proto3 are defaults, messages only if there."""
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_value = field.message_type.fields_by_name["value"]
        return dict(sorted((key, convert(of_value, one)) for key, one in value.items()))
    if field.is_repeated:
        return [convert(field, one) for one in value]
    if field.has_presence and not message.HasField(field.name) and not field.has_default_value:
        return None
    return convert(field, value)


def convert(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return {one.name: read_value(value, one) for one in field.message_type.fields if one.name != "n"}
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return str(value) if found is None else found.name
    return value


def read(message: Any, payload: bytes) -> list[str] | None:
    found = message()
    try:
        found.ParseFromString(payload)
    except Exception:
        return None
    columns = {one.name: read_value(found, one) for one in sorted(message.DESCRIPTOR.fields, key=lambda one: one.name)}
    try:
        document = json_format.MessageToDict(
            found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    except Exception:
        document = None
    return [repr(columns), json.dumps(document, sort_keys=True)]


def write(message: Any, text: str) -> str | None:
    try:
        found: str = json_format.Parse(text, message()).SerializeToString(deterministic=True).hex()
    except Exception:
        return None
    return found


def main() -> None:
    message = find_class(sys.argv[1], sys.argv[2])
    lines = sys.stdin.read().split("\n")[:-1]
    if len(sys.argv) > 3:
        json.dump([write(message, line) for line in lines], sys.stdout)
    else:
        json.dump([read(message, bytes.fromhex(line)) for line in lines], sys.stdout)


if __name__ == "__main__":
    main()
