"""Every error that Lading raises, grouped by the people who can fix its cause."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class LadingError(Exception):
    """Root of all errors that Lading raises on purpose."""


class LocalError(LadingError):
    """The request cannot be done as asked; the caller can change it."""


class SettingError(LocalError):
    """A setting, option or argument is unknown, has the wrong type or an invalid value."""


class FilterError(LocalError):
    """A filter expression cannot be parsed or typed; the message shows the place, ``at`` is its first character."""

    def __init__(self, message: str, *, at: int | None = None) -> None:
        super().__init__(message)
        self.at = at


class UnseenHeaderWarning(UserWarning):
    """No message of a run had a header that was declared or filtered by; issued by ``warnings``, not raised."""


class LimitExceeded(LocalError):
    """A header, payload or request is larger than the target can hold; names the part and the limit."""


class HeadersSealed(LocalError):
    """The headers belong to a message that was sent; copy them to change them (KIP-82)."""


class DataLoss(LocalError):
    """Messages between a stored position and the first offset kept were deleted; see ``failOnDataLoss``."""


def directory_error(what: str, directory: object, error: OSError) -> LocalError:
    """Return the error for a directory that a user named for writing and that cannot be created or written to."""
    reason = "a file is in its place" if isinstance(error, FileExistsError) else error.strerror
    return LocalError(f"{what} {directory}: cannot be written to: {reason}; name a directory that you may write to")


class RemoteError(LadingError):
    """The server refused or failed; ``code`` is its protocol's error number, if it has one."""

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Unreachable(RemoteError):
    """No server responds at the address, or the connection broke and retries ran out."""


class CorruptError(LadingError):
    """Bytes are not what their format or checksum says."""


class ChecksumMismatch(CorruptError):
    """A checksum does not match its bytes, and did not after the request was repeated once."""


class CorruptLog(CorruptError):
    """A directory or file is not a log of this kind, or is damaged in a way that recovery may not guess about."""


class NewerFormat(CorruptLog):
    """A file was written in a format of a later Lading; nothing of it was changed."""


class NotLoaded(Exception):
    """Messages that a read needs are on their way to this machine: the same read succeeds after the callback.

    No failure, and never shown to a client: endpoints wait and read again. A log of files never raises it.
    """

    def __init__(self, add_loaded_callback: Callable[[Callable[[LadingError | None], None]], None]) -> None:
        """``add_loaded_callback`` takes what is called once, with the error if the messages cannot be had."""
        super().__init__("messages are being loaded; read again afterwards")
        self.add_loaded_callback = add_loaded_callback


