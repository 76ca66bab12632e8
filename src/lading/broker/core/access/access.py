"""Authentication and authorization: one set of users and one table of rules for all protocols.

How a session uses it (``endpoints/base/authenticator.py`` has the half that waits):

1. When a client connects: ``access.admit(is_open=...)``. It gives the principal who the client is without a login, or
   None if it has to log in first. While no users are set up everybody is ``OPEN`` and may do everything, as ever.
2. At a login: ``await services.authenticator.log_in(name, password, peer)``, or ``log_in_with_token``. SCRAM asks for
   ``scram_verifier`` and ends with ``accept``.
3. When a route is made, and in each rare request: ``access.allows(principal, operation, resource)``. Never per message:
   a change of users or rules calls ``on_changed``, which has all routes be looked up again (``RouteCache``), so a route
   that is remembered was allowed, if it is remembered for one user only (``route_cache.UserRouteCaches``).
4. ``principal.add_revoked_callback(connection.abort)``: users and tokens that are deleted, or made inactive, lose their
   connections at once.

Changes (``add_user`` and so on) are steps as those of topics (``topology_changes``): slow hashes and the disk are for a
worker. Make one at a time: ``await services.authenticator.change(access.add_user(...))``, or ``complete`` in a process
of its own. It is on disk when it has ended. Threads: event loop only.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from ....log.access_file import AccessFile
from ....model.errors import Reason, Refusal
from ....runtime.clock import Dates
from ..callbacks import ignore
from ..change import Change
from ..component import NEVER_US, Component
from ..disk_refusals import refuse_disk_errors
from .credentials import (
    SALT_BYTES,
    SCRAM_HASHES,
    SCRAM_ITERATIONS,
    Credentials,
    ScramVerifier,
    hash_token,
    make_credentials,
    make_token,
)
from .principal import Principal
from .quotas import Quota, QuotaMeter
from .rights import (
    ANONYMOUS,
    CLUSTER,
    EVERYBODY,
    NAME_CHARACTERS_MAX,
    AccessRule,
    PatternKind,
    Resource,
    ResourceKind,
    Right,
    rules_allow,
    topic_resource,
)
from .users import AccessTable, Token, User, require_password, require_quota_name, require_user_name

if TYPE_CHECKING:
    from ..topology import Topic

LOG: Final = logging.getLogger("lading.broker")
_Key = tuple[ResourceKind, PatternKind, str]


class AccessControl(Component):
    """Users, tokens and rules of one data directory."""

    def __init__(
        self,
        file: AccessFile,
        dates: Dates,
        recorded_serial: int = 0,
        on_saved: Callable[[int], None] = ignore,
        on_changed: Callable[[], None] = ignore,
    ) -> None:
        """Load the file; ``recorded_serial`` is the number of its last change that is stored elsewhere.

        ``on_saved`` is called with the number of each change that is on disk. Raises CorruptLog if the file is invalid,
        missing or older than the last one, NewerFormat if it is of a later Lading.
        """
        self._file = file
        self._dates = dates
        self._on_saved = on_saved
        document = file.load(recorded_serial)
        try:
            self.table = AccessTable() if document is None else AccessTable.parse(document)
        except (AttributeError, KeyError, TypeError, ValueError, Refusal) as error:
            raise file.damage_error(repr(error)) from None
        if document is not None:
            self._settle_file(recorded_serial)
        self._on_changed = on_changed
        self.version = 0
        """Grows with each change: work that waits longer than one change checks its rights again."""
        self._changed_callbacks: list[Callable[[], None]] = []
        self._principals: WeakSet[Principal] = WeakSet()
        self._tokens = {token.hash: token for token in self.table.tokens.values()}
        self._users_by_id: tuple[Mapping[str, User], dict[int, User]] = ({}, {})
        """The users of a table, and its index of them by id, which is made when it is first needed."""
        self._secret = secrets.token_bytes(32)
        self._rule_indexes: dict[str, RuleIndex] = {}
        """The indexes of rules, by user."""
        self._meters: dict[str, tuple[Quota, QuotaMeter]] = {}
        """The meters by user, each with the quota for which it counts."""
        self._ends_us: int | None = None

    def _settle_file(self, recorded_serial: int) -> None:
        """Add the checksum to a file of an older version, and write its serial number if a crash prevented that."""
        if not self._file.serial:
            try:
                self._file.save(self.table.document())
            except OSError as error:
                LOG.warning("%s has no checksum yet: %s", self._file.path, error.strerror or error)
                return
        self._file.mark()
        if self._file.serial != recorded_serial:
            self._on_saved(self._file.serial)

    def find_file_difference(self) -> str | None:
        """Return how the file on the disk differs, or None; the table in memory counts in any case."""
        return self._file.find_difference(self.table.document())

    # -- who a client is

    @property
    def is_enabled(self) -> bool:
        """Whether users are set up: from the first user on, everybody has to log in."""
        return bool(self.table.users)

    def admit(self, *, is_open: bool) -> Principal | None:
        """Return the principal of a client that has not logged in, or None if it has to.

        ``is_open`` says that the endpoint takes strangers even though users are set up (``allow_unauthenticated``):
        their rights are those of the user ``ANONYMOUS``.
        """
        if self.is_enabled:
            return self._remember(Principal(ANONYMOUS)) if is_open else None
        return self._remember(Principal(""))

    def trust(self) -> Principal:
        """Return the principal of a caller that has shown a token of the settings, and may do everything."""
        return self._remember(Principal("", is_trusted=True))

    def find_user(self, ident: int | str) -> User | None:
        """Return the user with this id or name, or None."""
        users = self.table.users
        if isinstance(ident, str):
            return users.get(ident)
        if self._users_by_id[0] is not users:
            self._users_by_id = (users, {user.id: user for user in users.values()})
        return self._users_by_id[1].get(ident)

    def accept(self, name: str) -> Principal:
        """Return the principal of a user whose password was checked. Raises Refusal if the user may not log in."""
        user = self.table.users.get(name)
        if user is None:
            raise credentials_refusal()
        self._require_active(user)
        return self._remember(Principal(name, user.id))

    def vouch(self, name: str, ends_us: int | None = None) -> Principal:
        """Return the principal for whom a certificate or another issuer vouches, until the date ``ends_us``.

        A user of that name need not exist; one that is inactive is refused. Rules name the principal as any user.
        """
        user = self.table.users.get(name)
        if user is not None:
            self._require_active(user)
        elif name in ("", EVERYBODY, ANONYMOUS) or len(name) > NAME_CHARACTERS_MAX:
            raise credentials_refusal()
        return self._remember(Principal(name, 0 if user is None else user.id, ends_us=ends_us))

    def accept_token(self, token: str, now_us: int) -> Principal:
        """Return the principal of a personal access token; Refusal if it is unknown or has ended."""
        found = self._tokens.get(hash_token(token))
        if found is None:
            raise Refusal(Reason.INVALID_TOKEN, "this access token is not valid; check it, or create another")
        if found.ends_us is not None and found.ends_us <= self._dates.of(now_us):
            raise Refusal(Reason.TOKEN_EXPIRED, "this access token has expired; create another")
        user = self.table.users[found.owner]
        self._require_active(user)
        return self._remember(Principal(user.name, user.id, found.name, found.ends_us))

    def credentials(self, name: str) -> Credentials:
        """Return the credentials of a user, for ``check_password``. No password matches those of an unknown name."""
        user = self.table.users.get(name)
        return Credentials() if user is None else user.credentials

    def scram_verifier(self, name: str, mechanism: str) -> ScramVerifier:
        """Return a user's SCRAM verifier; an unknown name gets an invented one, the same each time (RFC 5802 9)."""
        user = self.table.users.get(name)
        if user is not None and (found := user.credentials.scram.get(mechanism)) is not None:
            return found
        size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
        salt = hmac.digest(self._secret, f"{mechanism} {name}".encode(), "sha512")
        return ScramVerifier(salt[:SALT_BYTES], SCRAM_ITERATIONS, secrets.token_bytes(size), secrets.token_bytes(size))

    def _remember(self, principal: Principal) -> Principal:
        self._principals.add(principal)
        if self.table.quotas:
            principal.meter = self._find_meter(principal)
        if principal.ends_us is not None and (self._ends_us is None or principal.ends_us < self._ends_us):
            self._ends_us = principal.ends_us
            self.on_due()
        return principal

    def _find_meter(self, principal: Principal) -> QuotaMeter | None:
        """Return the meter of a user's requests, the same for all its connections; None without a quota."""
        if principal.is_trusted:
            return None
        quota = self.table.quota_of(principal.name)
        if quota is None:
            return None
        found = self._meters.get(principal.name)
        if found is None or found[0] != quota:
            found = self._meters[principal.name] = quota, QuotaMeter(quota)
        return found[1]

    def _require_active(self, user: User) -> None:
        if not user.is_active:
            raise Refusal(Reason.USER_INACTIVE, f"user {user.name!r} is not active; an administrator can activate it")

    # -- who may do what

    def allows(self, principal: Principal | None, operation: Right, resource: Resource) -> bool:
        """Return whether ``principal`` may do ``operation`` with ``resource``, whether or not that exists.

        None, a client that has not logged in, may do nothing.
        """
        if principal is None or principal.is_revoked:
            return False
        if principal.is_trusted or not self.table.users:
            return True
        return self._name_allows(principal.name, operation, resource)

    def _name_allows(self, name: str, operation: Right, resource: Resource) -> bool:
        user = self.table.users.get(name)
        if user is not None and user.is_administrator:
            return True
        if not name:
            return False
        rules = chain(self._index_rules(name).find(resource), self._index_rules(EVERYBODY).find(resource))
        return rules_allow(rules, operation, resource)

    def _index_changes(self, indexes: dict[str, RuleIndex], table: AccessTable) -> None:
        """Build the indexes for another table's rules. Callable from any thread."""
        for name in {*self.table.rules, *table.rules}:
            rules = table.rules.get(name)
            if rules is not self.table.rules.get(name):
                indexes.pop(name, None)
                if rules is not None:
                    indexes[name] = RuleIndex(rules)

    def _index_rules(self, name: str) -> RuleIndex:
        """Return the rules of one user; the index is made once after each change."""
        index = self._rule_indexes.get(name)
        if index is None:
            rules = self.table.rules.get(name)
            if rules is None:
                return NO_RULES
            index = self._rule_indexes[name] = RuleIndex(rules)
        return index

    def grantor_of(self, principal: Principal | None) -> int | str | None:
        """Return what stands for a user in what the broker does later by the user's rights, for ``grantor_allows``.

        That is the id, or the name of one whom a certificate or another issuer vouches for. None is an administrator,
        or any client while no users are set up: what they set stays after they have left.
        """
        if principal is None or self.is_administrator(principal):
            return None
        return principal.user_id or principal.name

    def grantor_allows(self, grantor: int | str | None, operation: Right, resource: Resource) -> bool:
        """Return whether the user of ``grantor_of`` may do something now: not one who is deleted or not active."""
        if grantor is None or not self.table.users:
            return True
        if isinstance(grantor, str):
            user, name = self.table.users.get(grantor), grantor
        else:
            user = self.find_user(grantor)
            name = "" if user is None else user.name
        return (user is None or user.is_active) and self._name_allows(name, operation, resource)

    def require(self, principal: Principal | None, operation: Right, resource: Resource, called: str = "") -> None:
        """Raise Refusal with UNAUTHORIZED unless ``allows``; the text does not reveal whether the resource exists.

        ``called`` is the client's name for the resource, if rules use another one.
        """
        if not self.allows(principal, operation, resource):
            name = principal.name if principal is not None else ANONYMOUS
            named = called or resource.name
            raise Refusal(
                Reason.UNAUTHORIZED, f"user {name!r} may not {operation} {resource.kind} {named!r}; "
                f"an administrator can allow it: lading acl add {name} {operation} …",
            )  # fmt: skip

    def require_topics(
        self, principal: Principal | None, operation: Right, topics: Iterable[Topic], stream: str
    ) -> None:
        """Raise Refusal unless ``principal`` may do this with each topic of a stream, which the text alone names.

        A rule about one of them may deny what another allows for the stream.
        """
        if self.is_administrator(principal):
            return
        for topic in topics:
            resource = topic_resource(topic.stream.name, topic.name)
            self.require(principal, operation, resource, f"in stream {stream}")

    def count_rules(self, principal: Principal) -> int:
        """Return the number of rules of a principal; 1 for one that may do everything."""
        if self.is_administrator(principal):
            return 1
        return len(self.table.rules.get(principal.name, ())) + len(self.table.rules.get(EVERYBODY, ()))

    def is_administrator(self, principal: Principal | None) -> bool:
        """Return whether ``principal`` may do everything."""
        if principal is None or principal.is_revoked:
            return False
        user = self.table.users.get(principal.name)
        return principal.is_trusted or not self.table.users or (user is not None and user.is_administrator)

    # -- changes

    def add_user(
        self, name: str, password: str, *, now_us: int, is_administrator: bool = False, is_active: bool = True
    ) -> Change[User]:
        """Add a user. The first one has to be an administrator: from then on everybody has to log in."""
        require_user_name(name)
        require_password(password)
        if not self.table.users and not (is_administrator and is_active):
            raise Refusal(
                Reason.LAST_ADMINISTRATOR,
                f"user {name!r}: the first user must be an administrator, or no user could add others; make it one",
            )
        if name in self.table.users:
            raise Refusal(Reason.USER_EXISTS, f"user {name!r} already exists; choose another name")
        made: list[Credentials] = []
        yield lambda: made.append(make_credentials(password))
        user = User(self.table.next_id, name, made[0], self._dates.of(now_us), is_active, is_administrator)
        yield from self._replace(self.table.with_user(user))
        return user

    def set_password(self, name: str, password: str) -> Change[None]:
        """Change a user's password. Logins that were made with the old one continue, and tokens stay valid."""
        require_password(password)
        user = self.table.user(name)
        made: list[Credentials] = []
        yield lambda: made.append(make_credentials(password))
        yield from self._replace(self.table.with_user(replace(user, credentials=made[0])))

    def require_scram_user(self, name: str) -> None:
        """Raise Refusal unless ``set_scram_verifiers`` takes this user: one that exists, or that can be added."""
        if name in self.table.users:
            return
        if not self.table.users:
            raise Refusal(Reason.LAST_ADMINISTRATOR, f"user {name!r}: add an administrator first: lading user add")
        require_user_name(name)

    def set_scram_verifiers(self, verifiers: Mapping[str, Mapping[str, ScramVerifier]], *, now_us: int) -> Change[None]:
        """Give users other passwords, of which only these verifiers are known, by mechanism; others are forgotten.

        A user who does not exist is added, without rights. Raises Refusal if ``require_scram_user`` does for one.
        """
        tables: list[AccessTable] = []
        yield lambda: tables.append(self._with_verifiers(verifiers, self._dates.of(now_us)))
        yield from self._replace(tables[0])

    def _with_verifiers(self, verifiers: Mapping[str, Mapping[str, ScramVerifier]], date_us: int) -> AccessTable:
        users, next_id = [], self.table.next_id
        for name, of_user in verifiers.items():
            self.require_scram_user(name)
            credentials = Credentials("", dict(of_user))
            if (user := self.table.users.get(name)) is None:
                users.append(User(next_id, name, credentials, date_us))
                next_id += 1
            else:
                users.append(replace(user, credentials=credentials))
        return self.table.with_users(users)

    def change_user(
        self,
        name: str,
        *,
        new_name: str | None = None,
        is_active: bool | None = None,
        is_administrator: bool | None = None,
    ) -> Change[User]:
        """Change a user's name, whether it may log in, and whether it is an administrator; None changes nothing."""
        self.table.user(name)
        tables: list[AccessTable] = []

        def change() -> None:
            user = self.table.user(name)
            changed = replace(
                user,
                is_active=user.is_active if is_active is None else is_active,
                is_administrator=user.is_administrator if is_administrator is None else is_administrator,
            )
            table = self.table.with_user(changed)
            if new_name is not None and new_name != name:
                if require_user_name(new_name) in table.users:
                    raise Refusal(Reason.USER_EXISTS, f"user {new_name!r} already exists; choose another name")
                table = table.with_name(name, new_name)
            self._require_administrator(table, name)
            tables.append(table)

        # in a worker: each rule of a user names it, and there may be many users
        yield change
        (table,) = tables
        yield from self._replace(table)
        return table.users[name if new_name is None else new_name]

    def delete_user(self, name: str) -> Change[None]:
        """Delete a user with its tokens and rules; its connections end. The last administrator stays."""
        self.table.user(name)
        tables: list[AccessTable] = []

        def delete() -> None:
            table = self.table.without_user(name)
            self._require_administrator(table, name)
            tables.append(table)

        # in a worker: there may be many users
        yield delete
        yield from self._replace(tables[0])

    def add_token(self, owner: str, name: str, ends_us: int | None, *, now_us: int) -> Change[tuple[Token, str]]:
        """Add a personal access token that ends at a date, or never; returns it with the secret, which is not kept."""
        self.table.user(owner)
        if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
            raise Refusal(Reason.INVALID_TOKEN_NAME, f"token name {name!r}: invalid; use printable characters")
        if (owner, name) in self.table.tokens:
            raise Refusal(
                Reason.TOKEN_EXISTS,
                f"user {owner!r} has a token {name!r} already; choose another name, or delete that token",
            )
        secret = make_token()
        token = Token(owner, name, hash_token(secret), self._dates.of(now_us), ends_us)
        yield from self._replace(self.table.with_token(token))
        return token, secret

    def delete_token(self, owner: str, name: str) -> Change[None]:
        """Delete a token; connections that were made with it end."""
        self.table.user(owner)
        if (owner, name) not in self.table.tokens:
            raise Refusal(Reason.TOKEN_NOT_FOUND, f"user {owner!r} has no token {name!r}; list the tokens")
        yield from self._replace(self.table.without_token(owner, name))

    def change_rules(self, added: Iterable[AccessRule], removed: Iterable[AccessRule] = ()) -> Change[None]:
        """Remove rules, then add some; ignores missing rules to remove and existing rules to add."""
        tables: list[AccessTable] = []
        # in a worker: a user may have many rules
        yield lambda: tables.append(self.table.with_rules(added, removed))
        yield from self._replace(tables[0])

    def set_quotas(self, quotas: Mapping[str, Quota]) -> Change[None]:
        """Give users other quotas, an empty one for none; they count from now on, for connections that are open too.

        A user need not exist. EVERYBODY is all who have none of their own, ANONYMOUS those who have not logged in.
        """
        tables: list[AccessTable] = []

        def add_quotas() -> None:
            for name in quotas:
                require_quota_name(name)
            tables.append(self.table.with_quotas(quotas))

        # in a worker: a hundred thousand users may get one
        yield add_quotas
        yield from self._replace(tables[0])

    def _require_administrator(self, table: AccessTable, name: str) -> None:
        if not any(one.is_administrator and one.is_active for one in table.users.values()):
            raise Refusal(
                Reason.LAST_ADMINISTRATOR,
                f"user {name!r} is the only administrator; make another user one first",
            )

    def _replace(self, table: AccessTable) -> Change[None]:
        """Write a new table to disk, then use it."""
        indexes = dict(self._rule_indexes)
        if table.rules is not self.table.rules:
            # of users whose rules are others: one may have many
            yield lambda: self._index_changes(indexes, table)
        with refuse_disk_errors("the table of users"):
            # the document of 10,000 users takes 0.1 s to make: in a worker, as a table never changes
            yield lambda: self._file.save(table.document())
        self._on_saved(self._file.serial)
        self._use_table(table, indexes)

    def take_over(self, table: AccessTable) -> None:
        """Use a table that was stored by another process, as after a change here."""
        indexes = dict(self._rule_indexes)
        self._index_changes(indexes, table)
        self._use_table(table, indexes)

    def _use_table(self, table: AccessTable, indexes: dict[str, RuleIndex]) -> None:
        self.table, self._rule_indexes = table, indexes
        self._tokens = {token.hash: token for token in table.tokens.values()}
        self.version += 1
        # renew the routes first: callbacks may look something up
        self._on_changed()
        self._meters = {name: one for name, one in self._meters.items() if table.quota_of(name) == one[0]}
        for principal in list(self._principals):
            principal.meter = self._find_meter(principal) if table.quotas else None
            if not self._is_valid_login(principal):
                principal.revoke()
        for callback in self._changed_callbacks:
            callback()

    def add_changed_callback(self, callback: Callable[[], None]) -> None:
        """Call back after each change of users or rules: work without own requests then checks its rights again."""
        self._changed_callbacks.append(callback)

    def _is_valid_login(self, principal: Principal) -> bool:
        """Return whether a login is still valid."""
        if not principal.name:
            return principal.is_trusted or not self.table.users
        user = self.table.users.get(principal.name)
        if principal.user_id and (user is None or user.id != principal.user_id):
            return False
        if user is not None and not user.is_active:
            return False
        return principal.token is None or (principal.name, principal.token) in self.table.tokens

    # -- the component

    def tick(self, now_us: int) -> None:
        """Revoke logins that have ended."""
        date_us = self._dates.of(now_us)
        if self._ends_us is None or date_us < self._ends_us:
            return
        principals = list(self._principals)
        self._ends_us = min(
            (one.ends_us for one in principals if one.ends_us is not None and one.ends_us > date_us), default=None
        )
        for principal in principals:
            if principal.ends_us is not None and principal.ends_us <= date_us and not principal.is_revoked:
                principal.revoke()

    @property
    def due_us(self) -> int:
        return NEVER_US if self._ends_us is None else self._ends_us - self._dates.shift_us


