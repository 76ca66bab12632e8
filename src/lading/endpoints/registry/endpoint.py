"""The schema registry's routes: subjects, versions, schemas by id and GUID, compatibility, settings and modes.

A user needs rights on the topic that a subject is of: ``T`` of ``T-value`` and ``T-key``, else a topic of the subject's
own name. Subjects that the user may not see are left out of lists, and reported as missing, also if the references of a
schema name them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ...broker.core.access.rights import CLUSTER, Resource, Right, flat_topic_resource
from ...broker.schemas.errors import RegistryError, RegistryFault
from ...broker.schemas.registry import RegisteredSchema, SubjectVersion, missing_reference_error
from ...broker.schemas.requests import NUMBER_MAX, SchemaRequest, parse_version
from ...runtime.turns import Turn
from ...schemas.formats import FORMATS
from ...settings.endpoints import SchemaRegistrySettings
from ..base.append_wait import wait_for_result
from ..base.services import Endpoint, Services
from ..http_shared.http import HttpEndpoint
from ..http_shared.http_guard import principal_of
from ..http_shared.routing import Access, HttpRoute, Parameters, Router, parse_number
from .documents import (
    MEDIA_TYPE,
    RegistryGuard,
    is_set,
    read_document,
    read_window,
    respond,
    respond_error,
    respond_missing,
)

if TYPE_CHECKING:
    from ...broker.core.change import Change

NAME: Final = "schema_registry"
PAGE_ROWS: Final = 1000
"""Rows that are read of the catalog before others have their turn."""
LIST_CHARACTERS_MAX: Final = 32 << 20
"""Characters of all texts in one list of schemas. The list is in memory until it is sent, and repeats a text for each
subject that has it."""
ROUTE_SUFFIXES: Final = ("-value", "-key")
Handler = Callable[[Request, Parameters], Awaitable[Any]]


class SchemaRegistryRoutes:
    """The handlers; each returns a document, or a response."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._broker = services.broker
        self._schemas = services.broker.schemas
        self._access = services.broker.access
        self._unconfirmed = 0
        """Writes that may yet be lost: a response that may show one waits for the same sync."""

    def routes(self) -> list[HttpRoute]:
        """Return the table for the router."""
        subject, versions = "/subjects/{subject}", "/subjects/{subject}/versions"
        version, compatibility = versions + "/{version}", "/compatibility/subjects/{subject}/versions"
        return [
            self._read("/", "registry", self._show_root, None),
            self._read("/subjects", "subjects", self._list_subjects, None),
            self._read(versions, "versions", self._list_versions),
            self._write("POST", versions, "version.register", self._register, Right.WRITE),
            self._read(subject, "schema.find", self._find, method="POST"),
            self._write("DELETE", subject, "subject.delete", self._delete_subject),
            self._read(f"{subject}/metadata", "schema.metadata", self._find_by_metadata),
            self._read(version, "version", self._show_version),
            self._write("DELETE", version, "version.delete", self._delete_version),
            self._read(f"{version}/schema", "version.schema", self._show_version_text),
            self._read(f"{version}/referencedby", "version.referencedby", self._list_referring),
            self._read("/schemas", "schemas", self._list_schemas, None),
            self._read("/schemas/types", "schemas.types", self._list_types, None),
            self._read("/schemas/ids/{id}", "schema", self._show_schema, None),
            self._read("/schemas/ids/{id}/schema", "schema.text", self._show_text, None),
            self._read("/schemas/ids/{id}/subjects", "schema.subjects", self._list_uses_subjects, None),
            self._read("/schemas/ids/{id}/versions", "schema.versions", self._list_uses_versions, None),
            self._read("/schemas/guids/{guid}", "schema.guid", self._show_schema_by_guid, None),
            self._read("/schemas/guids/{guid}/ids", "schema.guid.ids", self._list_ids_of_guid, None),
            self._read(compatibility, "compatibility.all", self._check, method="POST"),
            self._read(compatibility + "/{version}", "compatibility", self._check, method="POST"),
            self._read("/config", "config", self._show_config, None),
            self._write("PUT", "/config", "config.change", self._set_config),
            self._write("DELETE", "/config", "config.delete", self._delete_config),
            self._read("/config/{subject}", "config", self._show_config),
            self._write("PUT", "/config/{subject}", "config.change", self._set_config),
            self._write("DELETE", "/config/{subject}", "config.delete", self._delete_config),
            self._read("/mode", "mode", self._show_mode, None),
            self._write("PUT", "/mode", "mode.change", self._set_mode),
            self._write("DELETE", "/mode", "mode.delete", self._delete_mode),
            self._read("/mode/{subject}", "mode", self._show_mode),
            self._write("PUT", "/mode/{subject}", "mode.change", self._set_mode),
            self._write("DELETE", "/mode/{subject}", "mode.delete", self._delete_mode),
            self._read("/contexts", "contexts", self._list_contexts, None),
            self._read("/associations/resources/{namespace}/{name}", "associations", self._refuse_association, None),
        ]

    def _read(
        self, pattern: str, name: str, handler: Handler, right: Right | None = Right.DESCRIBE, method: str = "GET"
    ) -> HttpRoute:
        async def serve(request: Request, path: Parameters) -> Response:
            document = await handler(request, path)
            if self._unconfirmed:
                await wait_for_result(self._broker.catalog_commit.confirm())
            return await self._respond(document)

        return HttpRoute(method, pattern, name, serve, right=right, resource=self._resource_in_path)

    def _write(
        self, method: str, pattern: str, name: str, handler: Handler, right: Right = Right.ADMINISTRATE
    ) -> HttpRoute:
        async def serve(request: Request, path: Parameters) -> Response:
            self._unconfirmed += 1
            try:
                document = await handler(request, path)
                await wait_for_result(self._broker.catalog_commit.confirm())
            finally:
                self._unconfirmed -= 1
            return await self._respond(document)

        access = Access.USE if right is Right.WRITE else Access.ADMINISTRATE
        return HttpRoute(method, pattern, name, serve, access, right, self._resource_in_path)

    async def _respond(self, document: Any) -> Response:
        if isinstance(document, Response):
            return document
        if isinstance(document, RegisteredSchema):
            return await respond(document.document(), self._services, len(document.row.text))
        return await respond(document, self._services, 64 * len(document) if isinstance(document, list) else 0)

    # -- rights

    def _resource_in_path(self, request: Request, path: Parameters) -> Resource:
        return self._resource_of(path["subject"]) if "subject" in path else CLUSTER

    def _resource_of(self, subject: str) -> Resource:
        topic = next((subject.removesuffix(one) for one in ROUTE_SUFFIXES if subject.endswith(one)), subject)
        return flat_topic_resource(self._broker.topology, topic or subject)

    def _may_see(self, request: Request, subject: str) -> bool:
        if not self._access.is_enabled:
            return True
        return self._access.allows(principal_of(request), Right.DESCRIBE, self._resource_of(subject))

    async def _require_visible(self, request: Request, schema: RegisteredSchema) -> RegisteredSchema:
        """Return a schema if the caller may see a subject that has it; else it does not exist."""
        if not self._access.is_enabled:
            return schema
        async for use in self._walk_uses(schema.row.id):
            if self._may_see(request, use.subject):
                return schema
        raise RegistryError(RegistryFault.SCHEMA_NOT_FOUND, f" {schema.row.id}")

    async def _walk_uses(self, schema_id: int) -> AsyncIterator[SubjectVersion]:
        turn, after, known = Turn(), "", set[tuple[str, int]]()
        while page := self._schemas.uses(schema_id, after, PAGE_ROWS):
            for use in page:
                if (use.subject, use.version) not in known:
                    yield use
            # the first subject of the next page may have been in this one
            if len(page) < PAGE_ROWS or page[0].subject == page[-1].subject:
                return
            after, known = page[-1].subject, {(use.subject, use.version) for use in page}
            await turn.give_way()

    async def _walk_versions(self, prefix: str) -> AsyncIterator[SubjectVersion]:
        """Yield the versions of all subjects that begin with ``prefix``, in their order."""
        turn, after = Turn(), (prefix, 0)
        while page := self._schemas.rows(after, PAGE_ROWS):
            for row in page:
                if not row.subject.startswith(prefix):
                    return
                yield row
            after = (page[-1].subject, page[-1].version)
            await turn.give_way()

    # -- subjects and versions

    async def _show_root(self, request: Request, path: Parameters) -> dict[str, Any]:
        return {}

    async def _list_subjects(self, request: Request, path: Parameters) -> list[str]:
        only, also = is_set(request, "deleted_only") or is_set(request, "deletedOnly"), is_set(request, "deleted")
        prefix = _read_prefix(request)
        subjects: dict[str, bool] = {}
        """Subjects by name, each with whether one of its versions is not deleted."""
        async for row in self._walk_versions(prefix):
            subjects[row.subject] = subjects.get(row.subject, False) or not row.deleted
        turn, visible = Turn(), []
        for name, is_active in subjects.items():
            if (not is_active if only else is_active or also) and self._may_see(request, name):
                visible.append(name)
            await turn.give_way()
        return _cut(request, visible)

    async def _list_versions(self, request: Request, path: Parameters) -> list[int]:
        only, also = is_set(request, "deletedOnly") or is_set(request, "deleted_only"), is_set(request, "deleted")
        rows = self._schemas.versions(path["subject"])
        if not any(only or also or not row.deleted for row in rows):
            raise RegistryError(RegistryFault.SUBJECT_NOT_FOUND, path["subject"])
        return _cut(request, [row.version for row in rows if (row.deleted if only else also or not row.deleted)])

    async def _read_schema(self, request: Request) -> SchemaRequest:
        """Return the schema of a body. Raises RegistryError, also if it refers to what the caller may not see."""
        wanted = SchemaRequest.parse(await read_document(request, self._services))
        turn = Turn()
        for reference in wanted.references:
            if not self._may_see(request, reference.subject):
                raise missing_reference_error(reference)
            await turn.give_way()
        return wanted

    async def _register(self, request: Request, path: Parameters) -> RegisteredSchema:
        wanted = await self._read_schema(request)
        normalize = is_set(request, "normalize")
        change = self._schemas.register(path["subject"], wanted, normalize=normalize)
        return await self._services.changes.make_in_turn((NAME, path["subject"]), change)

    async def _find(self, request: Request, path: Parameters) -> Any:
        wanted = await self._read_schema(request)
        change = self._schemas.find(
            path["subject"], wanted, normalize=is_set(request, "normalize"), with_deleted=is_set(request, "deleted")
        )
        return await self._format(request, await self._services.changes.make(change))

    async def _find_by_metadata(self, request: Request, path: Parameters) -> Any:
        query = request.query_params
        wanted = dict(zip(query.getlist("key"), query.getlist("value"), strict=False))
        also, turn = is_set(request, "deleted"), Turn()
        self._schemas.require_subject(path["subject"], with_deleted=also)
        for row in reversed(self._schemas.versions(path["subject"])):
            if also or not row.deleted:
                schema = self._schemas.version(row.subject, row.version, with_deleted=also)
                properties = schema.row.details.get("metadata", {}).get("properties")
                if isinstance(properties, dict) and wanted.items() <= properties.items():
                    return await self._format(request, schema)
            await turn.give_way()
        raise RegistryError(RegistryFault.SCHEMA_NOT_FOUND, "")

    async def _show_version(self, request: Request, path: Parameters) -> Any:
        return await self._format(request, self._find_version(request, path))

    def _find_version(self, request: Request, path: Parameters) -> RegisteredSchema:
        number = parse_version(path["version"])
        return self._schemas.version(path["subject"], number, with_deleted=is_set(request, "deleted"))

    async def _show_version_text(self, request: Request, path: Parameters) -> Response:
        return _text_response(await self._format(request, self._find_version(request, path)))

    async def _list_referring(self, request: Request, path: Parameters) -> list[int]:
        schema = self._schemas.version(path["subject"], parse_version(path["version"]), with_deleted=True)
        also, turn = is_set(request, "deleted"), Turn()
        found = []
        for ident in self._schemas.referring(schema.subject, schema.version):
            if any(also or not use.deleted for use in self._schemas.uses(ident, limit=PAGE_ROWS)):
                found.append(ident)
            await turn.give_way()
        return _cut(request, found)

    async def _delete_subject(self, request: Request, path: Parameters) -> list[int]:
        return self._schemas.delete_subject(path["subject"], permanent=is_set(request, "permanent"))

    async def _delete_version(self, request: Request, path: Parameters) -> int:
        number = parse_version(path["version"])
        return self._schemas.delete_version(path["subject"], number, permanent=is_set(request, "permanent"))

    # -- schemas

    async def _format(self, request: Request, schema: RegisteredSchema) -> RegisteredSchema:
        """Return a schema with its text in the form of the query, such as ``serialized``."""
        form = request.query_params.get("format", "").strip()
        if form not in FORMATS[schema.row.kind].forms:
            return schema
        text = await self._services.changes.make(self._format_text(schema, form))
        return schema._replace(row=schema.row._replace(text=text))

    def _format_text(self, schema: RegisteredSchema, form: str) -> Change[str]:
        parsed = yield from self._schemas.parse_stored(schema.row)
        return parsed.format_text(form)

    async def _find_schema(self, request: Request, path: Parameters) -> RegisteredSchema:
        number = parse_number(path["id"], NUMBER_MAX)
        if number is None:
            raise RegistryError(RegistryFault.NOT_FOUND, "HTTP 404 Not Found")
        schema = self._schemas.schema(number)
        wanted = request.query_params.get("subject", "")
        # the short way for clients that name the subject
        uses = self._schemas.uses(number, wanted, 1) if self._access.is_enabled and wanted else []
        if any(use.subject == wanted and self._may_see(request, wanted) for use in uses):
            return schema
        return await self._require_visible(request, schema)

    async def _show_schema(self, request: Request, path: Parameters) -> Any:
        return await self._format(request, await self._find_schema(request, path))

    async def _show_text(self, request: Request, path: Parameters) -> Response:
        return _text_response(await self._format(request, await self._find_schema(request, path)))

    async def _schema_by_guid(self, request: Request, path: Parameters) -> RegisteredSchema:
        return await self._require_visible(request, self._schemas.schema_by_guid(path["guid"]))

    async def _show_schema_by_guid(self, request: Request, path: Parameters) -> Any:
        return await self._format(request, await self._schema_by_guid(request, path))

    async def _list_ids_of_guid(self, request: Request, path: Parameters) -> list[dict[str, Any]]:
        return [{"context": ".", "id": (await self._schema_by_guid(request, path)).row.id}]

    async def _list_uses(self, request: Request, path: Parameters) -> list[SubjectVersion]:
        schema, also = await self._find_schema(request, path), is_set(request, "deleted")
        wanted = request.query_params.get("subject")
        return [
            use
            async for use in self._walk_uses(schema.row.id)
            if (also or not use.deleted) and wanted in (None, use.subject) and self._may_see(request, use.subject)
        ]

    async def _list_uses_subjects(self, request: Request, path: Parameters) -> list[str]:
        return _cut(request, list(dict.fromkeys(use.subject for use in await self._list_uses(request, path))))

    async def _list_uses_versions(self, request: Request, path: Parameters) -> list[dict[str, Any]]:
        uses = await self._list_uses(request, path)
        return _cut(request, [{"subject": use.subject, "version": use.version} for use in uses])

    async def _list_schemas(self, request: Request, path: Parameters) -> list[dict[str, Any]]:
        also, latest = is_set(request, "deleted"), is_set(request, "latestOnly")
        rows: list[SubjectVersion] = []
        async for row in self._walk_versions(_read_prefix(request)):
            if (also or not row.deleted) and self._may_see(request, row.subject):
                if latest and rows and rows[-1].subject == row.subject:
                    rows.pop()
                rows.append(row)
        turn, documents, characters = Turn(), [], 0
        for row in _cut(request, rows):
            schema = self._schemas.version(row.subject, row.version, with_deleted=True)
            characters += len(schema.row.text)
            if characters > LIST_CHARACTERS_MAX:
                raise RegistryError(
                    RegistryFault.MALFORMED,
                    f"schemas: their texts have more than {LIST_CHARACTERS_MAX} characters together; list fewer with "
                    "limit and offset, latestOnly or subjectPrefix",
                )
            documents.append(schema.document())
            await turn.give_way()
        return documents

    async def _list_types(self, request: Request, path: Parameters) -> list[str]:
        return list(FORMATS)

    async def _list_contexts(self, request: Request, path: Parameters) -> list[str]:
        return ["."]

    async def _refuse_association(self, request: Request, path: Parameters) -> Any:
        # clients then name the subject after the topic
        raise RegistryError(RegistryFault.NO_ASSOCIATION, path["name"])

    async def _check(self, request: Request, path: Parameters) -> dict[str, Any]:
        version = parse_version(path["version"]) if "version" in path else None
        wanted = await self._read_schema(request)
        normalize, verbose = is_set(request, "normalize"), is_set(request, "verbose")
        try:
            change = self._schemas.check(path["subject"], wanted, version, normalize=normalize)
            found = await self._services.changes.make(change)
        except RegistryError as error:
            if not verbose or error.fault is not RegistryFault.INVALID_SCHEMA:
                raise
            found = [str(error)]
        return {"is_compatible": not found, **({"messages": found} if verbose else {})}

    # -- settings

    async def _show_config(self, request: Request, path: Parameters) -> dict[str, Any]:
        return self._schemas.config(path.get("subject"), with_global=is_set(request, "defaultToGlobal"))

    async def _set_config(self, request: Request, path: Parameters) -> dict[str, Any]:
        return self._schemas.set_config(path.get("subject"), await read_document(request, self._services))

    async def _delete_config(self, request: Request, path: Parameters) -> dict[str, Any]:
        return self._schemas.delete_config(path.get("subject"))

    async def _show_mode(self, request: Request, path: Parameters) -> dict[str, Any]:
        return {"mode": self._schemas.own_mode(path.get("subject"), with_global=is_set(request, "defaultToGlobal"))}

    async def _set_mode(self, request: Request, path: Parameters) -> dict[str, Any]:
        document = await read_document(request, self._services)
        force = is_set(request, "force")
        return {"mode": self._schemas.set_mode(path.get("subject"), document.get("mode"), force=force)}

    async def _delete_mode(self, request: Request, path: Parameters) -> dict[str, Any]:
        return {"mode": self._schemas.delete_mode(path.get("subject"))}


def _read_prefix(request: Request) -> str:
    """Return the prefix of subjects that a query asks for; ``:*:`` stands for all contexts."""
    return request.query_params.get("subjectPrefix", "").removeprefix(":*:")


def _cut(request: Request, rows: Iterable[Any]) -> list[Any]:
    offset, limit = read_window(request)
    kept = list(rows)[offset:]
    return kept if not limit else kept[:limit]


def _text_response(schema: RegisteredSchema) -> Response:
    return Response(schema.row.text.encode(), media_type=MEDIA_TYPE)


def endpoint(services: Services, name: str) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    section = services.settings.endpoints.section(name)
    assert isinstance(section, SchemaRegistrySettings)
    routes = SchemaRegistryRoutes(services).routes()
    router = Router(NAME, routes, respond_error, services.metrics, RegistryGuard(services, name), respond_missing)
    return HttpEndpoint(NAME, router, services, (section.address.host,), frozenset())
