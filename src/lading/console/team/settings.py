"""Settings of a console for several people: a TOML file, or the options of the command line."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, model_validator

from ...endpoints.encryption.authority import read_names
from ...endpoints.encryption.listener_tls import RenewedTls
from ...model.errors import LocalError, SettingError
from ...model.value_faults import describe_fault
from ...settings.sections import DEFAULTS, Listen, Section, TlsSettings
from ...settings.toml_text import read_toml
from ..brokers_file import list_brokers, load_brokers
from ..masks import NO_MASKS, Masks
from ..mirror_services import require_service_url
from ..settings import DEFAULT_ADDRESS, ConsoleSettings, ListedBroker
from .oidc import OidcSection
from .proxy import ProxySection

KIND: Final = "console file"
"""The name of such a file in errors."""
AUDIT_FILE: Final = "console-audit.jsonl"
BROKERS: Final = "brokers"
"""The key that names a file of brokers, in place of ``from``."""
OF_ONE_BROKER: Final = ("from", "registry", "pipelines", "mirrors", "mirror_services")
"""Keys that each broker of such a file has for itself."""

Text = Annotated[str, Field(min_length=1)]
AnySection = TypeVar("AnySection", bound=Section | None)


class SessionSection(Section):
    """[session]: how long a login is valid, and how many there may be."""

    idle_minutes: float = Field(default=30, gt=0, le=1_440)
    """A session ends after this long without an action of its user; the requests of an open page do not count."""
    hours: float = Field(default=12, gt=0, le=720)
    """A session ends after this long in any case."""
    count_max: int = Field(default=200, ge=1, le=10_000)
    """Limit of all sessions; a further login ends the least recently used one."""
    user_max: int = Field(default=10, ge=1, le=1_000)
    """Limit of one user's sessions; a further login of the user ends the least recently used one."""


class TeamDocument(Section):
    """The whole file."""

    from_: Text = Field(alias="from")
    """The source: ``lading://``, ``kafka://`` or ``iggy://``, whose users log in here."""
    address: Listen = DEFAULT_ADDRESS
    """The address on which the console listens; port 0 takes a free one."""
    public_url: Text | None = None
    """The address that browsers use, if it is another one: ``https://console.example``."""
    read_only: bool = False
    """Whether all changes are switched off."""
    pipelines: tuple[Path, ...] = ()
    """Pipeline files that administrators see."""
    mirrors: tuple[Path, ...] = ()
    """States or reports of mirrors that administrators see."""
    mirror_services: tuple[Text, ...] = ()
    """Addresses of services of ``lading mirror run`` that administrators see."""
    registry: Text | None = None
    """The schema registry that has the schemas of payloads."""
    state: Path = Path()
    """Directory for the records of redrives, and for the audit file."""
    audit: Path | None = None
    """File with a line of JSON for each login and change. Default: console-audit.jsonl in ``state``."""
    tls: TlsSettings = DEFAULTS
    session: SessionSection = DEFAULTS
    proxy: ProxySection | None = None
    oidc: OidcSection | None = None
    passwords: bool = True
    """Whether people may log in by a name and a password of the source; off with an identity provider alone."""

    @model_validator(mode="after")
    def _require_encryption(self) -> Self:
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            if parts.scheme != "https" or not parts.netloc or parts.path.strip("/") or parts.query or parts.fragment:
                raise ValueError("public_url is a scheme and a host, such as https://console.example")
        if not self.tls.enabled and self.proxy is None:
            raise ValueError("the console asks for passwords, so it takes TLS; set tls.enabled = true")
        if self.proxy is not None and self.public_url is None:
            raise ValueError("with [proxy] set public_url, the address by which browsers ask the proxy")
        if self.proxy is not None and self.proxy.user_header is not None and not self.from_.startswith("lading://"):
            raise ValueError("proxy.user_header takes a broker of Lading, which lets an administrator act for others")
        if self.oidc is not None:
            self._require_provider()
        if not self.passwords and self.oidc is None:
            raise ValueError("passwords is false, and there is no other login; add [oidc]")
        return self

    def _require_provider(self) -> None:
        if self.public_url is None:
            raise ValueError("with [oidc] set public_url, to which the provider sends browsers back")
        if self.proxy is not None and self.proxy.user_header is not None:
            raise ValueError("[oidc] and proxy.user_header are two ways to log in; leave one out")
        if not self.from_.startswith("lading://"):
            raise ValueError("[oidc] takes a broker of Lading, which lets an administrator act for others")

    @property
    def acts_for_users(self) -> bool:
        """Whether this process logs in at the source itself for users without a password there."""
        return self.oidc is not None or (self.proxy is not None and self.proxy.user_header is not None)

    @property
    def audit_file(self) -> Path:
        """The file of audit lines."""
        return self.audit or self.state / AUDIT_FILE

    def make_console_settings(
        self, broker: str | None = None, brokers: tuple[ListedBroker, ...] = ()
    ) -> ConsoleSettings:
        """Return the settings of the pages, of a source that a file of brokers names or another one."""
        return ConsoleSettings(
            self.from_, self.address, self.read_only, self.pipelines, self.mirrors, self.state, self.registry,
            mirror_services=tuple(map(require_service_url, self.mirror_services)), broker=broker, brokers=brokers,
            shows_own_mirrors=broker is None,
        )  # fmt: skip

    def make_tls(self) -> RenewedTls | None:
        """Return the TLS of the listener. Raises LocalError for files that it cannot use."""
        return RenewedTls(self.tls, "tls", self.state) if self.tls.enabled else None

    def list_names(self) -> list[str]:
        """Return the names by which browsers may address the console, besides the address: those of the certificate and
        the public one.
        """
        names = [] if self.public_url is None else [urlsplit(self.public_url).hostname or ""]
        if self.tls.certificate is not None:
            try:
                names += read_names(self.tls.certificate)
            except (OSError, ValueError) as error:
                raise LocalError(
                    f"setting tls.certificate: {self.tls.certificate}: {error}; give a certificate as PEM"
                ) from None
        return names


