"""What is measured of a run on request, and two runs side by side."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from isthmus.core.files import home
from isthmus.studio.inside import Inside, start_analysis
from isthmus.studio.server import create_app
from tests.command_line import train

HERE = "http://127.0.0.1:8642"


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(), base_url=HERE, follow_redirects=False)


def _wait(client: TestClient, path: str, words: str) -> str:
    ends = time.monotonic() + 90
    while words not in (text := client.get(path).text):
        assert time.monotonic() < ends, text
        time.sleep(0.2)
    return text


def test_two_runs_stand_side_by_side(client: TestClient, tmp_path: Path) -> None:
    first, second = (train(tmp_path, f"seed={seed}")["id"] for seed in (0, 1))
    text = client.get(f"/runs/{first}/inside").text
    assert "<h3>Effective rank</h3><p class='note'>The number of directions" in text
    assert "do not apply" in text
    assert f"isthmus analyze {first}" in text
    assert second[:8] in text
    beside = client.get(f"/runs/{first}/inside?with={second}").text
    assert f"Compare with {second[:8]}" in beside
    assert beside.count('"name":') >= 2  # a curve of each
    for button in re.findall("<form method=.post.*?</form>", beside):  # each leads back to both
        assert f'name="back" value="{first}"' in button
        assert f'name="beside" value="{second}"' in button
    assert client.get(f"/runs/{first}/inside?with=none").status_code == 404
    for file in ("..%2Fconfig.json", "config.json", "x.png", "..png"):
        assert client.get(f"/runs/{first}/analysis/{file}").status_code == 404
    link = home() / "runs" / first / "analysis" / "link.png"
    link.parent.mkdir()
    link.symlink_to("/etc/passwd")
    assert client.get(f"/runs/{first}/analysis/link.png").status_code == 404
    for form in ("analysis=nonsense", "analysis=cka&against=..%2Fx"):
        assert client.post(f"/runs/{first}/inside", content=form, headers={"Origin": HERE}).status_code in (404, 409)


@pytest.mark.slow
def test_a_measurement_is_made_on_request_and_shown(client: TestClient, tmp_path: Path) -> None:
    run = train(tmp_path)["id"]
    path = f"/runs/{run}/inside"
    given = f"analysis=effective_rank&back=another&beside={run}"
    answer = client.post(path, content=given, headers={"Origin": HERE})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/runs/another/inside?with={run}")
    assert client.post(path, content="analysis=effective_rank", headers={"Origin": HERE}).status_code == 409
    text = _wait(client, path, "effective_rank.png")
    assert "Measured" in text
    view = Inside(client.app.state.studio, run, {})  # type: ignore[attr-defined]
    before = view.stamp()
    job = start_analysis(view.studio, view.run, "")
    shown = set[str]()
    while view.studio.jobs.is_running(job):
        shown.update(re.findall("[0-9]+ of [0-9]+ measured", str(view.parts()["jobs"])))
        time.sleep(0.05)
    assert len(shown) > 1, shown
    assert view.stamp() != before  # so that an open page is sent what was measured
    picture = client.get(f"/runs/{run}/analysis/effective_rank.png")
    assert picture.headers["Content-Type"] == "image/png"
    assert picture.content.startswith(b"\x89PNG")
