"""What POST and PUT do: open data, start, pause and resume commands. Each answers with the page to see next."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl, quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from isthmus.core.errors import UserError
from isthmus.core.files import make_folder, write_json
from isthmus.core.record import CONFIG
from isthmus.studio.commands import pause_command
from isthmus.studio.contents import Missing, Studio
from isthmus.studio.designer import plan_training
from isthmus.studio.inside import start_analysis
from isthmus.studio.layout import render
from isthmus.studio.start import Choice, Plan, Start
from isthmus.studio.tables import job_path

_LONGEST_FORM = 2**16
Form = Mapping[str, str]


class Actions:
    """What a person may start and stop in one home."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio

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

    def start(self, name: str, given: Form) -> str:
        """Start the search that the form describes."""
        choice = Choice.read(self.studio.find_opened(name), given)
        plan = self.studio.plans.find(choice).result()
        jobs = self.studio.jobs
        if any(job.problem == plan.problem and jobs.is_running(job) for job in jobs.newest()):
            raise UserError("a search on these data for this task is running already; pause it first")
        start_search(self.studio, choice, plan)
        return f"/problems/{plan.problem}"

    def train(self, _name: str, given: Form) -> str:
        """Train the network of the designer."""
        plan, index = plan_training(self.studio.index, given), self.studio.index
        if plan.run in index.runs and index.runs[plan.run].has_ended:
            return f"/runs/{plan.run}"
        self.studio.jobs.start(plan.words, plan.title, problem=plan.problem, run=plan.run)
        return f"/problems/{plan.problem}"

    def analyze(self, name: str, given: Form) -> str:
        """Measure something of a run."""
        run = self.studio.run(name)
        if run.record is None or run.record.status != "finished":
            raise UserError("only a finished run can be measured")
        start_analysis(self.studio, run, given.get("analysis", ""), given.get("against", ""))
        back, beside = given.get("back", run.id), given.get("beside", "")
        return f"/runs/{quote(back)}/inside" + (f"?with={quote(beside)}" if beside else "")

    def stop_job(self, name: str, _given: Form) -> str:
        job = self.studio.jobs.find(name)
        self.studio.jobs.stop(name)
        return job_path(job)

    def resume_job(self, name: str, _given: Form) -> str:
        return job_path(self.studio.jobs.resume(name))

    def pause_command(self, _name: str, given: Form) -> str:
        """Pause a command that was started in a terminal."""
        pause_command(self.studio.index.open_runs(), given.get("pid", ""))
        page = given.get("page", "/")
        return quote(page) if re.fullmatch(r"/(runs|problems|studies)/[^/\\]+", page) else "/"

    def resume_run(self, name: str, _given: Form) -> str:
        run = self.studio.run(name)
        if run.has_ended or run.damage:
            raise UserError(f"run {run.id} cannot be resumed: it has ended, or its config is damaged")
        title = f"training of {run.id[:8]}"
        self.studio.jobs.start(["train", str(run.folder / CONFIG)], title, problem=run.problem, run=run.id)
        return f"/runs/{quote(run.id)}"

    def resume_study(self, name: str, _given: Form) -> str:
        study = self.studio.study(name)
        path = make_folder(self.studio.index.home / "studio" / "configs") / f"{study.name}.json"
        write_json(path, study.content["config"])
        self.studio.jobs.start(["study", str(path)], f"study {study.name}", study=study.name)
        return f"/studies/{quote(study.name)}"

    def routes(self) -> list[Route]:
        done = {
            "/runs/{name}/inside": self.analyze,
            "/runs/{name}/resume": self.resume_run,
            "/studies/{name}/resume": self.resume_study,
            "/commands/pause": self.pause_command,
            "/jobs/{name}/stop": self.stop_job,
            "/jobs/{name}/resume": self.resume_job,
            "/start/{name}": self.start,
            "/design/train": self.train,
        }
        return [
            Route("/open", self.open, methods=["POST"]),
            Route("/uploads/{name}", self.upload, methods=["PUT"]),
            *(Route(path, _redirect_after(do), methods=["POST"]) for path, do in done.items()),
        ]


def _redirect_after(do: Callable[[str, Form], str]) -> Callable[[Request], Awaitable[Response]]:
    """An answer that does something with the fields of a form, and then leads to a page."""

    async def answer(request: Request) -> Response:
        given, name = await _read_form(request), request.path_params.get("name", "")
        try:
            return RedirectResponse(await run_in_threadpool(do, name, given), 303)
        except Missing:
            raise HTTPException(404, "It is not there any more.") from None
        except UserError as error:
            raise HTTPException(409, str(error)) from None

    return answer


def start_search(studio: Studio, choice: Choice, plan: Plan) -> None:
    studio.jobs.start(choice.words, f"search: {plan.title}", seconds=choice.seconds, problem=plan.problem)


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
