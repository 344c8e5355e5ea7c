"""The report's page in a real browser: drawn, sorted, switched, and silent on the network."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from isthmus.reports import write_report
from isthmus.reports.plots import COLOURS
from tests.browser import browse
from tests.unit.fabricated_runs import write_study

TRY_OUT = """
const all = (selector) => [...document.querySelectorAll(selector)];
const column = (title) => all("table.sortable th").findIndex((head) => head.textContent === title);
const values = (title) => all("table.sortable tbody tr").map((row) => row.cells[column(title)].dataset.value);
const click = (title) => all("table.sortable th button")[column(title)].click();
seen.points = all(".plot.front .points path.point").length;
seen.bars = all(".plot.front .errorbars path.yerror").length;
seen.lines = all(".plot.curve").map((plot) => plot.querySelectorAll("path.js-line").length);
seen.stroke = getComputedStyle(document.querySelector(".plot.front path.js-line")).stroke;
click("Params"); seen.falling = values("Params");
click("Params"); seen.rising = values("Params");
click("Shape"); seen.shapes = values("Shape");
// The members of the fronts, as drawn.
const members = () => document.querySelector(".plot.front").data.filter((t) => t.line?.shape === "hv").map((t) => t.x);
seen.members = members();
const choose = (name, value) => {
  const select = document.querySelector(name);
  select.value = value;
  select.dispatchEvent(new Event("change"));
};
choose(".cost", "macs"); choose(".metric", "ssim");
seen.switched = members();
seen.answer = document.querySelector(".answer").textContent;
seen.titles = all(".plot.front .xtitle, .plot.front .ytitle").map((title) => title.textContent);
const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
seen.loads = loaded.filter((name) => !name.startsWith("data:"));
seen.wide = document.documentElement.scrollWidth - innerWidth;
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    return write_report([write_study(root / "runs", seeds=2, samples=True, epochs=4)], root / "out", "Shapes")


@pytest.fixture(scope="module")
def seen(page: Path) -> dict:
    return browse(page, TRY_OUT)


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def test_every_candidate_is_drawn_and_every_architecture_has_its_curves(seen):
    assert seen["errors"] == []
    assert seen["points"] == seen["bars"] == 16
    # Per architecture: the chosen learning rate and the others.
    assert seen["lines"][0] >= 4
    assert seen["lines"][1] >= 4
    assert seen["stroke"] == rgb(COLOURS[0][0])


def test_a_click_on_a_header_sorts(seen):
    numbers = [int(value) for value in seen["rising"]]
    assert numbers == sorted(numbers)
    assert seen["falling"] == seen["rising"][::-1]
    assert seen["shapes"] == sorted(seen["shapes"], reverse=True)


def test_the_switches_change_the_plot_and_the_answer(seen):
    assert seen["titles"] == ["MACs per row", "Test SSIM"]
    assert seen["answer"].startswith("By MACs per row, ")
    # Another quality is shown for the members that the objective has on validation data; here MACs equal parameters.
    assert len(seen["members"]) == 2
    assert seen["switched"] == seen["members"]


def test_dark_readers_get_dark_colours(page):
    assert browse(page, TRY_OUT, "--blink-settings=preferredColorScheme=0")["stroke"] == rgb(COLOURS[0][1])


def test_nothing_is_loaded_and_nothing_sticks_out(seen, page):
    assert seen["loads"] == []
    assert seen["refused"] == []
    assert seen["wide"] <= 0

    class Addresses(HTMLParser):
        found: list[str] = []  # noqa: RUF012 (one parser, read once)

        def handle_starttag(self, tag, attributes):
            self.found += [value for name, value in attributes if name in ("src", "href", "action", "srcset", "data")]

    parser = Addresses()
    parser.feed(page.read_text(encoding="utf-8"))
    assert parser.found
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in parser.found)
