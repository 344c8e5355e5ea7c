"""The report's page in a real browser: drawn, sorted, switched, and silent on the network."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from isthmus.reports import write_report
from isthmus.reports.plots import COLOURS
from tests.unit.test_reports import write_study

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1000,1600",
)

WATCH = """<script>
window.seen = { refused: [], errors: [] };
addEventListener("securitypolicyviolation", (event) => seen.refused.push(event.blockedURI));
addEventListener("error", (event) => seen.errors.push(event.message));
</script>"""

TRY_OUT = """<script>
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
const result = document.createElement("pre");
result.id = "seen";
result.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(seen))));
document.body.append(result);
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    return write_report([write_study(root / "runs", seeds=2, samples=True, epochs=4)], root / "out", "Shapes")


def browse(page: Path, *flags: str) -> dict:
    """Open a copy of the page that tries itself out, and read back what it saw."""
    if BROWSER is None:
        pytest.skip("there is no Chromium on this machine")
    text = page.read_text(encoding="utf-8").replace("<title>", f"{WATCH}<title>", 1)
    head, end, tail = text.rpartition("</body>")
    copy = page.with_name("tried.html")
    copy.write_text(head + TRY_OUT + end + tail, encoding="utf-8")
    profile = page.parent / "profile"
    command = [BROWSER, *FLAGS, *flags, f"--user-data-dir={profile}", "--dump-dom", copy.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout
    shutil.rmtree(profile, ignore_errors=True)
    found = re.search(r'<pre id="seen">([^<]*)</pre>', shown)
    assert found, "the page's script did not come to its end"
    result: dict = json.loads(base64.b64decode(found.group(1)))
    return result


@pytest.fixture(scope="module")
def seen(page: Path) -> dict:
    return browse(page)


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
    assert browse(page, "--blink-settings=preferredColorScheme=0")["stroke"] == rgb(COLOURS[0][1])


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
