"""Iggy classic's error codes: number, snake-case name, HTTP status and text, and which Reason becomes which code.

Codes are iggy.md A7 (complete), statuses A5; texts with ``{…}`` name what was asked for. TCP sends only the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Final

from ...model.errors import CorruptError, LadingError, MalformedMessage, Reason, Refusal
from ...model.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class ErrorRow:
    """One error: ``text`` is the ``reason`` of the HTTP document, with the names of the facts it tells in braces."""

    code: int
    name: str
    status: int
    text: str


_NAMES: Final = """
1 error · 2 invalid_configuration · 3 invalid_command · 4 invalid_format · 5 feature_unavailable
10 cannot_create_base_directory
51 not_connected · 52 request_error
60 invalid_encryption_key · 61 cannot_encrypt_data · 62 cannot_decrypt_data
100 client_not_found · 101 invalid_client_id
200 io_error · 201 write_error · 202 cannot_parse_utf8 · 203 cannot_parse_int · 204 cannot_parse_slice
300 http_response_error · 301 request_middleware_error · 302 cannot_create_endpoint · 303 cannot_parse_url
304 invalid_response · 305 empty_response · 306 cannot_parse_address · 307 read_error · 308 connection_error
309 read_to_end_error
1000 cannot_create_streams_directory · 1001 cannot_create_stream_directory · 1002 cannot_create_stream_info
1003 cannot_update_stream_info · 1004 cannot_open_stream_info · 1005 cannot_read_stream_info
1006 cannot_create_stream · 1007 cannot_delete_stream · 1008 cannot_delete_stream_directory
1009 stream_id_not_found · 1010 stream_name_not_found · 1011 stream_id_already_exists
1012 stream_name_already_exists · 1013 invalid_stream_name · 1014 invalid_stream_id · 1015 cannot_read_streams
2000 cannot_create_topics_directory · 2001 cannot_create_topic_directory · 2002 cannot_create_topic_info
2003 cannot_update_topic_info · 2004 cannot_open_topic_info · 2005 cannot_read_topic_info · 2006 cannot_create_topic
2007 cannot_delete_topic · 2008 cannot_delete_topic_directory · 2009 cannot_poll_topic
2010 topic_id_not_found · 2011 topic_name_not_found · 2012 topic_id_already_exists · 2013 topic_name_already_exists
2014 invalid_topic_name · 2015 too_many_partitions · 2016 invalid_topic_id · 2017 cannot_read_topics
3000 cannot_create_partition · 3001 cannot_create_partitions_directory · 3002 cannot_create_partition_directory
3003 cannot_open_partition_log_file · 3004 cannot_read_partitions · 3005 cannot_delete_partition
3006 cannot_delete_partition_directory · 3007 partition_not_found · 3008 no_partitions
4000 segment_not_found · 4001 segment_closed · 4002 invalid_segment_size · 4003 cannot_create_segment_log_file
4004 cannot_create_segment_index_file · 4005 cannot_create_segment_time_index_file
4006 cannot_save_messages_to_segment · 4007 cannot_save_index_to_segment · 4008 cannot_save_time_index_to_segment
4009 invalid_messages_count · 4010 cannot_append_message · 4011 cannot_read_message · 4012 cannot_read_message_id
4013 cannot_read_message_state · 4014 cannot_read_message_timestamp · 4015 cannot_read_headers_length
4016 cannot_read_headers_payload · 4017 too_big_headers_payload · 4018 invalid_header_key · 4019 invalid_header_value
4020 cannot_read_message_length · 4021 cannot_read_message_payload · 4022 too_big_message_payload
4023 too_many_messages · 4024 empty_message_payload · 4025 invalid_message_payload_length
4026 cannot_read_message_checksum · 4027 invalid_message_checksum · 4028 invalid_key_value_length
4100 invalid_offset · 4101 cannot_read_consumer_offsets
5000 consumer_group_not_found · 5001 consumer_group_already_exists · 5002 consumer_group_member_not_found
5003 invalid_consumer_group_id · 5004 cannot_create_consumer_groups_directory · 5005 cannot_read_consumer_groups
5006 cannot_create_consumer_group_info · 5007 cannot_delete_consumer_group_info
"""
_STATUS: Final = {
    **dict.fromkeys((100, 1009, 2010, 3007, 4000, 5000, 5002), 404),
    # 4006 and 4010 are 400 in the real server; here they say that the disk is full or broken, no fault of the request
    **dict.fromkeys((200, 201, 202, 203, 204, 4006, 4010), 500),
}
_TEXT: Final = {
    5: "Feature is unavailable",
    100: "Client with ID: {client} was not found.",
    101: "Invalid client ID",
    1009: "Stream with ID: {stream} was not found.",
    1010: "Stream with name: {stream} was not found.",
    1011: "Stream with ID: {new_id} already exists.",
    1012: "Stream with name: {new_name} already exists.",
    1014: "Invalid stream ID",
    2010: "Topic with ID: {topic} for stream with ID: {stream} was not found.",
    2011: "Topic with name: {topic} for stream with ID: {stream} was not found.",
    2012: "Topic with ID: {new_id} for stream with ID: {stream} already exists.",
    2013: "Topic with name: {new_name} for stream with ID: {stream} already exists.",
    2016: "Invalid topic ID",
    3007: "Partition with ID: {partition} was not found.",
    3008: "Topic with ID: {topic} for stream with ID: {stream} has no partitions.",
    4100: "Invalid offset: {offset}",
    5000: "Consumer group with ID: {group} for topic with ID: {topic} was not found.",
    5001: "Consumer group with ID: {group} for topic with ID: {topic} already exists.",
    5002: "Consumer group member with ID: {client} for consumer group with ID: {group} was not found.",
    5003: "Invalid consumer group ID",
}


def _rows() -> dict[int, ErrorRow]:
    table = {}
    for entry in _NAMES.replace("\n", " · ").split(" · "):
        if entry.strip():
            number, name = entry.split()
            code = int(number)
            table[code] = ErrorRow(
                code, name, _STATUS.get(code, 400), _TEXT.get(code, name.replace("_", " ").capitalize())
            )
    return table


ERRORS: Final[Mapping[int, ErrorRow]] = _rows()
"""Every error of the generation by code."""

GENERIC: Final = 1
"""``error``: the code of reasons that this generation has no word for."""

CODE_OF: Final[Mapping[Reason, int]] = {
    Reason.MALFORMED: 3,
    Reason.UNKNOWN_COMMAND: 3,
    Reason.INVALID_STATE: 3,
    Reason.UNKNOWN_KIND: 3,
    Reason.FEATURE_UNAVAILABLE: 5,
    Reason.CLIENT_NOT_FOUND: 100,
    Reason.INVALID_CLIENT_ID: 101,
    Reason.INVALID_PARTITION_ID: 204,
    Reason.STREAM_ID_NOT_FOUND: 1009,
    Reason.STREAM_NAME_NOT_FOUND: 1010,
    Reason.STREAM_ID_EXISTS: 1011,
    Reason.STREAM_NAME_EXISTS: 1012,
    Reason.INVALID_STREAM_NAME: 1013,
    Reason.INVALID_STREAM_ID: 1014,
    Reason.TOPIC_ID_NOT_FOUND: 2010,
    Reason.TOPIC_NAME_NOT_FOUND: 2011,
    Reason.TOPIC_ID_EXISTS: 2012,
    Reason.TOPIC_NAME_EXISTS: 2013,
    Reason.AMBIGUOUS_NAME: 2013,
    Reason.INVALID_TOPIC_NAME: 2014,
    Reason.TOO_MANY_PARTITIONS: 2015,
    Reason.INVALID_TOPIC_ID: 2016,
    Reason.PARTITION_NOT_FOUND: 3007,
    Reason.NO_PARTITIONS: 3008,
    Reason.DISK_FULL: 4006,
    Reason.INVALID_COUNT: 4009,
    Reason.READ_ONLY: 4010,
    Reason.HEADERS_TOO_LARGE: 4017,
    Reason.INVALID_HEADER_KEY: 4018,
    Reason.INVALID_HEADER_VALUE: 4019,
    Reason.PAYLOAD_TOO_LARGE: 4022,
    Reason.REQUEST_TOO_LARGE: 4022,
    Reason.EMPTY_PAYLOAD: 4024,
    Reason.INVALID_PARTITION_KEY: 4028,
    Reason.INVALID_OFFSET: 4100,
    Reason.GROUP_NOT_FOUND: 5000,
    Reason.GROUP_EXISTS: 5001,
    Reason.GROUP_MEMBER_NOT_FOUND: 5002,
    Reason.INVALID_GROUP_ID: 5003,
}
REASON_OF: Final[Mapping[int, Reason]] = {code: reason for reason, code in reversed(list(CODE_OF.items()))}
"""The reason behind a code; where several share one, the first of ``CODE_OF``."""


class StatusError(LadingError):
    """A request is refused with this code, which no Reason stands for."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: LadingError, codes: Mapping[Reason, int] = CODE_OF) -> int:
    """Return the code of the response to a request that ``error`` ended, by the ``codes`` of a release."""
    match error:
        case StatusError():
            return error.code
        case Refusal() | MalformedMessage():
            return codes.get(error.reason, GENERIC)
        case CorruptError():
            return codes[Reason.MALFORMED]
        case _:
            return GENERIC


def name_of(code: int) -> str:
    """Return the snake-case name of a code, e.g. ``stream_id_not_found``; ``error_N`` if the code is unknown."""
    return ERRORS[code].name if code in ERRORS else f"error_{code}"


def text_of(code: int, facts: Mapping[str, object]) -> str | None:
    """Return the text of the HTTP document for a code, or None if ``facts`` lacks something that the text names.

    Facts: client, stream, topic, partition, group, offset as asked for, new_id and new_name of what was to be created.
    """
    row = ERRORS[code]
    needed = {name for _, name, _, _ in Formatter().parse(row.text) if name}
    return row.text.format_map(facts) if needed <= facts.keys() else None
