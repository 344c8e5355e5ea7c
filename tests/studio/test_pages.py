"""Pages and their events, from records alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from isthmus.core.files import home, write_json, write_sealed
from isthmus.core.record import CONFIG, METRICS, RECORD, RunRecord, read_record, write_record
from isthmus.studies.database import default_url
from isthmus.studies.leases import Leases
from isthmus.studio import group_pages, pages
from isthmus.studio.figures import draw_volume
from isthmus.studio.group_pages import ProblemPage
from isthmus.studio.index import Index, Log
from isthmus.studio.layout import View, as_content
from isthmus.studio.pages import Pages
from isthmus.studio.server import create_app, make_studio
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


def test_the_volume_over_time_has_one_point_for_each_time_and_never_falls() -> None:
    def ended(at: int, width: int, psnr: float, seed: int = 0) -> RunRecord:
        model, times = model_config("hourglass_mlp", (8, width, 1), 0), "2026-01-02T03:04:{:02}+00:00"
        record = write_run(home() / "runs", model, 1e-3, seed, validation=psnr)
        return replace(record, started=times.format(5 if width == 12 else 9), finished=times.format(at))

    drawn = draw_volume([ended(10, 8, 20.0), ended(10, 16, 21.0), ended(20, 12, 20.9), ended(30, 16, 19.0, seed=1)])
    assert drawn
    (trace,) = drawn["data"]
    assert trace["x"] == [0, 5, 15, 25]  # from the earliest beginning, which is not that of the first to end
    assert 0 == trace["y"][0] < trace["y"][1] < trace["y"][2] == trace["y"][3]  # the last seed is worse


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


def test_an_event_follows_a_record() -> None:
    folder = _open_run()
    with serving() as port, following(port, f"/runs/{folder.name}") as events:
        parts = next(events)
        assert "epoch 1 of 12" in parts["head"]["html"]
        assert parts["validation"]["figure"]["data"][0]["mode"] == "markers"  # a line of one point cannot be seen
        _log_line(folder, 2)
        changed = next(events)
        assert "epoch 2 of 12" in changed["head"]["html"]
        assert changed["validation"]["figure"]["data"][0]["x"] == [1, 2]
        assert changed["validation"]["figure"]["data"][0]["mode"] == "lines"
        assert "config" not in changed  # only what differs is sent


def test_an_event_follows_a_record_within_a_second_of_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that counts the server's sleep only; `isthmus bench studio` measures the seconds of a machine."""
    folder, now = _open_run(), [1000.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(pages, "time", SimpleNamespace(monotonic=lambda: now[0], thread_time=time.thread_time))
    monkeypatch.setattr(pages, "asyncio", SimpleNamespace(sleep=sleep))
    served = Pages(make_studio())
    stream = served._follow(served.view(f"/runs/{folder.name}", {}), "")

    async def follow(epoch: int) -> float:
        _log_line(folder, epoch)
        began = now[0]
        assert f"epoch {epoch} of 12" in await anext(stream)
        return now[0] - began

    async def follow_twice() -> tuple[float, float]:
        while not (await anext(stream)).startswith(": alive"):  # nothing happened for a while
            pass
        return await follow(2), await follow(3)

    alone, next_one = asyncio.run(follow_twice())
    assert 0 < alone < 0.5
    assert 0.7 < next_one < 1  # the browser draws the page for each event


def test_what_a_server_does_once_delays_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    folder, slept, processor = _open_run(), list[float](), count()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(pages, "time", SimpleNamespace(monotonic=time.monotonic, thread_time=lambda: next(processor)))
    monkeypatch.setattr(pages, "asyncio", SimpleNamespace(sleep=sleep))
    served = Pages(make_studio())
    stream = served._follow(served.view(f"/runs/{folder.name}", {}), "")

    async def follow() -> None:
        assert "retry" in await anext(stream)
        assert "epoch 1 of 12" in await anext(stream)  # by its clock, this took a second of the processor
        served._looked = 0.0
        _log_line(folder, 2)
        assert "epoch 2 of 12" in await anext(stream)

    asyncio.run(follow())
    assert max(slept) < 1


def test_a_problem_grows_while_it_is_watched() -> None:
    root = home() / "runs"
    first = write_run(root, model_config("hourglass_mlp", (785, 8, 3), 0), 1e-3, 0)
    key = Index(home()).runs[first.id].problem
    with serving() as port, following(port, f"/problems/{key}") as events:
        parts = next(events)
        assert "1 of 1 run ended" in parts["head"]["html"]
        write_run(root, model_config("hourglass_mlp", (785, 64, 6), 0), 1e-3, 0)
        while "figure" not in (parts := parts | next(events))["front"] or len(_drawn(parts)) < 2:
            pass
        assert "2 of 2 runs ended" in parts["head"]["html"]


def _drawn(parts: dict[str, Any]) -> list[float]:
    """The sizes of the networks that the front shows."""
    return [size for trace in parts["front"]["figure"]["data"] for size in trace["x"]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time by which a page rests, in seconds."""
    now = [1000.0]
    monkeypatch.setattr(group_pages, "time", SimpleNamespace(monotonic=lambda: now[0], thread_time=time.thread_time))
    return now


def _strip(html: str) -> str:
    """The text of a page."""
    return re.sub("<[^>]*>", "", html)


def _show(view: View) -> dict[str, Any]:
    return as_content(view.parts())


@pytest.mark.parametrize(("task", "shown"), [("regression", "R² 0.5"), ("of_a_missing_plugin", "MSE 0.4")])
def test_a_run_that_has_not_ended_shows_the_objective_of_its_task(client: TestClient, task: str, shown: str) -> None:
    model = model_config("hourglass_mlp", (785, 8, 3), 0)
    record = write_run(home() / "runs", model, 1e-3, 0, task={"name": task}, source="diabetes", objective="r2")
    folder = home() / "runs" / record.id
    (folder / RECORD).unlink()
    line = {"step": 1, "epoch": 1, "split": "validation", "mse": 0.4, "r2": 0.5, "loss": 0.2, "seconds": 1.0}
    (folder / METRICS).write_text(json.dumps(line) + "\n")
    assert shown in _strip(client.get("/").text)
    assert f"Validation {shown.partition(' ')[0]}" in client.get(f"/runs/{record.id}").text


def test_a_new_line_does_not_list_the_ended_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(home() / "runs", model_config("hourglass_mlp", (785, 64, 6), 0), 1e-3, 0)
    folder = _open_run()
    studio = make_studio()
    view = ProblemPage(studio, studio.index.runs[folder.name].problem)
    assert "PSNR 21.00" not in _strip(_show(view)["stopped"]["html"])
    monkeypatch.setattr(view, "runs", lambda: pytest.fail("all runs were listed"))
    _log_line(folder, 2)
    assert studio.index.update()
    assert "PSNR 21.00" in _strip(_show(view)["stopped"]["html"])


def test_a_run_that_ends_is_counted_at_once_and_drawn_when_the_figures_have_rested(clock: list[float]) -> None:
    root = home() / "runs"
    first = write_run(root, model_config("hourglass_mlp", (785, 64, 6), 0), 1e-3, 0)
    studio = make_studio()
    view = ProblemPage(studio, studio.index.runs[first.id].problem)
    assert len(_drawn(_show(view))) == 1
    write_run(root, model_config("hourglass_mlp", (785, 8, 3), 0), 1e-3, 0)
    assert studio.index.update()
    stamp, parts = view.stamp(), _show(view)
    assert "2 of 2 runs ended" in parts["head"]["html"]
    assert len(_drawn(parts)) == 1
    clock[0] += 1000
    assert view.stamp() != stamp  # so that an open page is sent the new figures
    assert len(_drawn(_show(view))) == 2


def test_a_run_that_could_not_be_read_is_listed_when_it_can() -> None:
    folder = _open_run()
    text = (folder / CONFIG).read_text()
    (folder / CONFIG).write_text("{")
    studio = make_studio()
    assert studio.index.runs[folder.name].damage
    before = studio.index.revision
    _log_line(folder, 2)
    (folder / CONFIG).write_text(text)
    assert studio.index.update()
    assert studio.index.revision > before
    assert not studio.index.runs[folder.name].damage


def test_the_front_stays_when_the_recommended_network_was_trained_on_all_rows(client: TestClient) -> None:
    root = home() / "runs"
    for width in (8, 64):
        write_run(root, model_config("hourglass_mlp", (785, width, 3), 0), 1e-3, 0)
    last = write_run(root, model_config("hourglass_mlp", (785, 64, 3), 0), 1e-3, 0, refit=True, epochs=13)
    write_record(root / last.id, replace(last, fingerprint="all rows"))
    text = client.get("/problems/" + Index(home()).runs[last.id].problem).text
    front = json.loads(_find(r'data-for="front">(.*?)</script>', text))
    assert {trace["name"]: len(trace["x"]) for trace in front["data"]} == {"Hourglass": 2, "Recommended, refitted": 1}
    assert "Best networks" in text


def test_a_network_is_listed_once_with_the_settings_that_trained_it_best(client: TestClient) -> None:
    root, model = home() / "runs", model_config("hourglass_mlp", (785, 8, 3), 0)
    records: list[RunRecord] = []
    for decay, better in ((0.0, 1.0), (0.01, 2.0), (0.1, 0.0)):
        record = write_run(root, model, 1e-3, 0)
        config = record.config | {"train": record.config["train"] | {"weight_decay": decay}}
        metrics = {split: values | {"psnr": values["psnr"] + better} for split, values in record.metrics.items()}
        records.append(replace(record, id=f"{record.id[:-1]}{len(records)}", config=config, metrics=metrics))
        (root / record.id).rename(root / records[-1].id)
        write_json(root / records[-1].id / CONFIG, config)
        write_record(root / records[-1].id, records[-1])
    other = write_run(root, model_config("hourglass_mlp", (785, 64, 6), 0), 1e-3, 0)
    text = client.get("/problems/" + Index(home()).runs[other.id].problem).text
    rows = re.findall("<tr>.*?</tr>", text.partition("Best networks")[2])[1:]
    assert len(rows) == 2
    (row,) = [row for row in rows if "d_h=8 " in row]
    assert "learning rate 0.001, weight decay 0.01, best of 3<" in row
    assert f"/runs/{records[1].id}" in row
    (row,) = [row for row in rows if "d_h=64 " in row]
    assert "best of" not in row


def test_networks_of_one_title_are_told_apart(client: TestClient) -> None:
    model = model_config("hourglass_mlp", (785, 8, 3), 0)
    for each in (model, model | {"activation": "relu"}, model | {"d_h": 64}):
        record = write_run(home() / "runs", each, 1e-3, 0)
    text = client.get("/problems/" + Index(home()).runs[record.id].problem).text
    networks = re.findall("<span class='wrapped'>(hourglass_mlp.*?)</span>", text.partition("Best networks")[2])
    title = "hourglass_mlp d_z=785 d_h=8 depth=3"
    assert sorted(networks) == [
        "hourglass_mlp d_z=785 d_h=64 depth=3", f"{title} activation=gelu", f"{title} activation=relu",
    ]  # fmt: skip


def _open_study(run: str) -> None:
    """A study that needs a run which has not ended."""
    trial = {"number": 0, "state": "open", "reason": "", "model": {}, "cost": 1.0, "runs": []}
    content: dict[str, Any] = {"config": {"name": "far"}, "data": "", "trials": [trial], "keys": [], "needs": [run]}
    write_sealed(home() / "studies" / "far" / "study.json", content)


def test_a_run_with_a_lease_is_at_work(client: TestClient) -> None:
    folder = _open_run()
    _open_study(folder.name)
    leases = Leases(default_url(home() / "studies" / "far"), "far")
    assert leases.claim(folder.name)
    assert f"process {os.getpid()} on" in client.get("/studies/far").text
    leases.release(folder.name)
    text = client.get("/studies/far").text
    assert "1 stopped run" in text
    assert "not known" not in text


@pytest.mark.parametrize("damage", [None, b"no database"])
def test_the_state_of_a_run_is_not_known_when_its_leases_cannot_be_read(
    client: TestClient, damage: bytes | None
) -> None:
    folder = _open_run()
    path = f"/runs/{folder.name}"
    assert "stopped" in client.get(path).text
    _open_study(folder.name)
    if damage:
        (home() / "studies" / "far" / "study.db").write_bytes(damage)
    text = client.get("/studies/far").text
    assert "0 at work, 1 not known" in text
    assert "1 run whose state is not known" in text
    for shown in (text, client.get(path).text, client.get("/").text):
        assert "not known" in shown
        assert "stopped" not in shown.replace("part-stopped", "")
        assert "Resume" not in shown


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