class Reason(StrEnum):
    """Why a request is refused, in terms of no protocol.

    Each dialect's ``errors.py`` maps these to its own codes; a reason without a row there maps to the
    dialect's generic error.
    """

    MALFORMED = "malformed"
    UNKNOWN_COMMAND = "unknown_command"
    FEATURE_UNAVAILABLE = "feature_unavailable"
    CLIENT_NOT_FOUND = "client_not_found"
    UNAUTHENTICATED = "unauthenticated"
    UNAUTHORIZED = "unauthorized"
    INVALID_CREDENTIALS = "invalid_credentials"
    USER_INACTIVE = "user_inactive"
    USER_NOT_FOUND = "user_not_found"
    USER_EXISTS = "user_exists"
    INVALID_USER_NAME = "invalid_user_name"
    INVALID_PASSWORD = "invalid_password"
    LAST_ADMINISTRATOR = "last_administrator"
    ADMINISTRATOR_RIGHTS = "administrator_rights"
    TOKEN_NOT_FOUND = "token_not_found"
    TOKEN_EXISTS = "token_exists"
    INVALID_TOKEN_NAME = "invalid_token_name"
    INVALID_TOKEN = "invalid_token"
    TOKEN_EXPIRED = "token_expired"
    INVALID_RULE = "invalid_rule"
    INVALID_QUOTA = "invalid_quota"
    INVALID_CLIENT_ID = "invalid_client_id"
    STREAM_ID_NOT_FOUND = "stream_id_not_found"
    STREAM_NAME_NOT_FOUND = "stream_name_not_found"
    STREAM_ID_EXISTS = "stream_id_exists"
    STREAM_NAME_EXISTS = "stream_name_exists"
    INVALID_STREAM_NAME = "invalid_stream_name"
    INVALID_STREAM_ID = "invalid_stream_id"
    TOPIC_ID_NOT_FOUND = "topic_id_not_found"
    TOPIC_NAME_NOT_FOUND = "topic_name_not_found"
    TOPIC_ID_EXISTS = "topic_id_exists"
    TOPIC_NAME_EXISTS = "topic_name_exists"
    INVALID_TOPIC_NAME = "invalid_topic_name"
    INVALID_TOPIC_ID = "invalid_topic_id"
    AMBIGUOUS_NAME = "ambiguous_name"
    TOO_MANY_PARTITIONS = "too_many_partitions"
    PARTITION_NOT_FOUND = "partition_not_found"
    NO_PARTITIONS = "no_partitions"
    INVALID_PARTITION_ID = "invalid_partition_id"
    INVALID_PARTITION_KEY = "invalid_partition_key"
    INVALID_COUNT = "invalid_count"
    INVALID_OFFSET = "invalid_offset"
    INVALID_STATE = "invalid_state"
    HEADERS_TOO_LARGE = "headers_too_large"
    INVALID_HEADER_KEY = "invalid_header_key"
    INVALID_HEADER_VALUE = "invalid_header_value"
    UNKNOWN_KIND = "unknown_kind"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    EMPTY_PAYLOAD = "empty_payload"
    REQUEST_TOO_LARGE = "request_too_large"
    OFFSET_NOT_FOUND = "offset_not_found"
    GROUP_NOT_FOUND = "group_not_found"
    GROUP_EXISTS = "group_exists"
    GROUP_MEMBER_NOT_FOUND = "group_member_not_found"
    INVALID_GROUP_ID = "invalid_group_id"
    GROUP_NOT_EMPTY = "group_not_empty"
    GROUP_FULL = "group_full"
    STALE_GENERATION = "stale_generation"
    STALE_MEMBER_EPOCH = "stale_member_epoch"
    MEMBER_FENCED = "member_fenced"
    INSTANCE_IN_USE = "instance_in_use"
    UNSUPPORTED_ASSIGNOR = "unsupported_assignor"
    INVALID_PATTERN = "invalid_pattern"
    GROUP_VERSION_TOO_OLD = "group_version_too_old"
    MEMBER_ID_REQUIRED = "member_id_required"
    MEMBER_REPLACED = "member_replaced"
    REBALANCE_IN_PROGRESS = "rebalance_in_progress"
    INCONSISTENT_PROTOCOL = "inconsistent_protocol"
    INVALID_SESSION_TIMEOUT = "invalid_session_timeout"
    POSITION_TOO_LARGE = "position_too_large"
    POSITION_NOT_STABLE = "position_not_stable"
    INVALID_CHANNEL_NAME = "invalid_channel_name"
    NOT_IN_FLIGHT = "not_in_flight"
    SHARE_SESSION_NOT_FOUND = "share_session_not_found"
    SHARE_SESSION_EPOCH_INVALID = "share_session_epoch_invalid"
    TOO_MANY_SHARE_SESSIONS = "too_many_share_sessions"
    TOO_MANY_DEFERRED = "too_many_deferred"
    OUT_OF_SEQUENCE = "out_of_sequence"
    WRITER_ID_REUSED = "writer_id_reused"
    PRODUCER_FENCED = "producer_fenced"
    PRODUCER_UNKNOWN = "producer_unknown"
    TRANSACTION_NOT_OPEN = "transaction_not_open"
    TRANSACTION_IN_PROGRESS = "transaction_under_way"
    INVALID_TRANSACTION_TIMEOUT = "invalid_transaction_timeout"
    READ_ONLY = "read_only"
    DISK_FULL = "disk_full"
    STOPPING = "stopping"


class Refusal(LadingError):
    """One request is refused; its connection stays open, and no other client notices."""

    def __init__(self, reason: Reason, message: str = "") -> None:
        super().__init__(message or reason.value.replace("_", " "))
        self.reason = reason


class MalformedMessage(CorruptError):
    """Bytes are not a message or command of the dialect: the only error that a decoder raises.

    ``reason`` lets an endpoint respond with its protocol's own code; ``at`` is the byte position.
    """

    def __init__(self, message: str, *, reason: Reason = Reason.MALFORMED, at: int | None = None) -> None:
        super().__init__(message if at is None else f"{message} (at byte {at})")
        self.reason = reason
        self.at = at
