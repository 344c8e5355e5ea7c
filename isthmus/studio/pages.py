"""What GET answers: pages, the events of live pages, and pictures."""

from __future__ import annotations

import asyncio
import io
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from isthmus.core.errors import UserError
from isthmus.core.record import SAMPLES, verify_file
from isthmus.reports import with_answer
from isthmus.reports.page import page
from isthmus.reports.sections import gather
from isthmus.sources.images import open_as_shown
from isthmus.studio.contents import Missing, Studio
from isthmus.studio.designer import Designer
from isthmus.studio.group_pages import ProblemPage, StudyPage
from isthmus.studio.guard import REPORT_POLICY
from isthmus.studio.home_page import Home
from isthmus.studio.inside import Inside, read_picture
from isthmus.studio.layout import REST, View, as_content, as_event, read_seen, render
from isthmus.studio.opened import list_pictures
from isthmus.studio.playground import Try
from isthmus.studio.run_page import RunPage
from isthmus.studio.start import PICTURES, Start, StartSearch

_PERIOD = 0.4
"""Seconds between two looks at the home while a page is open."""
_SPACING = 0.8
"""Seconds from an event to the next look. A browser draws the page after each event, which costs it more than the event
costs the server."""
_HEARTBEAT = 15.0
_MOST_STREAMS = 48
_THUMBNAIL = 128
"""Pixels of the longer side."""

Result = TypeVar("Result")


