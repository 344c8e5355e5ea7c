"""The web application: which address shows what, the events of live pages, and the server itself."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from isthmus.core.errors import UserError
from isthmus.core.files import home as home_folder
from isthmus.core.files import make_folder, write_json
from isthmus.core.record import CONFIG, SAMPLES, verify_file
from isthmus.reports import with_answer
from isthmus.reports.markup import read_file as read_report_file
from isthmus.reports.page import colour_style, page
from isthmus.reports.sections import gather
from isthmus.sources.images import open_as_shown
from isthmus.studio import PORT
from isthmus.studio.design import Designer, plan_training
from isthmus.studio.guard import REPORT_POLICY, Guard, is_loopback
from isthmus.studio.index import Index
from isthmus.studio.inside import Inside, read_picture, start_analysis
from isthmus.studio.jobs import Jobs
from isthmus.studio.layout import View, as_content, as_event, frame, read_file, read_seen, render
from isthmus.studio.opened import Shelf, list_pictures
from isthmus.studio.playground import Try
from isthmus.studio.start import PICTURES, Choice, Plan, Plans, Start, StartSearch
from isthmus.studio.views import Home, Missing, Problem, RunPage, Studio, StudyPage, job_path

DEMO = ("bikes", "1m")
"""The data of the demonstration, and the time of its search."""
_PERIOD = 0.4
"""Seconds between two looks at the home while a page is open."""
_REST = 50
"""A page rests so many times as long as its last update took, so that a study keeps the processor."""
_HEARTBEAT = 15.0
_MOST_STREAMS = 48
_LONGEST_FORM = 2**16
_THUMBNAIL = 128
"""Pixels of the longer side."""


Result = TypeVar("Result")


class Application:
    """The pages of one home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.studio = Studio(Index(home), Jobs(home), Shelf(home), Plans())
        self.streams = 0
        self._looked = 0.0
        self._lock = threading.Lock()
        threading.Thread(target=self.studio.index.read_all, daemon=True).start()

    # Pages

    def view(self, path: str, given: Mapping[str, str]) -> View:
        """The page of an address."""
        kind, _, rest = path.strip("/").partition("/")
        if not kind:
            number = given.get("page", "1")
            return Home(self.studio, int(number) if re.fullmatch("[0-9]{1,6}", number) else 1, given.get("words", ""))
        pages: dict[str, Callable[[Studio, str], View]] = {
            "runs": RunPage, "problems": Problem, "studies": StudyPage,
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

        return HTMLResponse(await run_in_threadpool(_or_missing, make))

    async def send_parts(self, request: Request) -> Response:
        """The parts of a page as JSON, for a form whose page follows its fields."""

        def make() -> dict[str, Any]:
            return as_content(self.view("/" + request.path_params["path"], dict(request.query_params)).parts())

        return JSONResponse(await run_in_threadpool(_or_missing, make))

    async def send_events(self, request: Request) -> Response:
        """What changes on a page, as server-sent events."""
        if self.streams >= _MOST_STREAMS:
            raise HTTPException(503, "too many pages are open")
        path = "/" + request.path_params["path"]
        view = await run_in_threadpool(_or_missing, lambda: self.view(path, dict(request.query_params)))
        seen = request.query_params.get("seen", "")
        return StreamingResponse(self._follow(view, seen), media_type="text/event-stream")

    async def _follow(self, view: View, seen: str) -> AsyncIterator[str]:
        sent, stamp, spoken = dict[str, str](), None, time.monotonic()

        def update() -> str:
            parts = view.parts()
            if not sent:
                sent.update(read_seen(parts, seen))
            return as_event(parts, sent)

        self.streams += 1
        try:
            yield "retry: 1000\n\n"
            while True:
                began = time.monotonic()
                current = await run_in_threadpool(self.look)
                event = ""
                if current != stamp:
                    stamp = current
                    event = await run_in_threadpool(update)
                if event or began - spoken > _HEARTBEAT:
                    spoken = began
                    yield event or ": alive\n\n"
                took = time.monotonic() - began if event else 0.0
                await asyncio.sleep(min(max(_PERIOD, _REST * took), 0.9))
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

        return FileResponse(await run_in_threadpool(_or_missing, find), media_type="image/png")

    async def show_report(self, request: Request) -> Response:
        """The report of a problem's runs, as `isthmus report` writes it."""

        def make() -> str:
            self.studio.index.update()
            view = Problem(self.studio, request.path_params["name"])
            sections, unfinished = gather([run.folder for run in view.runs()])
            answers = [answer.for_page() for answer, _ in reversed(self.studio.index.answers)]
            return page([with_answer(section, answers) for section in sections], unfinished, view.title, "")

        text = await run_in_threadpool(_or_missing, make)
        return HTMLResponse(text, headers={"Content-Security-Policy": REPORT_POLICY})

    # Data

    async def open(self, request: Request) -> Response:
        """Open what the user named; a wrong name is said on the same page."""
        given = (await _read_form(request)).get("data", "")
        try:
            opened = await run_in_threadpool(self.studio.shelf.open, given)
        except UserError as error:
            view = Start(self.studio.shelf.newest(), str(error), given)
            return HTMLResponse(await run_in_threadpool(render, view), 400)
        return RedirectResponse(f"/start/{opened.id}", 303)

    async def upload(self, request: Request) -> Response:
        """Store a dropped file; answers with the address of its page."""
        try:
            opened = await self.studio.shelf.receive(request.path_params["name"], request.stream())
        except UserError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"page": f"/start/{opened.id}"})

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

        return Response(await run_in_threadpool(_or_missing, make), media_type="image/png")

    async def start(self, request: Request) -> Response:
        """Start the search that the form describes."""
        given = await _read_form(request)

        def do() -> str:
            choice = Choice.read(self.studio.find_opened(request.path_params["name"]), given)
            plan = self.studio.plans.find(choice).result()
            jobs = self.studio.jobs
            if any(job.problem == plan.problem and jobs.is_running(job) for job in jobs.newest()):
                raise UserError("a search on these data for this task is running already; stop it first")
            start_search(self.studio, choice, plan)
            return f"/problems/{plan.problem}"

        return RedirectResponse(await run_in_threadpool(_or_refused, do), 303)

    async def train(self, request: Request) -> Response:
        """Train the network of the designer."""
        given = await _read_form(request)

        def do() -> str:
            plan = plan_training(self.home, self.studio.index, given)
            if plan.run not in self.studio.index.runs or not self.studio.index.runs[plan.run].has_ended:
                self.studio.jobs.start(plan.words, plan.title, problem=plan.problem, run=plan.run)
                return f"/problems/{plan.problem}"
            return f"/runs/{plan.run}"  # the same run has ended before

        return RedirectResponse(await run_in_threadpool(_or_refused, do), 303)

    async def analyze(self, request: Request) -> Response:
        """Measure something of a run."""
        given = await _read_form(request)

        def do() -> str:
            run = self.studio.run(request.path_params["name"])
            if run.record is None or run.record.status != "finished":
                raise UserError("only a finished run can be measured")
            start_analysis(self.studio, run, given.get("analysis", ""), given.get("against", ""))
            back = given.get("back", run.id)
            return f"/runs/{quote(back)}/inside" + (f"?with={quote(run.id)}" if back != run.id else "")

        return RedirectResponse(await run_in_threadpool(_or_refused, do), 303)

    async def show_figure(self, request: Request) -> Response:
        def find() -> Path:
            return read_picture(self.studio.run(request.path_params["name"]), request.path_params["file"])

        return FileResponse(await run_in_threadpool(_or_missing, find), media_type="image/png")

    # Actions

    async def act_on_job(self, request: Request) -> Response:
        name, is_stop = request.path_params["name"], request.url.path.endswith("/stop")

        def do() -> str:
            jobs = self.studio.jobs
            job = jobs.find(name)
            jobs.stop(name) if is_stop else jobs.resume(name)
            return job_path(job)

        return RedirectResponse(await run_in_threadpool(_or_refused, do), 303)

    async def resume_run(self, request: Request) -> Response:
        def do() -> str:
            run = self.studio.run(request.path_params["name"])
            if run.has_ended or run.damage:
                raise UserError(f"run {run.id} cannot be resumed: it has ended, or its config is damaged")
            title = f"training of {run.id[:8]}"
            self.studio.jobs.start(["train", str(run.folder / CONFIG)], title, problem=run.problem, run=run.id)
            return f"/runs/{quote(run.id)}"

        return RedirectResponse(await run_in_threadpool(_or_refused, do), 303)

    async def resume_study(self, request: Request) -> Response:
        def do() -> str:
            study = self.studio.study(request.path_params["name"])
            folder = make_folder(self.home / "studio" / "configs")
            path = folder / f"{study.name}.json"
            write_json(path, study.content["config"])
            self.studio.jobs.start(["study", str(path)], f"study {study.name}", study=study.name)
            return f"/studies/{quote(study.name)}"

        return RedirectResponse(await run_in_threadpool(_or_refused, do), 303)

    def routes(self) -> list[Route]:
        get, post = ["GET"], ["POST"]
        return [
            Route("/", self.show, methods=get),
            Route("/runs/{name}", self.show, methods=get),
            Route("/runs/{name}/samples.png", self.show_samples, methods=get),
            Route("/runs/{name}/try", self.show, methods=get),
            Route("/runs/{name}/inside", self.show, methods=get),
            Route("/runs/{name}/inside", self.analyze, methods=post),
            Route("/runs/{name}/analysis/{file}", self.show_figure, methods=get),
            Route("/runs/{name}/resume", self.resume_run, methods=post),
            Route("/problems/{name}", self.show, methods=get),
            Route("/problems/{name}/report", self.show_report, methods=get),
            Route("/studies/{name}", self.show, methods=get),
            Route("/studies/{name}/resume", self.resume_study, methods=post),
            Route("/jobs/{name}/stop", self.act_on_job, methods=post),
            Route("/jobs/{name}/resume", self.act_on_job, methods=post),
            Route("/start", self.show, methods=get),
            Route("/open", self.open, methods=post),
            Route("/uploads/{name}", self.upload, methods=["PUT"]),
            Route("/start/{name}", self.show, methods=get),
            Route("/start/{name}", self.start, methods=post),
            Route("/start/{name}/pictures/{number:int}", self.show_picture, methods=get),
            Route("/design", self.show, methods=get),
            Route("/design/train", self.train, methods=post),
            Route("/parts/{path:path}", self.send_parts, methods=get),
            Route("/events/{path:path}", self.send_events, methods=get),
            Route("/static/{name}", _send_static, methods=get),
        ]


