"""Errors of the schema registry, with the codes and the words of Confluent's, which its clients compare."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from ...model.errors import LadingError


class RegistryFault(StrEnum):
    """Why a request to the registry is refused."""

    SUBJECT_NOT_FOUND = "subject_not_found"
    VERSION_NOT_FOUND = "version_not_found"
    SCHEMA_NOT_FOUND = "schema_not_found"
    SUBJECT_SOFT_DELETED = "subject_soft_deleted"
    SUBJECT_NOT_SOFT_DELETED = "subject_not_soft_deleted"
    VERSION_SOFT_DELETED = "version_soft_deleted"
    VERSION_NOT_SOFT_DELETED = "version_not_soft_deleted"
    NO_SUBJECT_CONFIG = "no_subject_config"
    NO_SUBJECT_MODE = "no_subject_mode"
    NO_ASSOCIATION = "no_association"
    INCOMPATIBLE = "incompatible"
    INVALID_SCHEMA = "invalid_schema"
    INVALID_VERSION = "invalid_version"
    INVALID_LEVEL = "invalid_level"
    INVALID_MODE = "invalid_mode"
    NOT_PERMITTED = "not_permitted"
    REFERENCED = "referenced"
    ID_TAKEN = "id_taken"
    INVALID_SUBJECT = "invalid_subject"
    MALFORMED = "malformed"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"


class _Row(NamedTuple):
    status: int
    code: int
    text: str


FAULTS: Final[Mapping[RegistryFault, _Row]] = {
    RegistryFault.SUBJECT_NOT_FOUND: _Row(404, 40401, "Subject '{0}' not found."),
    RegistryFault.VERSION_NOT_FOUND: _Row(404, 40402, "Version {0} not found."),
    RegistryFault.SCHEMA_NOT_FOUND: _Row(404, 40403, "Schema{0} not found"),
    RegistryFault.SUBJECT_SOFT_DELETED: _Row(
        404, 40404, "Subject '{0}' was soft deleted.Set permanent=true to delete permanently"
    ),
    RegistryFault.SUBJECT_NOT_SOFT_DELETED: _Row(
        404, 40405, "Subject '{0}' was not deleted first before being permanently deleted"
    ),
    RegistryFault.VERSION_SOFT_DELETED: _Row(
        404, 40406, "Subject '{0}' Version {1} was soft deleted.Set permanent=true to delete permanently"
    ),
    RegistryFault.VERSION_NOT_SOFT_DELETED: _Row(
        404, 40407, "Subject '{0}' Version {1} was not deleted first before being permanently deleted"
    ),
    RegistryFault.NO_SUBJECT_CONFIG: _Row(
        404, 40408, "Subject '{0}' does not have subject-level compatibility configured"
    ),
    RegistryFault.NO_SUBJECT_MODE: _Row(404, 40409, "Subject '{0}' does not have subject-level mode configured"),
    RegistryFault.NO_ASSOCIATION: _Row(404, 40410, "Association for '{0}' not found."),
    RegistryFault.INCOMPATIBLE: _Row(
        409, 409, 'Schema being registered is incompatible with an earlier schema for subject "{0}", details: [{1}]'
    ),
    RegistryFault.INVALID_SCHEMA: _Row(422, 42201, "{0}"),
    RegistryFault.INVALID_VERSION: _Row(
        422,
        42202,
        "The specified version '{0}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string "
        '"latest"',
    ),
    RegistryFault.INVALID_LEVEL: _Row(
        422,
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    ),
    RegistryFault.INVALID_MODE: _Row(
        422, 42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT"
    ),
    RegistryFault.NOT_PERMITTED: _Row(422, 42205, "{0}"),
    RegistryFault.REFERENCED: _Row(
        422,
        42206,
        "One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={0},version={1}}}.",
    ),
    RegistryFault.ID_TAKEN: _Row(422, 42207, "{0}"),
    RegistryFault.INVALID_SUBJECT: _Row(422, 42208, "The specified subject '{0}' is not a valid subject."),
    RegistryFault.MALFORMED: _Row(422, 422, "{0}"),
    RegistryFault.FORBIDDEN: _Row(403, 40301, "{0}"),
    RegistryFault.NOT_FOUND: _Row(404, 404, "{0}"),
}
"""HTTP status, error code and text of each fault."""


class RegistryError(LadingError):
    """A request that the registry refuses."""

    def __init__(self, fault: RegistryFault, *values: object) -> None:
        """``values`` are inserted into the text of the fault."""
        row = FAULTS[fault]
        super().__init__(row.text.format(*values))
        self.fault = fault
        self.status, self.code = row.status, row.code
