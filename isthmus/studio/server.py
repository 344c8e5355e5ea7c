"""The server: the application on a home, its files, and the socket on which it listens."""

from __future__ import annotations

import hashlib
import secrets
import socket
import threading
from collections.abc import Callable
from functools import cache
from html import escape

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from isthmus.core.errors import UserError
from isthmus.core.files import home as home_folder
from isthmus.core.files import make_folder
from isthmus.reports.markup import read_file as read_report_file
from isthmus.reports.page import colour_style
from isthmus.studio import PORT
from isthmus.studio.actions import Actions, start_search
from isthmus.studio.contents import Studio
from isthmus.studio.guard import Guard, is_loopback
from isthmus.studio.index import Index
from isthmus.studio.jobs import Jobs
from isthmus.studio.layout import frame, read_file
from isthmus.studio.opened import Shelf
from isthmus.studio.pages import Pages
from isthmus.studio.start import Choice, Plans

DEMO = ("bikes", "1m")
"""The data of the demonstration, and the time of its search."""


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
    title = "Not found" if status == 404 else "Not possible"
    text = "There is no such page." if text == "Not Found" else text
    back = '<p><a class="act" href="/">Home</a></p>'
    return HTMLResponse(frame(title, f'<p class="error lead" role="alert">{escape(text)}</p>{back}'), status)


def make_studio() -> Studio:
    """What the pages of ISTHMUS_HOME read; its records are read in the background."""
    home = home_folder().absolute()
    studio = Studio(Index(home), Jobs(home), Shelf(home), Plans())
    threading.Thread(target=studio.index.read_all, daemon=True).start()
    return studio


def list_routes(studio: Studio) -> list[Route]:
    return [
        *Pages(studio).routes(),
        *Actions(studio).routes(),
        Route("/static/{name}", _send_static, methods=["GET"]),
    ]


def create_app(host: str = "127.0.0.1", token: str = "") -> Starlette:
    """The application on ISTHMUS_HOME, for requests to ``host``."""
    if not is_loopback(host) and not token:
        raise UserError(f"{host} is not this machine alone, so that requests need a token")
    studio = make_studio()
    app = Starlette(
        routes=list_routes(studio),
        middleware=[Middleware(Guard, host=host, token=token)],
        exception_handlers={HTTPException: _explain, 500: _explain},
    )
    app.state.studio = studio
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