def _or_missing(make: Callable[[], Result]) -> Result:
    """Turn the errors of a page into answers of HTTP."""
    try:
        return make()
    except Missing:
        raise HTTPException(404, "There is no such page; it may have been removed.") from None
    except UserError as error:
        raise HTTPException(400, str(error)) from None


def _or_refused(do: Callable[[], Result]) -> Result:
    """Likewise for an action."""
    try:
        return do()
    except Missing:
        raise HTTPException(404, "It is not there any more.") from None
    except UserError as error:
        raise HTTPException(409, str(error)) from None


async def _read_form(request: Request) -> dict[str, str]:
    """The fields of a form without files; of a field that is given twice, the last."""
    body = b""
    async for block in request.stream():
        body += block
        if len(body) > _LONGEST_FORM:
            raise HTTPException(413, "The form is too long.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1000))
    except (ValueError, UnicodeDecodeError):
        raise HTTPException(400, "The form cannot be read.") from None


@cache
def _static_files() -> dict[str, tuple[bytes, str]]:
    from plotly.offline import get_plotlyjs

    script, style = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
    texts = {
        "plotly.js": (get_plotlyjs(), script),
        "drawing.js": (read_report_file("drawing.js"), script),
        "studio.js": (read_file("studio.js"), script),
        "studio.css": (read_report_file("page.css") + colour_style() + read_file("studio.css"), style),
    }
    return {name: (text.encode(), kind) for name, (text, kind) in texts.items()}


async def _send_static(request: Request) -> Response:
    found = (await run_in_threadpool(_static_files)).get(request.path_params["name"])
    if found is None:
        raise HTTPException(404, "There is no such file.")
    content, kind = found
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"Cache-Control": "no-cache", "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers | {"Content-Type": kind})


async def _explain(request: Request, error: Exception) -> Response:
    """A page for a request that cannot be answered."""
    status, text = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "Unexpected error.")
    return HTMLResponse(frame("Not possible", f'<p class="error" role="alert">{escape(text)}</p>'), status)


