"""Serve the page live on this machine's own address, for one folder and one reader.

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
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from chiaroscuro.errors import ChiaroError, InputError, install_command, need
from chiaroscuro.report.document import FORMAT, document
from chiaroscuro.report.listing import Listing, Snapshot
from chiaroscuro.report.packing import readable
from chiaroscuro.report.page import page
from chiaroscuro.report.points import POINTS
from chiaroscuro.report.subject import subjects

__all__ = ["app", "view"]

LOOPBACK = "127.0.0.1"
EVERY = 0.5
"""Seconds between looks at what training has written, at least."""

IDLE = 20
"""A look that took t seconds is followed by `IDLE` t seconds without one, however many watch."""

LONGEST = 10.0
"""Seconds between looks at most, so that a new run appears soon all the same."""

BEAT = 10.0
"""Seconds after which a stream without news says that it is alive, so that nobody gives it up."""

PATIENCE = 10.0
"""Seconds that a connection may take to send its request."""

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
    """Serve a folder of runs on the loopback address until Ctrl-C, and print the address.

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
            http=_impatient(),
            ws="none",
        )
        uvicorn.Server(config).run([bound])


def _impatient() -> Any:
    """Return uvicorn's HTTP protocol with a limit on the time that a request may take to arrive."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):
        """Closes a connection that has not sent a whole request after `PATIENCE` seconds."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._wait()

        def _wait(self) -> None:
            before = self.cycle
            self.loop.call_later(PATIENCE, self._give_up, before)

        def _give_up(self, before: Any) -> None:
            if self.cycle is before and not self.transport.is_closing():
                self.transport.abort()

    return Impatient


_MISSING = f"`chiaro view` needs starlette and uvicorn: `{install_command('view')}`."


def app(listing: Listing, token: str, port: int) -> Any:
    """Return the application: `/` the list, `/report` a page, `/events` what is new.

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
    watch = _Watch(listing)
    pages: dict[tuple[Any, ...], str] = {}

    def refused(request: Request) -> str | None:
        """Return why a request is refused, if it is."""
        headers, query = request.headers, request.query_params
        if headers.getlist("host") not in [[host] for host in hosts]:
            return "This server answers to this machine's own name only."
        origins = headers.getlist("origin")
        if origins and origins not in [[f"http://{host}"] for host in hosts]:
            return "Requests from other sites are refused."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "Requests from other sites are refused."
        given = query.getlist("token")
        if len(given) != 1 or not secrets.compare_digest(given[0].encode(), token.encode()):
            return "The token is missing or wrong: open the address that `chiaro view` printed."
        return None

    async def chosen(request: Request) -> dict[str, Path] | None:
        """Return the runs that a request names; None if one of them is not here."""
        wanted = request.query_params.getlist("run")[:_MOST]
        seen = await watch.look(fresh=bool(wanted))
        runs = {one: seen.paths[one] for one in wanted if one in seen.paths}
        inside = await run_in_threadpool(lambda: all(map(listing.inside, runs.values())))
        return runs if len(runs) == len(set(wanted)) and inside else None

    async def index(request: Request) -> Response:
        rows = list((await watch.look(fresh=True)).rows.values())
        content = {"format": FORMAT, "kind": "list", "title": "Runs", "live": [], "runs": rows}
        return HTMLResponse(page({**content, "folder": listing.folder.name}, "'self'"))

    def rendered(paths: dict[str, Path]) -> str:
        key = tuple((identifier, listing.mark(path)) for identifier, path in paths.items())
        if key not in pages:
            content = document(subjects(list(paths.values())), POINTS, ("tsne",))
            for run, path in zip(content["runs"], paths.values(), strict=True):
                run["name"] = readable(listing.named(path))
            pages.clear()  # one page is enough: it is large
            pages[key] = page({**content, "live": list(paths)}, "'self'")
        return pages[key]

    async def report(request: Request) -> Response:
        paths = await chosen(request)
        if not paths:
            return PlainTextResponse("There is no such run.", 404)
        try:
            return HTMLResponse(await run_in_threadpool(rendered, paths))
        except Exception as error:  # noqa: BLE001 - one bad run must not look like a broken server
            known = isinstance(error, ChiaroError | OSError)
            why = readable(str(error) if known else f"{type(error).__name__}: {error}")
            return PlainTextResponse(f"This run cannot be shown: {why[:2000]}", 500)

    async def events(request: Request) -> Response:
        paths = await chosen(request)
        if paths is None:
            return PlainTextResponse("There is no such run.", 404)
        news = _run_news(request, watch, paths) if paths else _list_news(request, watch)
        return StreamingResponse(news, media_type="text/event-stream")

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


class _Watch:
    """Looks at the folder for all who watch it: one look serves everybody who asks meanwhile."""

    def __init__(self, listing: Listing):
        self.listing = listing
        self._looking, self._reading = asyncio.Lock(), asyncio.Lock()
        self._seen: Snapshot | None = None
        self._began = self._next = 0.0
        self._news: dict[Path, tuple[Any, dict[str, Any]]] = {}

    async def look(self, fresh: bool = False) -> Snapshot:
        """Return what the last look saw, after a new one if it is time for one.

        Args:
            fresh: look again although it is not time, unless a look began since this was called.
        """
        asked = time.monotonic()
        async with self._looking:
            now = time.monotonic()
            if self._seen is None or now >= self._next or (fresh and self._began < asked):
                self._began = now
                self._seen = await asyncio.to_thread(self.listing.look)
                took = time.monotonic() - now
                self._next = now + took + min(max(EVERY, IDLE * took), LONGEST)
            return self._seen

    async def news(self, path: Path, mark: Any) -> dict[str, Any]:
        """Return the curves of a run whose files are in the state `mark`, read once for all."""
        async with self._reading:
            if path not in self._news or self._news[path][0] != mark:
                while len(self._news) >= _MOST:
                    self._news.pop(next(iter(self._news)))
                self._news[path] = mark, await asyncio.to_thread(self.listing.news, path)
            return self._news[path][1]


async def _list_news(request: Any, watch: _Watch) -> AsyncIterator[str]:
    """Yield an event with the rows that changed and those that are gone; the first has all."""
    last: Mapping[str, Any] = {}
    version = -1
    said = time.monotonic()
    while not await request.is_disconnected():
        seen = await watch.look()
        if seen.version != version:
            changed = [row for key, row in seen.rows.items() if last.get(key) is not row]
            gone = [key for key in last if key not in seen.rows]
            yield _event({"rows": changed, "gone": gone})
            last, version, said = seen.rows, seen.version, time.monotonic()
        elif time.monotonic() - said >= BEAT:
            yield _ALIVE
            said = time.monotonic()
        await asyncio.sleep(EVERY)


async def _run_news(request: Any, watch: _Watch, paths: dict[str, Path]) -> AsyncIterator[str]:
    """Yield an event with the curves of the chosen runs that have something new."""
    listing = watch.listing
    marks: dict[str, Any] = {}
    said = time.monotonic()
    while not await request.is_disconnected():
        now = {key: await asyncio.to_thread(listing.mark, path) for key, path in paths.items()}
        changed = [key for key in paths if now[key] != marks.get(key)]
        if changed:
            yield _event({key: await watch.news(paths[key], now[key]) for key in changed})
            marks, said = now, time.monotonic()
        elif time.monotonic() - said >= BEAT:
            yield _ALIVE
            said = time.monotonic()
        await asyncio.sleep(EVERY)


_ALIVE = ": alive\n\n"  # a comment, which an event stream may hold


def _event(content: Any) -> str:
    return f"data: {json.dumps(content, allow_nan=False)}\n\n"
