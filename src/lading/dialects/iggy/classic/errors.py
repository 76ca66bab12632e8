"""Iggy's error codes in all releases: number, snake-case name, and which Reason becomes which code.

Codes are iggy.md A7 and iggy-current.md B7 (both complete). Those of 0.0.40 have an HTTP status and a text (A5), in
which ``{…}`` names what was asked for. TCP sends only the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Final

from ....model.errors import CorruptError, LadingError, MalformedMessage, Reason, Refusal
from ....model.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class ErrorRow:
    """One error: ``text`` is the ``reason`` of the HTTP document, with the names of its facts in braces."""

    code: int
    name: str
    status: int
    text: str


def _parse_names(text: str) -> dict[int, str]:
    """Return the names in a text, by code: numbers and names, with dots or line ends between them."""
    entries = text.replace("\n", " · ").split(" · ")
    return {int(number): name for number, name in (entry.split() for entry in entries if entry.strip())}


_NAMES: Final = """
1 error · 2 invalid_configuration · 3 invalid_command · 4 invalid_format · 5 feature_unavailable
6 invalid_identifier · 7 invalid_version · 8 disconnected · 9 cannot_establish_connection
10 cannot_create_base_directory · 11 cannot_create_runtime_directory · 12 cannot_remove_runtime_directory
13 cannot_create_state_directory · 14 state_file_not_found · 15 state_file_corrupted
16 invalid_state_entry_checksum · 19 cannot_open_database · 20 resource_not_found
21 cannot_close_web_socket_connection · 30 stale_client · 31 tcp_error · 32 quic_error · 33 invalid_server_address
34 invalid_client_address · 35 invalid_ip_address · 36 http_error · 37 invalid_api_url · 40 unauthenticated
41 unauthorized · 42 invalid_credentials · 43 invalid_username · 44 invalid_password · 45 invalid_user_status
46 user_already_exists · 47 user_inactive · 48 cannot_delete_user · 49 cannot_change_permissions
50 invalid_personal_access_token_name · 51 personal_access_token_already_exists
52 personal_access_tokens_limit_reached · 53 invalid_personal_access_token · 54 personal_access_token_expired
55 users_limit_reached · 56 invalid_personal_access_token_expiry · 57 transient_not_committed
58 transient_not_accepted · 59 request_already_applied · 61 not_connected · 63 client_shutdown
64 invalid_tls_domain · 65 invalid_tls_certificate_path · 66 invalid_tls_certificate · 67 failed_to_add_certificate
70 invalid_encryption_key · 71 cannot_encrypt_data · 72 cannot_decrypt_data · 73 invalid_jwt_algorithm
74 invalid_jwt_secret · 75 jwt_missing · 76 cannot_generate_jwt · 77 access_token_missing · 78 invalid_access_token
79 cannot_fetch_jwks · 80 invalid_size_bytes · 81 invalid_utf8 · 82 invalid_number_encoding
83 invalid_boolean_value · 84 invalid_number_value · 100 client_not_found · 101 invalid_client_id
206 connection_closed · 209 cannot_parse_header_kind · 300 http_response_error · 301 invalid_http_request
302 invalid_json_response · 303 invalid_bytes_response · 304 empty_response · 305 cannot_create_endpoint
306 cannot_parse_url · 400 web_socket_error · 401 web_socket_connection_error · 402 web_socket_close_error
403 web_socket_receive_error · 404 web_socket_send_error
1000 cannot_create_streams_directory · 1001 cannot_create_stream_directory · 1002 cannot_create_stream_info
1003 cannot_update_stream_info · 1004 cannot_open_stream_info · 1005 cannot_read_stream_info
1006 cannot_create_stream · 1007 cannot_delete_stream · 1008 cannot_delete_stream_directory
1009 stream_id_not_found · 1010 stream_name_not_found · 1011 stream_directory_not_found
1012 stream_name_already_exists · 1013 invalid_stream_name · 1014 invalid_stream_id · 1015 cannot_read_streams
1019 invalid_topic_size · 1020 too_many_streams
2000 cannot_create_topics_directory · 2001 cannot_create_topic_directory · 2002 cannot_create_topic_info
2003 cannot_update_topic_info · 2004 cannot_open_topic_info · 2005 cannot_read_topic_info · 2006 cannot_create_topic
2007 cannot_delete_topic · 2008 cannot_delete_topic_directory · 2009 cannot_poll_topic · 2010 topic_id_not_found
2011 topic_name_not_found · 2013 topic_name_already_exists · 2014 invalid_topic_name · 2015 too_many_partitions
2016 invalid_topic_id · 2017 cannot_read_topics · 2018 invalid_replication_factor · 2019 invalid_partitions_count
2020 topic_directory_not_found · 2021 too_many_topics
3000 cannot_create_partition · 3001 cannot_create_partitions_directory · 3002 cannot_create_partition_directory
3003 cannot_open_partition_log_file · 3004 cannot_read_partitions · 3005 cannot_delete_partition
3006 cannot_delete_partition_directory · 3007 partition_not_found · 3008 no_partitions · 3009 topic_full
3010 cannot_delete_consumer_offsets_directory · 3011 cannot_delete_consumer_offset_file
3012 cannot_create_consumer_offsets_directory · 3013 partition_id_space_exhausted
3020 cannot_read_consumer_offsets · 3021 consumer_offset_not_found · 3022 not_resolved_consumer
3023 cannot_open_consumer_offsets_file
4000 segment_not_found · 4001 segment_closed · 4002 invalid_segment_size · 4003 cannot_create_segment_log_file
4004 cannot_create_segment_index_file · 4005 cannot_create_segment_time_index_file
4006 cannot_save_messages_to_segment · 4007 cannot_save_index_to_segment · 4008 cannot_save_time_index_to_segment
4009 invalid_messages_count · 4010 cannot_append_message · 4011 cannot_read_message · 4012 cannot_read_message_id
4013 cannot_read_message_state · 4014 cannot_read_message_timestamp · 4015 cannot_read_headers_length
4016 cannot_read_headers_payload · 4017 too_big_user_headers · 4018 invalid_header_key · 4019 invalid_header_value
4020 cannot_read_message_length · 4021 cannot_read_message_payload · 4022 too_big_message_payload
4023 too_many_messages · 4024 empty_message_payload · 4025 invalid_message_payload_length
4026 cannot_read_message_checksum · 4027 invalid_message_checksum · 4028 invalid_key_value_length
4029 command_length_error · 4030 invalid_segments_count · 4031 non_zero_offset · 4032 non_zero_timestamp
4033 missing_index · 4034 invalid_indexes_byte_size · 4035 invalid_indexes_count · 4036 invalid_messages_size
4037 too_small_message · 4038 invalid_message_timestamp_delta · 4039 invalid_batch_checksum
4040 invalid_header_kind · 4041 unsupported_option_key · 4042 invalid_option_value · 4043 options_block_too_large
4050 cannot_send_messages_due_to_client_disconnection · 4051 background_send_error · 4052 background_send_timeout
4053 background_send_buffer_full · 4054 background_worker_disconnected · 4055 background_send_buffer_overflow
4056 producer_send_failed · 4057 producer_closed · 4100 invalid_offset · 4101 invalid_reserved_field
5000 consumer_group_id_not_found · 5002 invalid_consumer_group_id · 5003 consumer_group_name_not_found
5004 consumer_group_name_already_exists · 5005 invalid_consumer_group_name · 5006 consumer_group_member_not_found
5007 cannot_create_consumer_group_info · 5008 cannot_delete_consumer_group_info
5009 consumer_group_partition_not_owned
6000 missing_base_offset_retained_message_batch · 6001 missing_last_offset_delta_retained_message_batch
6002 missing_max_timestamp_retained_message_batch · 6003 missing_length_retained_message_batch
6004 missing_payload_retained_message_batch
7000 cannot_read_batch_base_offset · 7001 cannot_read_batch_length · 7002 cannot_read_last_offset_delta
7003 cannot_read_max_timestamp · 7004 cannot_read_batch_payload
8000 invalid_connection_string
9000 snapshot_file_completion_failed
10000 cannot_serialize_resource · 10001 cannot_deserialize_resource · 10002 cannot_read_file
10003 cannot_read_file_metadata · 10004 cannot_seek_file · 10005 cannot_append_to_file · 10006 cannot_write_to_file
10007 cannot_overwrite_file · 10008 cannot_delete_file · 10009 cannot_sync_file · 10010 cannot_read_index_offset
10011 cannot_read_index_position · 10012 cannot_read_index_timestamp · 10013 timestamp_out_of_range
11000 shard_not_found · 11001 shard_communication_error
12000 cannot_bind_to_socket · 12001 task_timeout
13000 io_error
14000 already_authenticated · 14001 invalid_session · 14003 incompatible_protocol_version
"""
_NAMES_SINCE_0_12: Final = """
85 request_too_old · 87 history_unavailable · 88 lifecycle_busy · 89 not_primary
90 deferred_poll_capacity_exceeded · 91 producer_ids_exhausted · 92 producer_sequence_out_of_order
93 producer_epoch_fenced · 94 producer_unknown · 95 producer_partition_required
2022 partitions_limit_reached · 2023 partition_resize_disabled · 3014 partition_history_changed
3024 too_many_consumer_offsets
4102 segment_size_mismatch_at_open · 4103 option_not_updatable · 4104 option_not_resettable · 4105 read_only_option
4106 stream_encryption_unavailable · 4107 unsupported_critical_option · 4108 cannot_modify_root_user
5010 too_many_consumer_groups
14004 session_mismatch · 14005 request_id_exhausted · 14006 operation_uncertain · 14007 lane_blocked
14008 operation_not_retained · 14009 partition_lane_blocked · 14010 fetch_progress_uncertain
"""
NAMES: Final[Mapping[int, str]] = _parse_names(_NAMES + _NAMES_SINCE_0_12)
"""The snake-case name of every error since there are users, by code."""
_FIRST_NAMES: Final = """
51 not_connected · 52 request_error · 60 invalid_encryption_key · 61 cannot_encrypt_data · 62 cannot_decrypt_data
200 io_error · 201 write_error · 202 cannot_parse_utf8 · 203 cannot_parse_int · 204 cannot_parse_slice
301 request_middleware_error · 302 cannot_create_endpoint · 303 cannot_parse_url · 304 invalid_response
305 empty_response · 306 cannot_parse_address · 307 read_error · 308 connection_error · 309 read_to_end_error
1011 stream_id_already_exists · 2012 topic_id_already_exists · 4017 too_big_headers_payload
4101 cannot_read_consumer_offsets · 5000 consumer_group_not_found · 5001 consumer_group_already_exists
5002 consumer_group_member_not_found · 5003 invalid_consumer_group_id · 5004 cannot_create_consumer_groups_directory
5005 cannot_read_consumer_groups · 5006 cannot_create_consumer_group_info · 5007 cannot_delete_consumer_group_info
"""
_UNCHANGED: Final = (
    (1, 5), (10, 10), (100, 101), (300, 300), (1000, 1010), (1012, 1015), (2000, 2011), (2013, 2017), (3000, 3008),
    (4000, 4016), (4018, 4028), (4100, 4100),
)  # fmt: skip
"""Codes, from the first to the last one, that have had their names since 0.0.40."""
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


def _list_rows() -> dict[int, ErrorRow]:
    kept = {code: NAMES[code] for first, last in _UNCHANGED for code in range(first, last + 1)}
    return {
        code: ErrorRow(code, name, _STATUS.get(code, 400), _TEXT.get(code, name.replace("_", " ").capitalize()))
        for code, name in sorted({**kept, **_parse_names(_FIRST_NAMES)}.items())
    }


ERRORS: Final[Mapping[int, ErrorRow]] = _list_rows()
"""Every error of 0.0.40 and the releases before it, by code."""

GENERIC: Final = 1
"""``error``: the code of reasons that a release has no word for."""

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
USER_CODES: Final[Mapping[Reason, int]] = {
    Reason.USER_NOT_FOUND: 20,
    Reason.TOKEN_NOT_FOUND: 20,
    Reason.UNAUTHENTICATED: 40,
    Reason.UNAUTHORIZED: 41,
    Reason.INVALID_CREDENTIALS: 42,
    Reason.INVALID_USER_NAME: 43,
    Reason.INVALID_PASSWORD: 44,
    Reason.USER_EXISTS: 46,
    Reason.USER_INACTIVE: 47,
    Reason.LAST_ADMINISTRATOR: 48,
    Reason.ADMINISTRATOR_RIGHTS: 49,
    Reason.INVALID_TOKEN_NAME: 50,
    Reason.TOKEN_EXISTS: 51,
    Reason.INVALID_TOKEN: 53,
    Reason.TOKEN_EXPIRED: 54,
}
"""Codes of errors about users, tokens and rights, the same in all releases since 0.1 (iggy-current.md B7)."""

LATER_CODES: Final[Mapping[Reason, int]] = {
    **CODE_OF,
    **USER_CODES,
    Reason.OFFSET_NOT_FOUND: 3021,
    Reason.INVALID_GROUP_ID: 5002,
    Reason.GROUP_MEMBER_NOT_FOUND: 5006,
}
"""Codes since there are users and groups have names."""

RESOURCE_NOT_FOUND: Final = 20
"""Response to a send whose stream, topic or partition does not exist (iggy-current.md N2), and its like."""
NEWEST_CODES: Final[Mapping[Reason, int]] = {
    **LATER_CODES,
    Reason.MALFORMED: 4,
    Reason.INVALID_STATE: 4,
    Reason.UNKNOWN_KIND: 4040,
    # a name that is not found is reported by the code of the id, as the real server does it (iggy-current.md N2)
    Reason.STREAM_NAME_NOT_FOUND: 1009,
    Reason.STREAM_ID_EXISTS: 1012,
    Reason.TOPIC_NAME_NOT_FOUND: 2010,
    Reason.TOPIC_ID_EXISTS: 2013,
    Reason.INVALID_PARTITION_ID: 3007,
    Reason.GROUP_EXISTS: 5004,
    Reason.STALE_GENERATION: 5009,
    Reason.OUT_OF_SEQUENCE: 92,
    Reason.PRODUCER_FENCED: 93,
    Reason.PRODUCER_UNKNOWN: 94,
}
"""Codes since 0.11 (iggy-current.md B7)."""

REASON_OF: Final[Mapping[int, Reason]] = {code: reason for reason, code in reversed(list(CODE_OF.items()))}
"""The reason of each code; if several reasons have the same code, the first of them in ``CODE_OF``."""


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
