"""Every block of code in the documentation runs, and the generated pages say what the code says."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import isthmus
from isthmus.core.registry import catalogue
from isthmus.papers import list_papers, load_paper
from tests.architecture.documents import DOCS, IN_TIMM, run_blocks
from tests.unit.boards import SEVENTEEN

PAGES = sorted(set(DOCS.glob("*.md")) - {IN_TIMM})
"""What needs timm is run beside the other tests of timm, in its environment."""


def files_of_the_reader(folder: Path) -> None:
    lines = [f"{i % 7}.5,{i % 5},{i % 7 + i % 5}.25" for i in range(60)]
    (folder / "my.csv").write_text("\n".join(["a,b,price", *lines]) + "\n")
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(folder / "photo.png")
    (folder / "photos").mkdir()
    for number in range(4):
        Image.fromarray(np.full((16, 24, 3), 50 * number, np.uint8)).save(folder / "photos" / f"{number}.png")
    np.save(folder / "rows.npy", np.zeros((3, 784), np.uint8))
    (folder / "puzzle.txt").write_text(SEVENTEEN)


@pytest.mark.slow
@pytest.mark.timeout(900)  # the tutorial takes a minute of an idle core
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files_of_the_reader(tmp_path)
    run_blocks(page)


def test_the_pictures_of_the_gallery_are_there_and_small() -> None:
    pictures = re.findall(r"^!\[.+\]\((.+)\)$", (DOCS / "gallery.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(pictures) >= 6
    assert all((DOCS / picture).stat().st_size < 100_000 for picture in pictures)


@pytest.fixture(scope="module")
def generating() -> Any:
    spec = importlib.util.spec_from_file_location("generating", DOCS / "generating.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_line_reference_names_every_command(generating: Any) -> None:
    page = generating.command_page()
    for name in ("train", "export", "predict", "runs list", "bench inference"):
        assert f"## isthmus {name}\n" in page
    assert "| `--to` |" in page


def test_the_fields_are_described_with_their_meanings(generating: Any) -> None:
    page = generating.field_page()
    assert "| `epochs` | Passes over the training rows. | integer ≥ 1 | `20` |" in page
    for heading in ("## train", "## task: denoise", "## source: table"):
        assert f"{heading}\n" in page
    assert "| `augment.flip` | Mirror half" in page


def test_the_models_are_described_by_their_own_files(generating: Any) -> None:
    page = generating.model_page()
    ours = [name for name, home in catalogue("models").items() if home.startswith("isthmus.")]
    assert all(f"`{name}`" in page for name in ours)
    assert "Differs from the paper" in page


@pytest.mark.parametrize("key", list_papers())
def test_a_paper_s_page_has_its_claims_and_what_was_measured(key: str, generating: Any, tmp_path: Path) -> None:
    paper = load_paper(key)
    measured = generating.reproductions(DOCS.parent / "results" / "reproductions", key)
    page = generating.paper_page(paper, measured, tmp_path)
    assert all(f"| {claim} |" in page for claim in paper.claims)
    assert all(result["printed_as"] in page for result in measured.values())
    if key == "hourglass":
        assert "no (Figure 7, cpu): " in page


@pytest.mark.parametrize("key", [key for key in list_papers() if key != "pathways"])
def test_no_printed_setting_differs_from_ours_without_a_remark(key: str, generating: Any) -> None:
    sections = generating.protocol_sections(key)
    rows = [line.split(" | ") for section in sections if section.startswith("| ") for line in section.splitlines()[2:]]
    assert len(rows) > 20
    for path, printed, here, code, as_code, remark in rows:
        if printed != "not printed":
            assert here == printed or remark != " |", path
        assert code == "" or as_code == code, path
    whole = "\n".join(sections)
    if key == "hyperset":
        assert "| `train.betas` | [0, 0.95] | [0, 0.95] | [0.9, 0.95] | [0.9, 0.95] |  |" in whole
    if key == "widesparse":
        assert "three learning rates are compared on validation images" in whole


def listed_members() -> list[Any]:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    found = re.findall(r"autoclass:: (\S+)\n +:members: (.+)", text)
    return [
        pytest.param(home, name, id=f"{home.rpartition('.')[2]}.{name}")
        for home, names in found
        for name in names.split(", ")
    ]


@pytest.mark.parametrize(("home", "name"), listed_members())
def test_every_listed_member_has_a_docstring(home: str, name: str) -> None:
    module, _, kind = home.rpartition(".")
    assert inspect.getdoc(getattr(getattr(importlib.import_module(module), kind), name))


@pytest.mark.parametrize("kind", ["HourglassRegressor", "HourglassClassifier", "HourglassDenoiser"])
def test_an_estimator_describes_each_of_its_parameters(kind: str) -> None:
    estimator = getattr(importlib.import_module("isthmus.sklearn"), kind)
    described = re.findall(r"^:param (\w+):", inspect.getdoc(estimator) or "", flags=re.MULTILINE)
    assert sorted(described) == sorted(set(inspect.signature(estimator).parameters))


def test_the_site_is_that_of_this_version() -> None:
    assert isthmus.__version__ in (DOCS.parent / "pyproject.toml").read_text()
