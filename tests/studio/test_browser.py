"""The studio in a real Chromium: live pages, a search from a dropped file, sliders, a Sudoku, keyboard and axe-core."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from itertools import groupby, pairwise, product
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from isthmus.core.files import home, write_sealed
from isthmus.core.record import LOCK, METRICS, RECORD
from isthmus.studio import panel
from isthmus.studio.index import Index
from isthmus.studio.opened import Shelf
from tests.browser import BROWSER
from tests.command_line import call, train
from tests.studio.serving import serving
from tests.unit.fabricated_runs import model_config, write_run, write_study
from tests.unit.token_runs import TOKENIZER, masked

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page on which no error, no dialog and no request to another host may happen."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(60_000)
    opened, wrong = context.new_page(), list[str]()
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("dialog", lambda dialog: wrong.append(dialog.message))
    opened.on("console", lambda line: wrong.append(line.text) if "Content Security Policy" in line.text else None)
    opened.on(
        "request",
        lambda request: (
            None if re.match(r"(http://127\.0\.0\.1:|data:|blob:)", request.url) else wrong.append(request.url)
        ),
    )
    yield opened
    context.close()
    assert not wrong


def _open_run() -> Path:
    record = write_run(home() / "runs", model_config("hourglass_mlp", (785, 8, 3), 0), 1e-3, 0, epochs=12)
    folder = home() / "runs" / record.id
    (folder / RECORD).unlink()
    lines = (folder / METRICS).read_text().splitlines(keepends=True)
    (folder / METRICS).write_text("".join(lines[:2]))
    return folder


def _log_line(folder: Path, epoch: int) -> None:
    line = {"step": 32 * epoch, "epoch": epoch, "split": "validation", "psnr": 19 + epoch, "loss": 0.1, "seconds": 1.0}
    with (folder / METRICS).open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_two_tabs_follow_a_run_also_after_the_server_was_ended(page: Any) -> None:
    folder = _open_run()
    with serving() as port:
        address = f"http://127.0.0.1:{port}/runs/{folder.name}"
        other = page.context.new_page()
        for tab in (page, other):
            tab.goto(address)
            tab.get_by_text("epoch 1 of 12").first.wait_for()
        page.bring_to_front()
        _log_line(folder, 2)
        page.get_by_text("epoch 2 of 12").first.wait_for()
        other.get_by_text("epoch 2 of 12").first.wait_for()
        playwright.expect(page.locator("[data-figure=validation] .trace")).to_have_count(1)
    page.get_by_text("The studio does not answer").wait_for()
    _log_line(folder, 3)
    with serving(port):
        page.get_by_text("epoch 3 of 12").first.wait_for()
        playwright.expect(page.locator("#connection")).to_have_text("")


@pytest.mark.parametrize("place", ["runs", "problems"])
def test_events_rest_however_often_lines_are_written(page: Any, place: str) -> None:
    """Each drawing of a page takes a browser more time than what has changed in it."""
    folder = _open_run()
    index = Index(home())
    name = {"runs": folder.name, "problems": index.runs[folder.name].problem}[place]
    events = "Number(document.body.dataset.events || 0)"
    with FileLock(folder / LOCK), serving() as port:  # a process is training it
        page.goto(f"http://127.0.0.1:{port}/{place}/{name}")
        page.locator({"runs": "[data-figure=validation] .trace", "problems": ".ticking"}[place]).wait_for()
        before, began, epoch = page.evaluate(events), time.monotonic(), 1
        while page.evaluate(events) < before + 5:
            _log_line(folder, epoch := epoch + 1)
            page.wait_for_timeout(200)
        # A slow machine has fewer events; one may have been on its way already.
        assert time.monotonic() - began > 3 * 0.8
        page.get_by_text(f"epoch {epoch} of 12").first.wait_for()  # the last line is shown too
        if place == "runs":
            page.wait_for_function(f"document.querySelector('[data-figure=validation]').data[0].x.length === {epoch}")


def test_hostile_names_stay_text(page: Any) -> None:
    settings = {"name": "table", "path": f"/tmp/{HOSTILE}.csv", "targets": [HOSTILE]}
    model = model_config("hourglass_mlp", (785, 8, 3), 0) | {"name": HOSTILE}
    records = [write_run(home() / "runs", model, 1e-3, seed, settings=settings, objective=HOSTILE) for seed in (0, 1)]
    with serving() as port:
        for path in ("/", f"/runs/{records[0].id}"):
            page.goto(f"http://127.0.0.1:{port}{path}")
            page.wait_for_timeout(500)
            assert page.locator("img[src=x]").count() == 0
            assert page.get_by_text("alert(1)").count() > 0
        page.goto(f"http://127.0.0.1:{port}/")
        page.locator('a[href^="/problems/"]').first.click()
        page.locator("[data-figure=front] .main-svg").first.wait_for()
        assert page.locator("img[src=x]").count() == 0


@pytest.mark.timeout(400)
def test_a_dropped_file_becomes_a_search_whose_front_grows(page: Any, tmp_path: Path) -> None:
    table = tmp_path / "houses.csv"
    rows = [f"{x},{x % 7},{3 * x + x % 7 + (x * 37 % 11) / 3}" for x in range(300)]
    table.write_text("\n".join(["area,rooms,price", *rows]))
    with serving() as port:
        page.goto(f"http://127.0.0.1:{port}/start")
        transfer = page.evaluate_handle(
            "(text) => { const all = new DataTransfer(); all.items.add(new File([text], 'houses.csv')); return all; }",
            table.read_text(),
        )
        page.dispatch_event("[data-drop]", "drop", {"dataTransfer": transfer})
        page.get_by_text("300 rows, 3 columns").wait_for()
        page.get_by_text("regression of price on houses.csv").first.wait_for()  # the plan
        page.locator("input[name=within]").fill("60s")
        page.locator("input[name=budget]").fill("2k")
        page.get_by_role("button", name="Start the search").click()
        points, seen = page.locator("[data-figure=front] .point"), set[tuple[str, ...]]()
        places = "(all) => all.map((point) => point.getAttribute('transform'))"
        while not page.get_by_text("Open the recommended run").count():
            seen.add(tuple(points.evaluate_all(places)))
            page.wait_for_timeout(300)
        assert seen - {()}  # the front was there while the search went on
        ends = time.monotonic() + 60
        while len(seen - {()}) < 2:  # and has grown since
            assert time.monotonic() < ends
            page.wait_for_timeout(300)
            seen.add(tuple(points.evaluate_all(places)))
        levels = page.locator("h1, h2, h3, h4").evaluate_all(
            "(all) => all.filter((each) => each.checkVisibility()).map((each) => Number(each.tagName[1]))"
        )
        assert 3 in levels
        assert all(after <= before + 1 for before, after in pairwise(levels)), levels
        page.get_by_text("Open the recommended run").click()
        page.get_by_role("link", name="Try it").click()
        page.locator(".figures b").first.wait_for()
        before = page.locator(".figures b").first.inner_text()
        page.locator("input[name=c0]").fill("7")
        playwright.expect(page.locator(".figures b").first).not_to_have_text(before)


def test_a_slider_changes_the_parameter_count(page: Any) -> None:
    with serving() as port:
        page.goto(f"http://127.0.0.1:{port}/design?model=hourglass_mlp&d_z=64&d_h=16&depth=2")
        count = page.locator("[data-number=parameters]").first
        assert count.inner_text() == f"{64 * 74 + 2 * 2 * 64 * 16:,}"
        slider = page.locator("[data-for-field=field-depth]")
        slider.focus()
        slider.press("ArrowRight")  # with the keyboard
        playwright.expect(count).to_have_text(f"{64 * 74 + 3 * 2 * 64 * 16:,}")
        box = slider.bounding_box()
        page.mouse.move(box["x"] + 5, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2, steps=5)
        page.mouse.up()
        playwright.expect(count).to_have_text(f"{64 * 74 + 16 * 2 * 64 * 16:,}")
        assert "depth=16" in page.url
        drawing = page.locator("svg.network").bounding_box()
        assert box["x"] + box["width"] < drawing["x"]  # beside the sliders
        assert drawing["y"] + drawing["height"] < 1000  # and in the same window
        page.get_by_text("Keep this design").click()
        assert page.locator("svg.network").count() == 2
        page.get_by_label("At most so many parameters").fill("3k")
        page.get_by_role("button", name="Fit to this budget").click()
        page.wait_for_url(re.compile("fit=3k"))
        assert 2500 < int(count.inner_text().replace(",", "")) <= 3000
        assert page.get_by_label("depth", exact=True).input_value() == "16"


def test_a_sudoku_is_played(page: Any, tmp_path: Path) -> None:
    panel.load_run.cache_clear()
    panel.read_samples.cache_clear()
    source = {"name": "sudoku", "train": 30, "validation": 10, "test": 10}
    model = {"name": "hyper_set", "d": 16, "num_heads": 2, "iterations": 3}
    run = train(tmp_path, source=source, task={"name": "sudoku"}, model=model)["id"]
    with serving() as port:
        page.goto(f"http://127.0.0.1:{port}/runs/{run}/try")
        page.get_by_text("After iteration 3 of 3").wait_for()
        page.evaluate(
            """() => {
                window.shown = [];
                const note = () => window.shown.push(document.body.innerText.match(/After iteration (\\d)/)?.[1]);
                new MutationObserver(note).observe(document.body, { childList: true, subtree: true });
            }"""
        )
        play = page.get_by_role("button", name="Play the iterations")
        play.click()
        playwright.expect(play).to_be_disabled()
        playwright.expect(play).to_be_enabled(timeout=60_000)
        shown = [number for number, _ in groupby(page.evaluate("window.shown"))]
        assert shown == ["0", "1", "2", "3"]
        for place in (0, 1):
            page.locator(f"input[name=c{place}]").fill("5")
        playwright.expect(page.locator(".solved td.given.wrong").first).to_be_visible()
        wrong = page.locator(".solved td.wrong").first  # the board may be replaced once more
        playwright.expect(wrong).to_have_css("background-color", "rgb(198, 40, 40)")
        page.locator("[data-figure=energy] .trace").first.wait_for()


def test_the_image_of_a_prediction_can_be_seen(page: Any, tmp_path: Path) -> None:
    panel.load_run.cache_clear()
    panel.read_samples.cache_clear()
    run = train(tmp_path, task={"name": "classification"})["id"]
    with serving() as port:
        page.goto(f"http://127.0.0.1:{port}/runs/{run}/try")
        image = page.locator("#part-answer img").bounding_box()
        assert image["width"] == image["height"] > 150
        playwright.expect(page.get_by_role("button", name="Update")).to_have_count(0)  # the page follows its form
        page.goto(f"http://127.0.0.1:{port}/")
        table = page.locator("#part-runs .scroll")
        assert table.evaluate("(each) => each.scrollWidth <= each.clientWidth")


def test_parts_of_an_image_are_painted(page: Any, tmp_path: Path) -> None:
    panel.load_run.cache_clear()
    panel.read_samples.cache_clear()
    run = train(tmp_path, **masked(train(tmp_path, **TOKENIZER)["id"]))["id"]
    with serving() as port:
        page.goto(f"http://127.0.0.1:{port}/runs/{run}/try")
        mask, image = page.locator("[data-mask]"), "(each) => getComputedStyle(each).backgroundImage"
        before = mask.evaluate(image)
        assert before.startswith('url("data:image/png')
        page.locator("input[name=sample][value='3']").check()
        assert mask.evaluate(image) != before
        page.get_by_text("of 8 hidden tokens").wait_for()
        first, second = (mask.locator("input").nth(place).bounding_box() for place in (0, 1))
        page.mouse.move(first["x"] + 5, first["y"] + 5)
        page.mouse.down()
        page.mouse.move(second["x"] + 5, second["y"] + 5, steps=4)
        page.mouse.up()
        page.get_by_text("of 10 hidden tokens").wait_for()


def test_an_image_is_drawn_and_restored(page: Any, tmp_path: Path) -> None:
    panel.load_run.cache_clear()
    panel.read_samples.cache_clear()
    run = train(tmp_path)["id"]
    with serving() as port:
        page.goto(f"http://127.0.0.1:{port}/runs/{run}/try")
        before = page.locator(".restored img").first.get_attribute("src")
        box = page.locator("canvas").bounding_box()
        page.mouse.move(box["x"] + 20, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + 120, box["y"] + 120, steps=8)
        page.mouse.up()
        playwright.expect(page.locator(".restored img").first).not_to_have_attribute("src", before)
        page.locator("input[name=sample][value='3']").check()
        playwright.expect(page.locator("input[name=pixels]")).to_have_value("")


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, from npm."""
    folder = tmp_path_factory.mktemp("axe")
    if shutil.which("npm") is None:
        pytest.skip("there is no npm on this machine")
    packed = subprocess.run(["npm", "pack", "axe-core@4"], cwd=folder, capture_output=True, text=True, check=False)
    if packed.returncode:
        pytest.skip("npm does not give axe-core")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        file = archive.extractfile("package/axe.min.js")
        assert file
        return file.read().decode()


