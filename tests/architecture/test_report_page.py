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
const visible = (trace) => trace.visible !== false && trace.mode === "lines";
const drawn = () => document.querySelector(".plot.curve").data.filter(visible)
  .reduce((sum, trace) => sum + trace.x.filter((x) => x === null).length, 0);
seen.curves = [drawn()];
document.querySelector(".more.curves").click();
seen.curves.push(drawn());
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
const table = document.querySelector("table.sortable");
const state = () => ({
  columns: [...table.rows[0].cells].filter((cell) => cell.offsetWidth).map((cell) => cell.textContent),
  cut: table.parentElement.scrollWidth - table.parentElement.clientWidth,
});
seen.table = [state()];
document.querySelector(".more.columns").click();
seen.table.push(state());
let copied = "";
Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { copied = text; } } });
const button = table.querySelector("button.copy");
button.click();
seen.copied = [copied, button.dataset.copy, button.textContent];
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
    assert seen["points"] == 16
    assert seen["bars"] == 12, "the members of the fronts"
    assert seen["curves"] == [6, 95], "all but the failed run on request"
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


def test_the_table_is_not_cut_and_shows_all_columns_on_request(page, seen):
    few, all_of_them = seen["table"]
    assert few["cut"] <= 0
    assert "MACs" not in few["columns"]
    assert few["columns"][-1] == "Run"
    assert {"MACs", "5 σ", "Time"} <= set(all_of_them["columns"])
    copied, identity, shown = seen["copied"]
    assert copied == identity
    assert len(identity) == 16
    assert identity.startswith(shown)


@pytest.mark.slow
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