class Pages:
    """The pages of one home."""

    def __init__(self, studio: Studio) -> None:
        self.studio, self.streams = studio, 0
        self._looked = 0.0
        self._lock = threading.Lock()

    def view(self, path: str, given: Mapping[str, str]) -> View:
        """The page of an address."""
        kind, _, rest = path.strip("/").partition("/")
        if not kind:
            number = given.get("page", "1")
            return Home(self.studio, int(number) if re.fullmatch("[0-9]{1,6}", number) else 1, given.get("words", ""))
        pages: dict[str, Callable[[Studio, str], View]] = {
            "runs": RunPage, "problems": ProblemPage, "studies": StudyPage,
        }  # fmt: skip
        if path == "/design":
            return Designer(self.studio.index, given)
        if kind == "start":
            if not rest:
                return Start(self.studio.shelf.newest())
            return StartSearch(self.studio.plans, self.studio.find_opened(rest), given)
        if kind == "runs" and rest.endswith("/inside"):
            return Inside(self.studio, rest.removesuffix("/inside"), given)
        if kind == "runs" and rest.endswith("/try"):
            return Try(self.studio, rest.removesuffix("/try"), given)
        if kind not in pages:
            raise Missing
        return pages[kind](self.studio, rest)

    def look(self) -> tuple[Any, ...]:
        """Look at the home, at most once in a period, and return a stamp of what it holds."""
        with self._lock:
            if time.monotonic() - self._looked > 0.9 * _PERIOD:
                self.studio.index.update()
                self._looked = time.monotonic()
        return self.studio.stamp()

    async def show(self, request: Request) -> Response:
        def make() -> str:
            self.studio.index.update()
            view = self.view(request.scope["path"], dict(request.query_params))
            query = f"?{request.url.query}" if request.url.query else ""
            return render(view, f"/events{request.url.path}{query}" if view.is_live else "")

        return HTMLResponse(await run_in_threadpool(or_missing, make))

    async def send_parts(self, request: Request) -> Response:
        """The parts of a page as JSON, for a form whose page follows its fields."""

        def make() -> dict[str, Any]:
            return as_content(self.view("/" + request.path_params["path"], dict(request.query_params)).parts())

        return JSONResponse(await run_in_threadpool(or_missing, make))

    async def send_events(self, request: Request) -> Response:
        """What changes on a page, as server-sent events."""
        if self.streams >= _MOST_STREAMS:
            raise HTTPException(503, "too many pages are open")
        path = "/" + request.path_params["path"]
        view = await run_in_threadpool(or_missing, lambda: self.view(path, dict(request.query_params)))
        seen = request.query_params.get("seen", "")
        return StreamingResponse(self._follow(view, seen), media_type="text/event-stream")

    async def _follow(self, view: View, seen: str) -> AsyncIterator[str]:
        sent, stamp, spoken = dict[str, str](), None, time.monotonic()

        def update() -> tuple[str, float]:
            began = time.thread_time()
            parts = view.parts()
            if not sent:
                sent.update(read_seen(parts, seen))
            return as_event(parts, sent), time.thread_time() - began

        self.streams += 1
        try:
            yield "retry: 1000\n\n"
            while True:
                began = time.monotonic()
                current = await run_in_threadpool(lambda: (self.look(), view.stamp()))
                event, cost = "", 0.0
                if current != stamp:
                    event, cost = await run_in_threadpool(update)
                    if stamp is None:  # what a server does once, such as importing, will not be done again
                        cost = 0.0
                    stamp = current
                if event or began - spoken > _HEARTBEAT:
                    spoken = began
                    yield event or ": alive\n\n"
                await asyncio.sleep(max(_SPACING if event else _PERIOD, REST * cost))
        except (Missing, UserError):  # what it shows was removed: the browser asks again and is told so
            return
        finally:
            self.streams -= 1

    async def show_samples(self, request: Request) -> Response:
        def find() -> Path:
            run = self.studio.run(request.path_params["name"])
            if run.record is None or SAMPLES not in run.record.files:
                raise Missing
            return verify_file(run.folder, SAMPLES, run.record)

        return FileResponse(await run_in_threadpool(or_missing, find), media_type="image/png")

    async def show_report(self, request: Request) -> Response:
        """The report of a problem's runs, as `isthmus report` writes it."""

        def make() -> str:
            self.studio.index.update()
            view = ProblemPage(self.studio, request.path_params["name"])
            sections, unfinished = gather([run.folder for run in view.runs()])
            answers = [answer.for_page() for answer, _ in reversed(self.studio.index.answers)]
            return page([with_answer(section, answers) for section in sections], unfinished, view.title, "")

        text = await run_in_threadpool(or_missing, make)
        return HTMLResponse(text, headers={"Content-Security-Policy": REPORT_POLICY})

    async def show_picture(self, request: Request) -> Response:
        def make() -> bytes:
            opened, number = self.studio.find_opened(request.path_params["name"]), request.path_params["number"]
            pictures = list_pictures(opened.path, PICTURES) if opened.path and opened.kind == "images" else []
            if number >= len(pictures):
                raise Missing
            image = open_as_shown(pictures[number], pictures[number].name)
            image.thumbnail((_THUMBNAIL, _THUMBNAIL))
            made = io.BytesIO()
            image.save(made, "png")
            return made.getvalue()

        return Response(await run_in_threadpool(or_missing, make), media_type="image/png")

    async def show_figure(self, request: Request) -> Response:
        def find() -> Path:
            return read_picture(self.studio.run(request.path_params["name"]), request.path_params["file"])

        return FileResponse(await run_in_threadpool(or_missing, find), media_type="image/png")

    def routes(self) -> list[Route]:
        shown = {
            "/": self.show,
            "/runs/{name}": self.show,
            "/runs/{name}/samples.png": self.show_samples,
            "/runs/{name}/try": self.show,
            "/runs/{name}/inside": self.show,
            "/runs/{name}/analysis/{file}": self.show_figure,
            "/problems/{name}": self.show,
            "/problems/{name}/report": self.show_report,
            "/studies/{name}": self.show,
            "/start": self.show,
            "/start/{name}": self.show,
            "/start/{name}/pictures/{number:int}": self.show_picture,
            "/design": self.show,
            "/parts/{path:path}": self.send_parts,
            "/events/{path:path}": self.send_events,
        }
        return [Route(path, answer, methods=["GET"]) for path, answer in shown.items()]


def or_missing(make: Callable[[], Result]) -> Result:
    """Turn the errors of a page into answers of HTTP."""
    try:
        return make()
    except Missing:
        raise HTTPException(404, "There is no such page; it may have been removed.") from None
    except UserError as error:
        raise HTTPException(400, str(error)) from None
