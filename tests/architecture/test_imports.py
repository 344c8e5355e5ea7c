"""Who may import whom (CONTRIBUTING.md), read off the source; and what help and ``import isthmus`` do not import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import isthmus
from isthmus.core.registry import Kind, catalogue

ROOT = Path(isthmus.__file__).parent
TESTS = Path(__file__).parents[1]
KINDS: tuple[Kind, ...] = ("models", "pathways", "sources", "tasks", "costs", "recipes")

LAYERS = (
    {"core"},
    {"sources", "layers"},
    {"pathways"},
    {"models", "tasks"},
    {"training"},
    {"costs"},
    {"studies"},
    {"reports"},
    {"analysis", "export", "recipes"},
    {"papers", "sklearn", "timm"},
    {"search"},
    {"api"},
    {"studio"},
    {"cli"},
)
"""The folders of the package. A file imports from its own folder and from earlier rows."""
EXEMPT = {
    "sources/tokens.py imports isthmus.training.tokenizers": "its rows are what a trained tokenizer makes of images",
    "reports/published.py imports isthmus.papers": "published numbers are drawn over measured fronts",
}
NO_TORCH = {"core", "costs", "reports", "recipes", "cli"}
HEAVY = {"torch", "numpy", "pydantic", "torchmetrics", "PIL", "pyarrow", "matplotlib", "plotly", "yaml"}


class Import(NamedTuple):
    file: Path
    module: str  # "isthmus.core.record" or "torch.nn"
    late: bool  # within a function


def _imports(file: Path) -> list[Import]:
    """Every import of a file but those for the type checker."""
    tree = ast.parse(file.read_text())
    skipped, late = set[ast.AST](), set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            skipped |= set(ast.walk(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            late |= set(ast.walk(node))
    found = []
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [Import(file, alias.name, node in late) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import hides who is imported"
            names = [f"isthmus.{alias.name}" for alias in node.names] if node.module == "isthmus" else [node.module]
            found += [Import(file, str(name), node in late) for name in names]
    return found


def _part(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


FILES = sorted(ROOT.rglob("*.py"))
IMPORTS = [each for file in FILES for each in _imports(file)]
OURS = [each for each in IMPORTS if each.module.startswith("isthmus.")]


def test_folders_import_only_what_is_below_them() -> None:
    height = {folder: row for row, folders in enumerate(LAYERS) for folder in folders}
    wrong = set()
    for each in OURS:
        here, there = _part(each.file), each.module.split(".")[1]
        if here != there and here not in ("__init__", "__main__") and height[there] >= height[here]:
            wrong.add(f"{each.file.relative_to(ROOT)} imports {each.module}")
    assert wrong == EXEMPT.keys()


def test_the_root_holds_folders_only() -> None:
    assert {path.stem for path in ROOT.glob("*.py")} == {"__init__", "__main__"}


def test_registered_files_do_not_import_each_other() -> None:
    homes = [home for kind in KINDS for home in catalogue(kind).values() if home.startswith("isthmus.")]
    registered = {home.partition(":")[0] for home in homes}
    assert len(registered) >= 3
    inside = [each for each in OURS if _part(each.file) in KINDS]
    assert not [f"{each.file.name} imports {each.module}" for each in inside if each.module in registered]


def test_training_knows_no_concrete_model_or_task() -> None:
    text = "".join(file.read_text() for file in (ROOT / "training").glob("*.py"))
    names = {*catalogue("models"), *catalogue("tasks")}
    assert not {name for name in names if f'"{name}"' in text or f"'{name}'" in text}


def test_what_reads_records_needs_no_torch() -> None:
    torch = [each for each in IMPORTS if each.module.split(".")[0] == "torch" and not each.late]
    assert not [each for each in torch if _part(each.file) in NO_TORCH]


def _imported_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sorted(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_isthmus_is_light() -> None:
    assert not HEAVY & _imported_after("import isthmus; isthmus.__all__; dir(isthmus)")


def test_help_is_light() -> None:
    lines = [
        "from typer.testing import CliRunner",
        "from isthmus.cli.main import app",
        "shown = CliRunner().invoke(app, ['--help'])",
        "assert shown.exit_code == 0 and 'train' in shown.output",
    ]
    assert not HEAVY & _imported_after("\n".join(lines))


@pytest.mark.parametrize(
    "reader", ["reports", "reports.page", "papers", "studies.fronts", "studies.runs", "api.records", "api.compare"]
)
def test_reading_records_does_not_import_torch(reader: str) -> None:
    assert "torch" not in _imported_after(f"import isthmus.{reader}")


def test_no_module_shares_the_name_of_a_public_function() -> None:
    modules = {file.stem for file in ROOT.glob("*.py")} | {file.parent.name for file in ROOT.glob("*/__init__.py")}
    assert not modules & set(isthmus.__all__)
    assert all(getattr(isthmus, name) for name in isthmus.__all__)


def test_a_module_of_tests_is_imported_by_no_other() -> None:
    imports = re.compile(r"^ *(?:from (tests[\w.]*) import (\([^)]*\)|.*)|import (tests[\w.]*))", re.MULTILINE)
    found = [(file.name, *match) for file in TESTS.rglob("*.py") for match in imports.findall(file.read_text())]
    assert len(found) > 50
    assert not [each for each in found if re.search(r"\btest_", " ".join(each[1:]))]