def create_app(host: str = "127.0.0.1", token: str = "") -> Starlette:
    """The application on ISTHMUS_HOME, for requests to ``host``."""
    if not is_loopback(host) and not token:
        raise UserError(f"{host} is not this machine alone, so that requests need a token")
    application = Application(home_folder().absolute())
    app = Starlette(
        routes=application.routes(),
        middleware=[Middleware(Guard, host=host, token=token)],
        exception_handlers={HTTPException: _explain, 500: _explain},
    )
    app.state.studio = application.studio
    return app


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; a taken port is an error that says what to type."""
    opened = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(128)  # from now on requests wait until the server takes them
    except (OSError, OverflowError, UnicodeError) as error:
        if opened is not None:
            opened.close()
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen on {host}:{port}: {reason}; give another --host or --port") from None
    return opened


def make_server(app: Starlette) -> uvicorn.Server:
    settings = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, lifespan="off",
        timeout_graceful_shutdown=1, limit_concurrency=200, h11_max_incomplete_event_size=2**16, ws="none",
    )  # fmt: skip
    return uvicorn.Server(settings)


def start_demo(studio: Studio) -> str:
    """Start a search on an embedded table, unless it has been answered or is at work; returns its page."""
    data, within = DEMO
    choice = Choice(studio.shelf.open(data), within=within)
    plan = studio.plans.find(choice).result()
    answered = [studio.index.runs.get(answer.run) for answer, _ in studio.index.answers]
    is_known = any(run is not None and run.problem == plan.problem for run in answered)
    if not is_known and not any(
        job.problem == plan.problem and studio.jobs.is_running(job) for job in studio.jobs.newest()
    ):
        start_search(studio, choice, plan)
    return f"/problems/{plan.problem}"


def start_search(studio: Studio, choice: Choice, plan: Plan) -> None:
    studio.jobs.start(choice.words, f"search: {plan.title}", seconds=choice.seconds, problem=plan.problem)


def serve(
    host: str = "127.0.0.1", port: int = PORT, ready: Callable[[str], None] = print, *, demo: bool = False
) -> None:
    """Serve until Ctrl-C. ``ready`` is called with the address to open; with ``demo``, that of a search."""
    token = "" if is_loopback(host) else secrets.token_urlsafe(24)
    make_folder(home_folder())
    with open_socket(host, port) as opened:
        app = create_app(host, token)
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        page = start_demo(app.state.studio) if demo else "/"
        address = f"http://{shown}:{opened.getsockname()[1]}{page}"
        ready(f"{address}?token={token}" if token else address)
        make_server(app).run(sockets=[opened])
