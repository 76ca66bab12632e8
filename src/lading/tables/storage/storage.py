"""Addresses and credentials of object stores, by reference: ``[storage]`` of a pipeline or a profile, ``--storage``.

References travel to other processes and are written down, not values: ``${VARIABLE}``, ``…_env``, ``…_file``. Each
process resolves them for itself before each use of a store, so that a rotated file counts for the next request.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from ...model.errors import SettingError
from ...transports.secrets import (
    FILE,
    STORAGE_SECRETS,
    VARIABLE,
    clear_secret_sentence,
    expand_variables,
    is_clear_secret,
    name_process,
    read_references,
    secret_of,
)

ENVIRONMENT: Final = ("AWS_", "GOOGLE_", "AZURE_", "AZURITE_")


class StorageOption(NamedTuple):
    """The names of an option: for the libraries of one kind of store, and in the environment."""

    scheme: str
    names: tuple[str, ...]
    variables: tuple[str, ...] = ()


OPTIONS: Final[Mapping[str, tuple[StorageOption, ...]]] = {
    "endpoint": (
        StorageOption("s3", ("aws_endpoint", "aws_endpoint_url_s3")), StorageOption("gs", ("google_base_url",)),
        StorageOption("abfss", ("azure_endpoint",)),
    ),
    "region": (StorageOption("s3", ("aws_region",)),),
    "access_key_id": (StorageOption("s3", ("aws_access_key_id",), ("AWS_ACCESS_KEY_ID",)),),
    "secret_access_key": (StorageOption("s3", ("aws_secret_access_key",), ("AWS_SECRET_ACCESS_KEY",)),),
    "session_token": (StorageOption("s3", ("aws_session_token",), ("AWS_SESSION_TOKEN", "AWS_TOKEN")),),
    "account_name": (StorageOption("abfss", ("azure_storage_account_name",)),),
    "account_key": (
        StorageOption(
            "abfss", ("azure_storage_account_key",),
            ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
        ),
    ),
    "client_id": (StorageOption("abfss", ("azure_storage_client_id",)),),
    "client_secret": (
        StorageOption(
            "abfss", ("azure_storage_client_secret",), ("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET")
        ),
    ),
    "tenant_id": (StorageOption("abfss", ("azure_storage_tenant_id",)),),
    "sas_token": (
        StorageOption("abfss", ("azure_storage_sas_key",), ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN")),
    ),
    "service_account_key": (
        StorageOption("gs", ("google_service_account_key",)),
    ),
}  # fmt: skip
"""Options of ``[storage]``. Names for libraries are those that win over the variables of the environment."""
OVERRIDING: Final = {
    "s3": (), "gs": ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"), "abfss": ("AZURE_STORAGE_TOKEN",)
}  # fmt: skip
"""Variables that libraries prefer to explicit credentials, or refuse together with these."""
ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL",), "gs": ("GOOGLE_BASE_URL",), "abfss": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
}  # fmt: skip
"""Variables for the address of another server than the cloud's own."""
REFERENCES: Final = (VARIABLE, FILE)
KNOWN: Final = (
    *(name for name in OPTIONS if name not in STORAGE_SECRETS),
    *(f"{name}{ending}" for name in OPTIONS if name in STORAGE_SECRETS for ending in REFERENCES),
)
"""All names allowed in ``[storage]``, besides ``${VARIABLE}`` for a credential itself."""
_BOUND: Final[dict[str, StorageReferences]] = {}
"""The references of every table whose file has some, by the table's URL: a table belongs to one pipeline."""
_DIGEST_KEY: Final = os.urandom(32)


@dataclass(frozen=True)
class StoreAccess:
    """How this process reaches a store at this moment; equal to another one if no option and no variable differs."""

    digest: str
    options: Mapping[str, str] = field(repr=False, compare=False)
    """Options of libraries, which take precedence over the environment."""
    allows_http: bool = False