class TeamBroker(NamedTuple):
    """One source of a console for several people; its name, and those of the others, if a file of brokers names it."""

    team: TeamDocument
    name: str | None = None
    listed: tuple[ListedBroker, ...] = ()
    masks: Masks = NO_MASKS


def parse_teams(document: dict[str, Any], where: str, base: Path) -> list[TeamBroker]:
    """Return the settings for each source of a document, of which ``brokers`` names a file. Raises SettingError."""
    if BROKERS not in document:
        return [TeamBroker(parse_team(document, where, base))]
    shared = {key: value for key, value in document.items() if key != BROKERS}
    if doubled := next((key for key in OF_ONE_BROKER if key in shared), None):
        raise SettingError(
            f"{where}: {doubled} is a key of each broker in the file that {BROKERS} names; write it there"
        )
    if not isinstance(document[BROKERS], str):
        raise SettingError(f'{where}: {BROKERS} names a file; write {BROKERS} = "brokers.toml"')
    file = base / document[BROKERS]
    brokers = load_brokers(file)
    listed = list_brokers(brokers, is_read_only=shared.get("read_only") is True)
    state = base / str(shared.get("state", ""))
    teams = []
    for one in brokers:
        section = one.section
        if section.tables is not None:
            raise SettingError(
                f"brokers file {file}: broker.{one.name}.tables is for the console of this machine; leave it out"
            )
        own = {
            "from": one.url, "read_only": shared.get("read_only") or section.read_only, "registry": section.registry,
            "pipelines": [one.base / path for path in section.pipelines],
            "mirrors": [one.base / path for path in section.mirrors], "mirror_services": section.mirror_services,
            # topics of one name at two brokers are redriven apart; the lines of all are in one file
            "state": state / one.name, "audit": shared.get("audit") or state / AUDIT_FILE,
        }  # fmt: skip
        teams.append(
            TeamBroker(parse_team(shared | own, f"{where}: broker.{one.name}", base), one.name, listed, one.masks)
        )
    return teams


def load_team(file: Path) -> TeamDocument:
    """Return the settings in ``file``. Raises SettingError, which names the file, the key and the remedy."""
    document = read_toml(file, KIND)
    base = file.absolute().parent
    return parse_team(document, f"{KIND} {file}", base)


def parse_team(document: dict[str, Any], where: str, base: Path) -> TeamDocument:
    """Return the settings of a document, whose paths are relative to ``base``. Raises SettingError."""
    try:
        team = TeamDocument.model_validate(document)
    except ValidationError as error:
        raise SettingError(f"{where}: {_describe_invalid(error)}") from None
    changed: dict[str, Any] = {
        "state": base / team.state,
        "audit": None if team.audit is None else base / team.audit,
        "pipelines": tuple(base / one for one in team.pipelines),
        "mirrors": tuple(base / one for one in team.mirrors),
        "proxy": _place_file(base, team.proxy, "secret_file"),
        "oidc": _place_file(base, team.oidc, "client_secret_file"),
        "tls": team.tls.model_copy(
            update={
                name: base / path
                for name in ("certificate", "key", "client_ca")
                if (path := getattr(team.tls, name)) is not None
            }
        ),
    }
    if "://" not in team.from_:
        raise SettingError(
            f"{where}: from cannot be {team.from_!r}: a directory has no users; name a server such as "
            "lading://127.0.0.1:7070"
        )
    return team.model_copy(update=changed)


def _place_file(base: Path, section: AnySection, name: str) -> AnySection:
    """Return a section whose file is relative to ``base``."""
    file = None if section is None else getattr(section, name)
    return section if section is None or file is None else section.model_copy(update={name: base / file})


def _describe_invalid(error: ValidationError) -> str:
    """Return the first error in words, unknown keys first: a missing key is most often a misspelt one."""
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    place = [str(part) for part in first["loc"]]
    key = ".".join(place)
    if first["type"] == "extra_forbidden":
        sections: dict[str, Any] = {
            "tls": TlsSettings,
            "session": SessionSection,
            "proxy": ProxySection,
            "oidc": OidcSection,
        }
        section: Any = sections.get(place[0], TeamDocument) if len(place) > 1 else TeamDocument
        known = sorted([field.alias or name for name, field in section.model_fields.items()])
        if section is TeamDocument:
            known.append(BROKERS)
        near = get_close_matches(place[-1], known, 1, 0.6)
        return f"unknown key {key}; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}")
    if first["type"] == "missing":
        return f'{key} is missing; write for example from = "lading://127.0.0.1:7070"'
    if not key or first["type"] == "value_error":
        return str(first["ctx"]["error"]) if "ctx" in first else str(first["msg"])
    return f"{key} cannot be {first['input']!r}: {describe_fault(first)}"
