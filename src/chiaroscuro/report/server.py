"""The same page, live: a server on this machine's own address, for one folder and one reader.

Every request needs the token of the address that was printed, a `Host` that is this machine, and no
foreign `Origin`. There are three addresses and none of them is a path to a file: runs are chosen by
identifiers that are looked up.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TextIO

from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.report.document import FORMAT, document
from chiaroscuro.report.listing import Listing
from chiaroscuro.report.page import page
from chiaroscuro.report.points import POINTS
from chiaroscuro.report.reading import subjects

__all__ = ["app", "view"]

LOOPBACK = "127.0.0.1"
EVERY = 0.5
"""Seconds between looks at what training has written."""

_MOST = 8  # runs compared on one page
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def view(folder: str | Path = ".", port: int = 0, out: TextIO | None = None) -> None:
    """Serve a folder of runs on the loopback address until Ctrl-C, and say where.

    Args:
        folder: the only one that is read.
        port: 0 takes a free one.
        out: where the address is printed; standard output unless given.
    """
    listing = Listing(folder)
    need(0 <= port < 65536, lambda: f"`--port` needs 0 to 65535; received {port}.")
    try:
        import uvicorn
    except ImportError:
        raise InputError(_MISSING) from None
    token = secrets.token_urlsafe(24)
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((LOOPBACK, port))
            bound.listen()  # whoever follows the address at once waits, and is not turned away
        except OSError as error:
            raise ChiaroError(f"Port {port} cannot be had: {error.strerror or error}.") from None
        port = bound.getsockname()[1]
        print(f"view: http://{LOOPBACK}:{port}/?token={token}", file=out or sys.stdout, flush=True)
        config = uvicorn.Config(
            app(listing, token, port),
            log_level="warning",
            access_log=False,  # it would write the token
            server_header=False,
            timeout_graceful_shutdown=1,
            lifespan="off",
        )
        uvicorn.Server(config).run([bound])


_MISSING = "`chiaro view` needs starlette and uvicorn: `pip install chiaroscuro[view]`."


def app(listing: Listing, token: str, port: int) -> Any:
    """The application: `/` the list, `/report` a page, `/events` what is new.

    Args:
        listing: of the folder.
        token: that every request carries.
        port: that the `Host` of every request names.
    """
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.requests import Request
        from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
        from starlette.routing import Route
    except ImportError:
        raise InputError(_MISSING) from None
    hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}
    pages: dict[tuple[Any, ...], str] = {}

    def refused(request: Request) -> str | None:
        """Why a request is refused, if it is."""
        headers, query = request.headers, request.query_params
        if headers.getlist("host") not in [[host] for host in hosts]:
            return "This server answers to this machine's own name only."
        origins = headers.getlist("origin")
        if origins and origins not in [[f"http://{host}"] for host in hosts]:
            return "Another site may not ask."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "Another site may not ask."
        given = query.getlist("token")
        if len(given) != 1 or not secrets.compare_digest(given[0].encode(), token.encode()):
            return "The token is missing or wrong: open the address that `chiaro view` printed."
        return None

    def chosen(request: Request) -> dict[str, Path] | None:
        """The runs that a request names; None if one of them is not here."""
        runs, wanted = listing.runs(), request.query_params.getlist("run")[:_MOST]
        if any(identifier not in runs for identifier in wanted):
            return None
        return {identifier: runs[identifier] for identifier in wanted}

    async def index(request: Request) -> Response:
        rows = await run_in_threadpool(listing.rows)
        content = {"format": FORMAT, "kind": "list", "title": "Runs", "live": [], "runs": rows}
        return HTMLResponse(page({**content, "folder": listing.folder.name}, "'self'"))

    def made(found: dict[str, Path]) -> str:
        key = tuple((identifier, listing.mark(path)) for identifier, path in found.items())
        if key not in pages:
            content = document(subjects(list(found.values())), POINTS)
            for run, path in zip(content["runs"], found.values(), strict=True):
                run["name"] = listing.named(path)
            pages.clear()  # one page is enough: it is large
            pages[key] = page({**content, "live": list(found)}, "'self'")
        return pages[key]

    async def report(request: Request) -> Response:
        found = chosen(request)
        if not found:
            return PlainTextResponse("There is no such run.", 404)
        try:
            return HTMLResponse(await run_in_threadpool(made, found))
        except (ChiaroError, OSError) as error:
            return PlainTextResponse(f"This run cannot be shown: {error}", 500)

    async def events(request: Request) -> Response:
        found = chosen(request)
        if found is None:
            return PlainTextResponse("There is no such run.", 404)
        return StreamingResponse(_news(request, listing, found), media_type="text/event-stream")

    class Guard:
        """Refuses before anything is looked at, and adds the headers to every answer."""

        def __init__(self, inner: Any):
            self.inner = inner

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                return
            request = Request(scope)

            async def sending(message: Any) -> None:
                if message["type"] == "http.response.start":
                    extra = [(k.lower().encode(), v.encode()) for k, v in _HEADERS.items()]
                    message = {**message, "headers": [*message["headers"], *extra]}
                await send(message)

            why = refused(request)
            answer = self.inner if why is None else PlainTextResponse(why, 403)
            await answer(scope, receive, sending)

    routes = [Route("/", index), Route("/report", report), Route("/events", events)]
    return Guard(Starlette(routes=routes))


async def _news(request: Any, listing: Listing, found: dict[str, Path]) -> AsyncIterator[str]:
    """An event for each change: of the chosen runs, or of the list if none is chosen."""
    last: Any = None
    while not await request.is_disconnected():
        now, content = await asyncio.to_thread(_look, listing, found, last)
        if now != last:
            last = now
            yield f"data: {json.dumps(content, allow_nan=False)}\n\n"
        await asyncio.sleep(EVERY)


def _look(listing: Listing, found: dict[str, Path], last: Any) -> tuple[Any, Any]:
    watched = found or listing.runs()
    now = {identifier: listing.mark(path) for identifier, path in watched.items()}
    if now == last:
        return now, None
    if not found:
        return now, listing.rows()
    return now, {identifier: listing.news(path) for identifier, path in found.items()}
