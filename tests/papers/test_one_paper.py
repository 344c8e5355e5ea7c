"""One table needs one paper and one study; a paper may live in another package."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus import papers
from isthmus.core.config import StudyConfig
from isthmus.core.errors import UserError
from isthmus.papers import list_papers, load_paper
from isthmus.papers.engine.reproduce import find_exhibit, list_exhibits, reproduce
from tests.papers.networks import fabricating

OTHERS = {name for name in ("hourglass", "hyperset", "imixer", "widesparse") if name != "hourglass"}


@pytest.mark.slow
def test_finding_an_exhibit_imports_one_paper() -> None:
    script = """
        import sys
        from isthmus.papers.engine.reproduce import find_exhibit

        find_exhibit("hourglass", "T8").parts("smoke")
        print(*(name for name in sys.modules if name.startswith("isthmus.papers.")))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    imported = {name.split(".")[2] for name in done.stdout.split()}
    assert "hourglass" in imported
    assert not imported & OTHERS


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For every StudyConfig: the calls on the stack that lead to it from the papers' modules."""
    depths: list[int] = []
    init = StudyConfig.__init__

    def count(self: StudyConfig, **settings: Any) -> None:
        frame: Any = sys._getframe(1)
        calls = set()
        while frame is not None:
            name = frame.f_code.co_name
            # `study_config` builds the study; how it reports a wrong field is not on the way.
            if frame.f_globals["__name__"].startswith("isthmus.") and name not in ("<listcomp>", "build_config"):
                calls.add(frame)
            frame = frame.f_back
        depths.append(len(calls))
        init(self, **settings)

    monkeypatch.setattr(StudyConfig, "__init__", count)
    return depths


def test_a_table_is_four_calls_from_its_study(built: list[int]) -> None:
    (part,) = find_exhibit("hourglass", "T8").parts("smoke")
    assert len(built) == 1
    assert built[0] <= 4
    assert part.differences
    assert len(built) == 2, "the paper's study is built when the differences are asked for"


@pytest.mark.parametrize(
    ("paper", "table"), [("hourglass", "F7"), ("imixer", "T4"), ("widesparse", "F2"), ("hyperset", "F4")]
)
def test_every_part_builds_one_study(paper: str, table: str, built: list[int]) -> None:
    for scale in ("smoke", "cpu"):
        built.clear()
        assert len(find_exhibit(paper, table).parts(scale)) == len(built) > 0  # type: ignore[arg-type]


PUBLISHED = """
title: A short paper
authors: [N. N.]
tables:
  T1: {printed_as: Table 1, caption: Two networks., columns: [d_z, psnr_dB], decimals: {psnr_dB: 1}, rows: [[65, 20.5]]}
figures: {}
claims:
  C1: {statement: Wide networks are better., supported: not printed, tables: [T1]}
discrepancies: {}
"""
EXHIBITS = '''
from isthmus.papers.engine.claims import Claims, pair
from isthmus.papers.engine.exhibit import Exhibits, by_id
from isthmus.papers.engine.figures import fronts
from isthmus.papers.engine.parts import describe_study, make_part

claim = Claims("short")


@claim.each_part("C1")
def c1(networks):
    """The widest is ahead of the narrowest."""
    ordered = sorted(networks, key=lambda network: network.model["d_z"])
    return pair(ordered[-1], ordered[0])


def parts(scale):
    models = [{"name": "hourglass_mlp", "d_z": d_z, "d_h": 4, "depth": 1} for d_z in (65, 96)]
    base = {"source": {"name": "digits"}, "task": {"name": "denoise"}, "threads": 1}
    study = lambda chosen: describe_study("short", chosen, base, models, 2)
    return [make_part("denoising", scale, study, {"all": ["the paper is short"]})]


TABLES = by_id(Exhibits("short", {})("T1", c1, parts=parts, draw=fronts))
'''


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / "short_paper"
    package.mkdir()
    for name, text in (("__init__.py", ""), ("published.yaml", PUBLISHED), ("exhibits.py", EXHIBITS)):
        (package / name).write_text(text)
    info = tmp_path / "short_paper-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: short-paper\nVersion: 1.0\n")
    entries = "short = short_paper\nhourglass = short_paper\nbroken = no_such_package\n"
    (info / "entry_points.txt").write_text(f"[isthmus.papers]\n{entries}")
    monkeypatch.syspath_prepend(str(tmp_path))
    papers._homes.cache_clear()
    yield tmp_path
    papers._homes.cache_clear()
    for name in [name for name in sys.modules if name.startswith("short_paper")]:
        del sys.modules[name]


def test_another_package_brings_a_paper(other_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match="short_paper is ignored: paper 'hourglass'"):
        assert {"short", "hourglass", "broken"} <= set(list_papers())
    assert load_paper("short").row("T1.1")["psnr_dB"] == 20.5
    assert load_paper("hourglass").tables.keys() > {"T8"}
    assert [line["printed as"] for line in list_exhibits("short")] == ["Table 1"]
    monkeypatch.setattr("isthmus.reports.write_report", lambda *given, **named: None)
    better = fabricating(lambda model, rate, seed: model["d_z"] / 10 + seed / 1000, (64, 64))
    result = reproduce("short", "t1", "cpu", other_package / "out", carry_out=better)
    assert [claim["measured"] for claim in result["claims"]] == ["yes"]
    assert result["differences"] == ["the paper is short"]
    with pytest.raises(UserError, match="paper 'broken' cannot be loaded from no_such_package"):
        find_exhibit("broken", "T1")