@dataclass(frozen=True)
class StorageReferences:
    """The section ``[storage]`` of a file, as written: it has references instead of credentials.

    ``name`` is the file's name, ``base`` the directory to which file names are relative. Without a ``name`` the
    references are from a command, and ``section`` is the option.
    """

    name: str
    base: str
    options: tuple[tuple[str, str], ...] = ()
    section: str = "[storage]"

    @classmethod
    def parse(cls, options: Mapping[str, str], base: Path, name: str, section: str = "[storage]") -> StorageReferences:
        """Return the references of a section. Raises SettingError, without values, if its form is wrong."""
        made = cls(name, str(base), tuple(options.items()), section)
        ways: dict[str, str] = {}
        for option, value in options.items():
            if option not in KNOWN and option not in STORAGE_SECRETS:
                key = f"{name}: unknown key storage.{option}" if name else f"{section}: unknown option {option!r}"
                raise SettingError(f"{key}; {_advise(option)}")
            if is_clear_secret(option, value):
                raise SettingError(clear_secret_sentence(made._where, option, REFERENCES))
            secret = secret_of(option) or option
            if (other := ways.setdefault(secret, option)) != option:
                raise SettingError(f"{made._where}: {other} and {option} are both given; give one of them")
        for one, other in (("access_key_id", "secret_access_key"), ("secret_access_key", "access_key_id")):
            if one in ways and other not in ways:
                raise SettingError(
                    f"{made._where} has {ways[one]} without its {other}; add {other}{VARIABLE} or {other}{FILE}"
                )
        if "$" not in (endpoint := options.get("endpoint", "")):
            made._check_endpoint(endpoint)
        return made

    def bind(self, tables: Iterable[object]) -> None:
        """Use these references for these tables, and for all locations below them, from now on in this process."""
        for table in map(str, tables):
            if "://" in table:
                if self.options:
                    _BOUND[table] = self
                else:
                    _BOUND.pop(table, None)

    def resolve(self, scheme: str, root: str) -> dict[str, str]:
        """Return the options of this kind of store with credentials in place of references, by their library's names.

        Raises SettingError, which names this process, for what is not there, and for credentials of another identity in
        its environment.
        """
        mine = {
            option: value
            for option, value in self.options
            if any(one.scheme == scheme for one in OPTIONS[secret_of(option) or option])
        }
        try:
            found = expand_variables(mine, self._where)
        except SettingError as error:
            raise self._resolution_error(str(error), root) from None
        for option in found:
            if option.endswith(FILE):
                found[option] = str(Path(self.base, Path(found[option]).expanduser()))
        try:
            found = read_references(found, ())
        except SettingError as error:
            raise self._resolution_error(f"{self._where}.{error}", root) from None
        self._check_endpoint(found.get("endpoint", ""))
        self._refuse_other_identity(found, scheme, root)
        return {
            name: value
            for option, value in found.items()
            for one in OPTIONS[option]
            if one.scheme == scheme
            for name in one.names
        }

    def has_credentials(self, scheme: str) -> bool:
        """Return whether the section has credentials for this kind of store."""
        secrets = (secret for option, _ in self.options if (secret := secret_of(option)))
        return any(one.scheme == scheme for secret in secrets for one in OPTIONS[secret])

    @property
    def _where(self) -> str:
        return f"{self.name}: {self.section}" if self.name else self.section

    @property
    def origin(self) -> str:
        """The origin of credentials, for people."""
        return f"{self.section} of {self.name}" if self.name else self.section

    def document(self) -> dict[str, Any]:
        """Return the references as JSON, for ``bind_document`` in other processes."""
        return {**self.__dict__, "options": dict(self.options)}

    def _check_endpoint(self, endpoint: str) -> None:
        try:
            parts = urlsplit(endpoint)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        except ValueError:
            valid = False
        if endpoint and not valid:
            # it may have a password, and is not shown
            raise SettingError(
                f"{self._where}.endpoint is not http://HOST:PORT or https://HOST; write one of them, without a login"
            )

    def _refuse_other_identity(self, found: Mapping[str, Any], scheme: str, root: str) -> None:
        """Raise SettingError if the environment has another identity: libraries would take what is missing from it."""
        if not self.has_credentials(scheme):
            return
        others = dict.fromkeys(OVERRIDING[scheme], "")
        for option, kinds in OPTIONS.items():
            if option not in found:
                names = (name for one in kinds if one.scheme == scheme for name in one.variables)
                remedy = f", or write {option}{VARIABLE} or {option}{FILE} into {self.section}"
                others |= dict.fromkeys(names, remedy)
        for variable, advice in others.items():
            if os.environ.get(variable):
                raise self._resolution_error(
                    f"{self._where} has credentials for {root}, and the variable {variable!r} of the environment "
                    f"belongs to others; unset it{advice}",
                    root,
                )

    def _resolution_error(self, sentence: str, root: str) -> SettingError:
        return SettingError(
            f"{sentence}. That was {name_process()}, which opens {root}: the driver and "
            f"every executor read {self.section} for themselves"
        )


def bind_document(document: Mapping[str, Any] | None, tables: Iterable[object]) -> None:
    """Use the references that ``document`` returned for these tables in this process; None changes nothing."""
    if document is not None:
        options = tuple(document["options"].items())
        StorageReferences(**{**document, "options": options}).bind(tables)


def find_access(url: str) -> StoreAccess:
    """Return the present access of this process to a URL: by ``[storage]`` of its table, else by the environment.

    Raises SettingError for a reference that leads nowhere.
    """
    scheme, root = url.partition(":")[0], root_of(url)
    references = find_references(url)
    options = {} if references is None else references.resolve(scheme, root)
    environment = sorted((name, value) for name, value in os.environ.items() if name.startswith(ENVIRONMENT))
    # with a key of this process alone, as it stands in representations: nobody can try secrets against it
    digest = hashlib.blake2b(repr((environment, sorted(options.items()))).encode(), key=_DIGEST_KEY, digest_size=16)
    names = next((one.names for one in OPTIONS["endpoint"] if one.scheme == scheme), ())
    endpoints = [options.get(name) for name in names] + [os.environ.get(name) for name in ENDPOINTS.get(scheme, ())]
    endpoint = next(filter(None, endpoints), "")
    return StoreAccess(digest.hexdigest(), options, endpoint.startswith("http://"))


def find_references(url: str) -> StorageReferences | None:
    """Return the references of the table that a URL belongs to; None if that table has none."""
    if not _BOUND:
        return None
    root = root_of(url)
    while url not in _BOUND and len(url) > len(root):
        url = url.rpartition("/")[0]
    return _BOUND.get(url)


def root_of(url: str) -> str:
    """Return scheme and bucket of a URL."""
    return "/".join(url.split("/", 3)[:3])


def _advise(option: str) -> str:
    near = get_close_matches(option, [*KNOWN, *STORAGE_SECRETS], 1, 0.6)
    if near and near[0] in STORAGE_SECRETS:
        near = [f"{near[0]}{VARIABLE}"]
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(KNOWN)}"
