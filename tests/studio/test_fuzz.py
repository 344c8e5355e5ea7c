"""Random requests to every address: no unexpected error, and nothing is written outside the home.

`ISTHMUS_REQUESTS=2000 pytest tests/studio/test_fuzz.py` makes more of them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from isthmus.core.files import home, read_json, write_json, write_sealed
from isthmus.core.record import RECORD
from isthmus.studio.index import Index
from isthmus.studio.jobs import Jobs
from isthmus.studio.layout import View, as_event, read_seen
from isthmus.studio.opened import Shelf
from isthmus.studio.pages import Pages
from isthmus.studio.server import create_app, list_routes
from tests.command_line import train
from tests.unit.fabricated_runs import model_config, write_run

HERE = "http://127.0.0.1:8642"
NASTY = (
    "",
    "..",
    "../..",
    "%00",
    "\0",
    "<script>",
    "a" * 300,
    "/etc/passwd",
    "~",
    "💥",
    "-1",
    "1e999",
    "NaN",
    "0x10",
    "٣",
)
TEXT = st.sampled_from(NASTY) | st.text(max_size=40)
FIELDS = st.dictionaries(
    st.sampled_from(
        ["page", "words", "seen", "data", "target", "task", "budget", "within", "model", "problem", "d_z", "d_h",
         "depth", "pathway", "norm", "fit", "other", "with", "analysis", "against", "back", "beside", "epochs",
         "batch_size", "sample", "noise", "pixels", "c0", "c1", "vary", "row", "puzzle", "iterations", "shown", "token"]
    ) | TEXT,
    TEXT | st.sampled_from(["hourglass_mlp", "8", "64", "50k", "2m", "regression", "bikes", "cka", "untrained"]),
    max_size=6,
)  # fmt: skip
EXAMPLES = int(os.environ.get("ISTHMUS_REQUESTS", "100"))


def _everything(folder: Path) -> dict[str, float]:
    return {str(path): path.stat().st_mtime for path in folder.rglob("*") if not path.is_relative_to(home())}


def _fill(folder: Path) -> None:
    """Trained runs of two panels, one that has not ended, a study, an opened source and a job."""
    train(folder)
    table = {"name": "sudoku", "givens": [70], "train": 8, "validation": 4, "test": 4}
    train(folder, source=table, task={"name": "sudoku"}, model={"name": "hyper_set", "d": 8, "num_heads": 2})
    unfinished = write_run(home() / "runs", model_config("hourglass_mlp", (70, 8, 2), 0), 1e-3, 0)
    (home() / "runs" / unfinished.id / RECORD).unlink()
    content = {"config": {"name": "shapes"}, "data": "", "trials": [], "keys": [], "needs": []}
    write_sealed(home() / "studies" / "shapes" / "study.json", content)
    opened, job = Shelf(home()).open("bikes"), Jobs(home()).start(["models"], "models")
    runs = Index(home()).runs
    write_json(home() / "names.json", [*runs, *(run.problem for run in runs.values()), "shapes", opened.id, job.id])


async def _follow_once(pages: Pages, view: View, seen: str) -> AsyncIterator[str]:
    """The first event of a stream."""
    parts = view.parts()
    yield as_event(parts, read_seen(parts, seen))


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_request_is_an_unexpected_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Any) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")  # whatever is started ends at once
    if not (home() / "runs").exists():
        _fill(tmp_path)
    names = read_json(home() / "names.json")  # the same for every request
    before = _everything(tmp_path)
    app = create_app()
    client = TestClient(app, base_url=HERE, follow_redirects=False)
    route = data.draw(st.sampled_from(list_routes(app.state.studio)))
    monkeypatch.setattr(Pages, "_follow", _follow_once)  # streams have no end
    known = [f"{kind}/{name}" for kind in ("runs", "problems", "studies", "start") for name in names]
    inner = data.draw(st.sampled_from(["", "design", "start", "runs/x/try", *known]) | TEXT)
    path = route.path.replace("{path:path}", quote(inner))
    for name in ("{name}", "{file}", "{number:int}"):
        path = path.replace(name, quote(data.draw(st.sampled_from(names) | TEXT), safe=""))
    fields = data.draw(FIELDS)
    query = "&".join(f"{quote(name)}={quote(value)}" for name, value in fields.items())
    method = data.draw(st.sampled_from(sorted(route.methods or {"GET"})))
    body = data.draw(st.sampled_from([query.encode()]) | st.binary(max_size=200)) if method in ("POST", "PUT") else None
    answer = client.request(method, f"{path}?{query}", content=body, headers={"Origin": HERE})
    jobs = app.state.studio.jobs
    while any(jobs.is_running(job) for job in jobs.newest()):
        time.sleep(0.01)
    assert answer.status_code < 500, (method, path, fields, answer.text)
    is_report = route.path.endswith("/report")  # it has its scripts within itself, and a policy of its own
    if "html" in answer.headers.get("content-type", "") and not is_report:
        assert "<script>" not in answer.text.replace('<script type="application/json"', "")
    assert _everything(tmp_path) == before
