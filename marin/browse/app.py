"""The pages of the web view, as a Starlette application.

Read-only: there are GET routes and nothing else. A file is served only when a record lists exactly that name, so no
request can address anything by path. Everything that comes from the store is escaped; stored HTML (a step's report)
is served with a policy that runs no script and loads nothing from elsewhere.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator
from typing import Any, TypeVar
from urllib.parse import quote

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from marin.browse.catalogue import Catalogue, Snapshot, StepEntry
from marin.execution.artifact import FileInfo
from marin.storage import Store

PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; base-uri 'none'; form-action 'none'"
FILE_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"

# Shown in the browser; everything else is a download.
_TEXT = {".json", ".jsonl", ".txt", ".yaml", ".yml", ".md", ".csv", ".log", ".py"}
_SHOWN = {"text/html", "image/png", "image/jpeg", "image/svg+xml", "image/gif"}
_PIECE = 1 << 20

Found = TypeVar("Found")


def make_app(store: Store) -> Starlette:
    """The application over one store."""
    catalogue = Catalogue(store)
    pages = _environment()

    def page(template: str, **values: Any) -> HTMLResponse:
        text = pages.get_template(template).render(prefix=store.url, **values)
        return HTMLResponse(text, headers=_headers(PAGE_POLICY))

    async def look() -> Snapshot:
        return await run_in_threadpool(catalogue.look)

    async def index(request: Request) -> Response:
        return page("index.html", snapshot=await look())

    async def step(request: Request) -> Response:
        snapshot = await look()
        entry = _found(snapshot.step(request.path_params["slug"]), "step")
        return page("step.html", entry=entry, upstream=snapshot.upstream(entry), downstream=snapshot.downstream(entry))

    async def file(request: Request) -> Response:
        entry = _found((await look()).step(request.path_params["slug"]), "step")
        found = _found(entry.file(request.path_params["name"]), "file of this step")
        return await run_in_threadpool(_serve_file, store, entry, found)

    async def failure(request: Request) -> Response:
        key = _found(_member(request.path_params["key"], (await look()).failures), "failure")
        data = await run_in_threadpool(store.read, key)
        return Response(data, media_type="text/plain; charset=utf-8", headers=_headers(FILE_POLICY))

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = page("refused.html", status=error.status_code, detail=error.detail)
        response.status_code = error.status_code
        return response

    return Starlette(
        routes=[
            Route("/", index),
            Route("/steps/{slug}", step),
            Route("/steps/{slug}/files/{name:path}", file),
            Route("/failures/{key:path}", failure),
        ],
        # A page elsewhere that resolves its own name to loopback must not read the store through the browser.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
        exception_handlers={HTTPException: refused},
    )


def _found(value: Found | None, what: str) -> Found:
    if value is None:
        raise HTTPException(404, f"there is no such {what} here")
    return value


def _member(key: str, keys: tuple[str, ...]) -> str | None:
    return key if key in keys else None


def _headers(policy: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


def _serve_file(store: Store, entry: StepEntry, found: FileInfo) -> Response:
    """The bytes of an output file, or a plain refusal when they are gone or not what the record says."""
    stored = store.size(found.key)
    if stored != found.size:
        state = "missing" if stored is None else f"{stored} bytes long"
        raise HTTPException(
            410,
            f"{found.name} of {entry.record.display} is {state}; its record says {found.size} bytes. "
            "Redo the step with --force",
        )
    stream = store.open(found.key)

    def pieces() -> Iterator[bytes]:
        with stream:
            while piece := stream.read(_PIECE):
                yield piece

    kind, shown = media_type(found.name)
    headers = _headers(FILE_POLICY)
    headers["Content-Length"] = str(found.size)
    if not shown:
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(found.name.rsplit('/', 1)[-1], safe='')}"
    return StreamingResponse(pieces(), media_type=kind, headers=headers)


def media_type(name: str) -> tuple[str, bool]:
    """(media type, whether the browser shows it) of an output file by its name."""
    suffix = "." + name.rsplit(".", 1)[-1].lower() if "." in name else ""
    if suffix in _TEXT:
        return "text/plain; charset=utf-8", True
    kind, encoding = mimetypes.guess_type(name)
    if kind in _SHOWN and encoding is None:
        return (f"{kind}; charset=utf-8" if kind.startswith("text/") else kind), True
    return "application/octet-stream", False


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("marin.browse"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["bytes"] = human_bytes
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False, default=str)
    environment.filters["segment"] = lambda text: quote(str(text), safe="")
    environment.filters["segments"] = lambda text: quote(str(text), safe="/")
    return environment


def human_bytes(count: int) -> str:
    """A size for people: 950 B, 1.5 kB, 20 MB (powers of 1000)."""
    if count < 1000:
        return f"{count} B"
    size = float(count)
    for unit in ("kB", "MB", "GB", "TB", "PB"):
        size /= 1000
        if size < 1000:
            return f"{size:.3g} {unit}"
    return f"{size / 1000:.3g} EB"
