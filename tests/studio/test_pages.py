"""Pages and their events, from records alone."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from isthmus.core.files import home, write_json, write_sealed
from isthmus.core.record import CONFIG, METRICS, RECORD, read_record, write_record
from isthmus.studio.index import Index, Log
from isthmus.studio.server import create_app
from tests.studio.serving import following, serving
from tests.unit.fabricated_runs import model_config, write_run, write_study

HERE = "http://127.0.0.1:8642"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(), base_url=HERE, follow_redirects=False)


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, pattern
    return found[1]


def _open_run(lines: int = 1) -> Path:
    """An unfinished run, as a process leaves it that was killed."""
    record = write_run(home() / "runs", model_config("hourglass_mlp", (785, 8, 3), 0), 1e-3, 0, epochs=12)
    folder = home() / "runs" / record.id
    (folder / RECORD).unlink()
    text = (folder / METRICS).read_text().splitlines(keepends=True)
    (folder / METRICS).write_text("".join(text[: 2 * lines]))
    return folder


def _log_line(folder: Path, epoch: int) -> None:
    line = {"step": 32 * epoch, "epoch": epoch, "split": "validation", "psnr": 19 + epoch, "loss": 0.1, "seconds": 1.0}
    with (folder / METRICS).open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_an_empty_home_offers_a_start(client: TestClient) -> None:
    text = client.get("/").text
    assert "Nothing is at work" in text
    assert "There are no runs yet" in text


def test_home_leads_to_runs_and_problems(client: TestClient) -> None:
    write_study(home() / "runs", seeds=1)
    text = client.get("/").text
    assert "48 runs" in text
    run = client.get(_find('"(/runs/[0-9a-f]+)"', text)).text
    assert "Validation PSNR" in run
    assert "isthmus predict" in run
    problem = client.get(_find('"(/problems/[0-9a-f]+)"', text)).text
    assert "48 of 48 runs ended, 0 at work" in problem
    figures = {name: json.loads(text) for name, text in re.findall(r'data-for="(\w+)">(.*?)</script>', problem)}
    assert {"front", "volume"} <= figures.keys()
    assert len(figures["front"]["data"]) == 4  # two architectures: their fronts, and the other networks
    volumes = figures["volume"]["data"][0]["y"]
    assert volumes == pytest.approx(sorted(volumes))


def test_runs_are_found_by_words_and_shown_in_pages(client: TestClient) -> None:
    for seed in range(60):
        write_run(home() / "runs", model_config("hourglass_mlp", (8 + seed, 8, 1), 0), 1e-3, 0)
    first, second = client.get("/").text, client.get("/?page=2").text
    runs = [set(re.findall('href="/runs/([0-9a-f]+)"', text)) for text in (first, second)]
    assert (len(runs[0]), len(runs[1]), len(runs[0] & runs[1])) == (50, 10, 0)
    assert "1 run<" in client.get("/?words=d_z%3D33+denoise").text
    assert "No run has these words" in client.get("/?words=nonsense").text
    for page in ("0", "-3", "x", "99999999999"):
        assert client.get(f"/?page={page}").status_code == 200


def test_hostile_names_stay_text(client: TestClient) -> None:
    settings = {"name": "table", "path": f"/tmp/{HOSTILE}.csv", "targets": [HOSTILE, '"><img src=x>']}
    model = model_config("hourglass_mlp", (785, 8, 3), 0) | {"name": HOSTILE}
    for seed in range(2):
        record = write_run(home() / "runs", model, 1e-3, seed, settings=settings, objective=HOSTILE, command=HOSTILE)
    failed = write_run(home() / "runs", model, 1e-2, 0, settings=settings, status="failed")
    folder = home() / "runs" / failed.id
    write_record(folder, type(failed)(**{**vars(failed), "reason": HOSTILE}))
    text = client.get("/").text
    for path in (
        "/",
        f"/?words={HOSTILE}",
        f"/runs/{record.id}",
        f"/runs/{failed.id}",
        _find('"(/problems/[0-9a-f]+)"', text),
    ):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert "<script>alert" not in answer.text, path
        assert "<img src=x" not in answer.text, path
        assert "alert(1)" in answer.text, path


@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        "[]",
        '{"source": 1}',
        '{"source": {}, "task": {}, "model": {}}',
        "{",
        '{"source":{"name":"a"},"task":{"name":"b"},"model":{"name":["x"]}}',
    ],
)
@pytest.mark.parametrize("name", [CONFIG, RECORD])
def test_damaged_files_are_shown_as_such(client: TestClient, name: str, content: str) -> None:
    folder = home() / "runs" / "abc"
    folder.mkdir(parents=True)
    (folder / name).write_text(content)
    assert "damaged" in client.get("/").text
    assert "Damage" in client.get("/runs/abc").text


def test_a_log_is_read_from_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / METRICS
    log = Log(path)
    assert not log.look()
    path.write_text('{"step": 1, "epoch": 1, "split": "train", "loss": 1.0}\n{"step": 2, "ep')
    assert log.look()
    assert len(log.lines) == 1
    assert not log.look()
    with path.open("a") as file:
        file.write('och": 2, "split": "train", "loss": 0.5}\n')
    assert log.look()
    assert [line["step"] for line in log.lines] == [1, 2]
    path.unlink()  # a resumed run writes a new log
    path.write_text('{"step": 1, "epoch": 1, "split": "train", "loss": 1.0}\n')
    assert log.look()
    assert len(log.lines) == 1


def test_the_index_sees_what_is_new_and_what_is_gone() -> None:
    index = Index(home())
    assert not index.update()
    folder = _open_run()
    assert index.update()
    run = index.runs[folder.name]
    assert (run.has_ended, len(run.log.lines)) == (False, 2)
    assert not index.update()
    _log_line(folder, 2)
    assert index.update()
    assert run.log.last("validation") == run.log.lines[-1]
    whole = write_run(home() / "runs", model_config("hourglass_mlp", (785, 8, 3), 0), 1e-3, 0, epochs=12)
    assert whole.id == run.id
    assert index.update()
    assert run.record == read_record(folder)
    assert run.problem
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert index.update()
    assert not index.runs


def test_an_event_follows_a_record_within_a_second() -> None:
    folder = _open_run()
    with serving() as port, following(port, f"/runs/{folder.name}") as events:
        assert "epoch 1 of 12" in next(events)["head"]["html"]
        _log_line(folder, 2)
        began = time.monotonic()
        changed = next(events)
        assert time.monotonic() - began < 1.0
        assert "epoch 2 of 12" in changed["head"]["html"]
        assert changed["validation"]["figure"]["data"][0]["x"] == [1, 2]
        assert "config" not in changed  # only what differs is sent


def test_a_problem_grows_while_it_is_watched() -> None:
    root = home() / "runs"
    first = write_run(root, model_config("hourglass_mlp", (785, 8, 3), 0), 1e-3, 0)
    key = Index(home()).runs[first.id].problem
    with serving() as port, following(port, f"/problems/{key}") as events:
        parts = next(events)
        assert "1 of 1 run ended" in parts["head"]["html"]
        write_run(root, model_config("hourglass_mlp", (785, 64, 6), 0), 1e-3, 0)
        while "figure" not in (changed := next(events)).get("front", {}):
            pass
        assert sum(len(trace["x"]) for trace in changed["front"]["figure"]["data"]) == 2
        assert "2 of 2 runs ended" in changed["head"]["html"]


def test_a_study_is_shown_from_its_summary(client: TestClient) -> None:
    records = [
        write_run(home() / "runs", model_config("hourglass_mlp", (785, width, 3), 0), 1e-3, 0) for width in (8, 32)
    ]
    trials = [
        {"number": number, "state": "finished", "reason": "", "quality": 20.0, "rungs": {}, "failures": {},
         "model": {}, "cost": 1.0, "runs": [record.id]}
        for number, record in enumerate(records)
    ]  # fmt: skip
    content: dict[str, Any] = {"config": {"name": "shapes"}, "data": "", "trials": trials, "keys": [], "needs": []}
    write_sealed(home() / "studies" / "shapes" / "study.json", content)
    assert "2 of 2 candidates" in client.get("/").text
    page = client.get("/studies/shapes").text
    assert "Candidates: 2 finished." in page
    assert "2 of 2 runs ended" in page
    (home() / "studies" / "shapes" / "study.json").write_text("{}")
    assert client.get("/studies/shapes").status_code == 404
    write_json(home() / "studies" / "shapes" / "study.json", [])
    assert client.get("/").status_code == 200


def test_the_report_of_a_problem_may_only_draw(client: TestClient) -> None:
    record = write_run(home() / "runs", model_config("hourglass_mlp", (785, 8, 3), 0), 1e-3, 0, samples=True)
    key = Index(home()).runs[record.id].problem
    answer = client.get(f"/problems/{key}/report")
    assert answer.status_code == 200
    assert answer.headers["Content-Security-Policy"].startswith("sandbox allow-scripts; default-src 'none'")
    picture = client.get(f"/runs/{record.id}/samples.png")
    assert picture.headers["Content-Type"] == "image/png"
    (home() / "runs" / record.id / "samples.png").write_bytes(b"other")
    assert client.get(f"/runs/{record.id}/samples.png").status_code == 400