def credentials_refusal() -> Refusal:
    """Return the one error for unknown users and wrong passwords."""
    return Refusal(Reason.INVALID_CREDENTIALS, "wrong user name or password")


class RuleIndex:
    """The rules of one user by what they name.

    A request looks at the rules for its resource, however many others there are.
    """

    def __init__(self, rules: Iterable[AccessRule]) -> None:
        self._rules: dict[_Key, list[AccessRule]] = {}
        prefix_lengths: dict[ResourceKind, set[int]] = {}
        for rule in rules:
            self._rules.setdefault((rule.kind, rule.pattern, rule.name), []).append(rule)
            if rule.pattern is PatternKind.PREFIX:
                prefix_lengths.setdefault(rule.kind, set()).add(len(rule.name))
        self._prefix_lengths = {kind: sorted(lengths) for kind, lengths in prefix_lengths.items()}
        """The lengths of prefixes, by kind; at most as many as a name has characters."""

    def find(self, resource: Resource) -> Iterator[AccessRule]:
        """Return the rules that cover a resource, and those of the cluster, which may create any."""
        yield from self._find_named(resource.kind, resource.name)
        if resource.kind is ResourceKind.TOPIC:
            yield from self._rules.get((ResourceKind.TOPIC, PatternKind.IN_STREAM, resource.stream), ())
            yield from self._find_named(ResourceKind.STREAM, resource.stream)
        if resource.kind is not ResourceKind.CLUSTER:
            yield from self._find_named(ResourceKind.CLUSTER, CLUSTER.name)

    def _find_named(self, kind: ResourceKind, name: str) -> Iterator[AccessRule]:
        rules = self._rules
        yield from rules.get((kind, PatternKind.LITERAL, name), ())
        yield from rules.get((kind, PatternKind.ANY, "*"), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                break
            yield from rules.get((kind, PatternKind.PREFIX, name[:length]), ())


NO_RULES = RuleIndex(())