def _tab_to(page: Any, wanted: str) -> None:
    """Press Tab until the wanted element has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("(wanted) => document.activeElement.matches(wanted)", wanted):
            return
    pytest.fail(f"Tab does not reach {wanted}")


@pytest.mark.timeout(400)
def test_a_search_is_started_and_paused_with_the_keyboard_alone(page: Any) -> None:
    with serving() as port:
        page.goto(f"http://127.0.0.1:{port}/")
        _tab_to(page, "main a[href='/start']")
        page.keyboard.press("Enter")
        page.locator("input[name=data]").wait_for()
        _tab_to(page, "input[name=data]")
        page.keyboard.type("bikes")
        page.keyboard.press("Enter")
        page.get_by_text("1,200 rows").first.wait_for()
        _tab_to(page, "input[name=within]")
        page.keyboard.type("100s")  # Tab has selected what was there
        _tab_to(page, "button[formmethod=post]")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Pause").wait_for()
        assert "--within=100s" in page.locator(".command code").first.inner_text()
        _tab_to(page, "button[id$='/stop']")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Resume").wait_for()


def _write_pages(folder: Path) -> tuple[list[str], Path]:
    """Something to see on every kind of page; returns the addresses, and the run that has not ended."""
    record = write_run(home() / "runs", model_config("hourglass_mlp", (785, 64, 6), 1), 1e-3, 1)
    opened = _open_run()
    trials = [
        {"number": 0, "state": "finished", "reason": "", "model": {}, "cost": 1.0, "runs": [record.id]},
        {"number": 1, "state": "open", "reason": "", "model": {}, "cost": 1.0, "runs": []},
    ]
    content = {"config": {"name": "shapes"}, "data": "", "trials": trials, "keys": [], "needs": [opened.name]}
    write_sealed(home() / "studies" / "shapes" / "study.json", content)
    write_study(home() / "runs", seeds=1)
    trained, beside = (train(folder, f"seed={seed}")["id"] for seed in (0, 1))
    source = {"name": "sudoku", "train": 30, "validation": 10, "test": 10}
    model = {"name": "hyper_set", "d": 16, "num_heads": 2, "iterations": 3}
    runs = [
        trained,
        train(folder, source=source, task={"name": "sudoku"}, model=model)["id"],
        train(folder, task={"name": "classification"})["id"],
        train(folder, **masked(train(folder, **TOKENIZER)["id"]))["id"],
    ]
    table = folder / "houses.csv"
    table.write_text("\n".join(["area,rooms,price", *(f"{x},{x % 7},{3 * x + x % 7}" for x in range(300))]))
    found = call("find", table, "--within=20s", "--budget=2k")
    assert found.code == 0, found.err
    index = Index(home())
    index.read_all()
    ((answer, _),) = index.answers
    problems = [index.runs[run].problem for run in (record.id, answer.run)]
    return [
        "/", "/start", f"/start/{Shelf(home()).open(str(table)).id}", "/design", "/studies/shapes",
        *(f"/problems/{problem}" for problem in problems), f"/runs/{opened.name}", f"/runs/{trained}",
        f"/runs/{trained}/inside", f"/runs/{trained}/inside?with={beside}",
        *(f"/runs/{run}/try" for run in (*runs, answer.run)), "/nothing",
    ], opened  # fmt: skip


_DRAWN = """() => [...document.querySelectorAll('.plot')].every(
    (each) => each.closest('[hidden]') || each.querySelector('.main-svg'))"""


@pytest.mark.timeout(1200)
def test_pages_are_accessible_and_fit_narrow_and_wide_screens(browser: Any, axe: str, tmp_path: Path) -> None:
    panel.load_run.cache_clear()
    panel.read_samples.cache_clear()
    paths, opened = _write_pages(tmp_path)
    failures = []
    with FileLock(opened / LOCK), serving() as port:  # pages show what is at work, too
        for width, scheme in product((400, 1400), ("light", "dark")):
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce"
            )
            context.set_default_timeout(60_000)
            page = context.new_page()
            for path in paths:
                page.goto(f"http://127.0.0.1:{port}{path}")
                page.wait_for_function(_DRAWN)
                playwright.expect(page.locator("[data-again]")).to_have_count(0, timeout=60_000)
                page.evaluate(axe)
                found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
                for each in found["violations"]:
                    if each["impact"] in ("serious", "critical") or each["id"] == "heading-order":
                        failures.append(f"{path} {width} {scheme}: {each['id']}: {each['nodes'][0]['html'][:160]}")
                over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                if over > 0:
                    failures.append(f"{path} {width}: {over} pixels too wide")
            context.close()
    assert not failures, "\n".join(failures)
